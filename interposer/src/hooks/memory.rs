//! Memory: reserve, call the driver, commit or roll back.

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::{Entry, Owner, Reservation};
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::shares::{Opened, Place};
use crate::driver::Stream;
use crate::guard::guard;
use crate::link::{CAPTURES, Client, Gpu};
use crate::say::Once;
use crate::thread::{self, Current};

use std::sync::atomic::Ordering;

/// Allocations and padded rows take multiples of this: addresses that the driver gives out are no closer to each other.
const GRANULE: u64 = 512;

/// What so many bytes take: a row with the driver's padding, or a whole allocation.
pub fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}

/// A request for memory.
pub struct Ask {
    bytes: Bytes,
    kind: MemoryKind,
}

impl Ask {
    /// Linear memory.
    pub fn plain(bytes: usize) -> Self {
        Self { bytes: Bytes(padded(bytes as u64)), kind: MemoryKind::Plain }
    }

    /// Rows, each padded by the driver.
    pub fn pitched(width: usize, height: usize) -> Self {
        Self { bytes: Bytes(padded(width as u64).saturating_mul(height as u64)), kind: MemoryKind::Plain }
    }

    /// How much.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Managed memory, which may live on the device.
    pub fn managed(bytes: usize) -> Self {
        Self { bytes: Bytes(padded(bytes as u64)), kind: MemoryKind::Managed }
    }

    /// A one- or two-dimensional array.
    pub fn array(descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> Self {
        // SAFETY: the caller passes a descriptor or null; the driver reads the same fields.
        let bytes = unsafe { descriptor.as_ref() }.map_or(0, |d| {
            elements(&[d.width as u64, d.height as u64])
                .saturating_mul(element_bytes(d.format, d.num_channels))
        });
        Self { bytes: Bytes(padded(bytes)), kind: MemoryKind::Array }
    }

    /// An array of up to three dimensions, with `levels` that halve. One to which memory is mapped has none of its own.
    pub fn array_3d(descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Self {
        const MAPPED: u32 = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
        // SAFETY: as above.
        let descriptor = unsafe { descriptor.as_ref() }.filter(|d| d.flags & MAPPED == 0);
        let bytes = descriptor.map_or(0, |d| {
            let level = |level: u32| {
                let halved = |n: usize| (n as u64).checked_shr(level).unwrap_or(0).max(u64::from(n > 0));
                elements(&[halved(d.width), halved(d.height), halved(d.depth)])
            };
            let sum = (0..levels.clamp(1, 32)).fold(0u64, |sum, n| sum.saturating_add(level(n)));
            sum.saturating_mul(element_bytes(d.format, d.num_channels))
        });
        Self { bytes: Bytes(padded(bytes)), kind: MemoryKind::Array }
    }
}

/// Elements of an array: a dimension of zero is one that the array does not have.
fn elements(dimensions: &[u64]) -> u64 {
    dimensions.iter().fold(1, |product: u64, n| product.saturating_mul((*n).max(1)))
}

/// Bytes of one element. Formats beyond the plain ones (block-compressed, video) take at most 16 for a channel group.
pub(super) fn element_bytes(format: CUarray_format, channels: u32) -> u64 {
    let channel = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return 16,
    };
    channel * u64::from(channels.max(1))
}

/// A handle that the driver hands out: a pointer or a number.
pub trait Handle: Copy {
    /// As the ledger keys it.
    fn key(self) -> u64;
}

impl Handle for CUdeviceptr {
    fn key(self) -> u64 {
        self
    }
}

impl Handle for CUarray {
    fn key(self) -> u64 {
        self.addr() as u64
    }
}

/// Allocates within the tenant's limit.
pub fn allocate<H: Handle>(
    counted: usize,
    ask: Ask,
    out: *mut H,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            let Some(current) = thread::with(|thread| thread.find_current(client)) else { return Ok(None) };
            count(current.gpu, counted);
            let reservation = reserve(client, current.gpu, ask.kind, ask.bytes)?;
            Ok(Some((current, reservation)))
        },
        call,
        |client, receipt, result| {
            let Some((current, reservation)) = receipt else { return };
            if result == CUDA_SUCCESS && !out.is_null() {
                // SAFETY: the driver has just written it.
                remember(client, current, unsafe { *out }.key(), ask.kind, reservation.commit());
            }
        },
    )
}

/// Charges the bytes, or answers as the driver does when the card is full.
pub fn reserve(
    client: &Client,
    gpu: &'static Gpu,
    kind: MemoryKind,
    bytes: Bytes,
) -> Result<Reservation<'static>, CUresult> {
    take(client, gpu, kind, bytes).ok_or_else(|| refuse(client, gpu, bytes))
}

/// Counts a refusal, and says the first one; the driver's answer when the card is full.
pub fn refuse(client: &Client, gpu: &Gpu, bytes: Bytes) -> CUresult {
    gpu.slot().refused.fetch_add(1, Ordering::Relaxed);
    REFUSED.say(|| {
        let limit = gpu.memory_limit();
        let help = if client.standalone {
            "start it again with a larger --memory".into()
        } else {
            format!("weir set {} --memory SIZE", client.tenant)
        };
        let (held, pid) = (gpu.usage.held(), std::process::id());
        format!(
            "an allocation of {bytes} was refused: limit {limit}, in use {held}, asked by pid {pid}. help: {help}"
        )
    });
    CUDA_ERROR_OUT_OF_MEMORY
}

static REFUSED: Once = Once::new();

/// Charges the bytes if they fit.
pub fn take(
    client: &Client,
    gpu: &'static Gpu,
    kind: MemoryKind,
    bytes: Bytes,
) -> Option<Reservation<'static>> {
    client.look_for_manager();
    let limit = gpu.memory_limit();
    let take = || Reservation::take(&gpu.usage, gpu.slot_index(), kind, bytes, limit);
    // What pools have given back without a wait that we saw is asked for before anybody is refused.
    take().or_else(|| {
        client.pools.look(client);
        take()
    })
}

/// Notes what a handle holds.
pub fn remember(client: &Client, current: Current, key: u64, kind: MemoryKind, bytes: Bytes) {
    let owner = Owner::Context(current.context.root);
    let entry = Entry { bytes, kind, gpu: current.gpu.index, owner };
    client.remember(key, entry);
}

/// Frees: what the handle held is given back once the driver has agreed. A handle that we never charged (another
/// process's, imported, or allocated before we attached) passes through.
pub fn free(counted: usize, key: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(Freed::of(client, counted, key)),
        call,
        |client, freed, result| freed.settle(client, result),
    )
}

/// What a handle held that is being freed, off the books.
pub struct Freed {
    key: u64,
    entry: Option<Entry>,
    opened: Option<Opened>,
}

impl Freed {
    /// Forgotten before the call: once the driver has freed it, another thread may get the same address.
    pub fn of(client: &'static Client, counted: usize, key: u64) -> Self {
        let entry = client.ledger.remove(key);
        let gpu = entry.and_then(|entry| client.gpus.get(entry.gpu));
        if let Some(gpu) = gpu.or_else(|| Some(thread::with(|thread| thread.find_current(client))?.gpu)) {
            count(gpu, counted);
        }
        // A piece of another process's pool is freed as if it were our own.
        let opened = if entry.is_none() { client.shares.remove_opened(Place::At(key)) } else { None };
        Self { key, entry, opened }
    }

    /// Given back if the driver agreed.
    pub fn settle(self, client: &Client, result: CUresult) {
        if let Some(opened) = self.opened {
            client.shares.settle_closed(client, Place::At(self.key), opened, result);
        }
        let Some(entry) = self.entry else { return };
        if result == CUDA_SUCCESS {
            client.give_back(self.key, entry);
        } else {
            client.remember(self.key, entry); // still held
        }
    }
}

/// Frees in stream order. In a stream that captures, the call makes a node of a graph; nothing is freed now.
pub fn free_async(counted: usize, key: u64, stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    if captures(stream) {
        return guard(
            |client| {
                if let Some(current) = thread::with(|thread| thread.find_current(client)) {
                    count(current.gpu, counted);
                }
                Ok(())
            },
            call,
            |_, (), _| {},
        );
    }
    free(counted, key, call)
}

/// Whether the call makes a node of a graph: nothing is allocated now.
pub fn captures(stream: Stream) -> bool {
    CAPTURES.load(Ordering::Relaxed) > 0 && stream.is_capturing()
}

/// Counts a memory call by its symbol.
pub fn count(gpu: &Gpu, counted: usize) {
    if let Some(counter) = gpu.slot().memory_calls.get(counted) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_that_overflows_is_larger_than_any_limit() {
        assert_eq!(Ask::pitched(usize::MAX, usize::MAX).bytes, Bytes(u64::MAX));
        assert_eq!(Ask::pitched(1, 3).bytes, Bytes(3 * 512));
    }

    #[test]
    fn a_mipmapped_array_is_the_sum_of_its_levels_in_the_drivers_steps() {
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            width: 64,
            height: 32,
            depth: 0,
            format: CU_AD_FORMAT_FLOAT,
            num_channels: 1,
            flags: 0,
        };
        let sum: u64 = 4 * (64 * 32 + 32 * 16 + 16 * 8);
        assert_eq!(Ask::array_3d(&raw const descriptor, 3).bytes, Bytes(sum.next_multiple_of(GRANULE)));
        let tiny = CUDA_ARRAY3D_DESCRIPTOR { width: 1, height: 1, ..descriptor };
        assert_eq!(Ask::array_3d(&raw const tiny, 1).bytes, Bytes(512));
        for flags in [CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING] {
            let mapped = CUDA_ARRAY3D_DESCRIPTOR { flags, ..descriptor };
            assert_eq!(Ask::array_3d(&raw const mapped, 3).bytes, Bytes(0), "its memory is cuMemCreate's");
        }
    }
}

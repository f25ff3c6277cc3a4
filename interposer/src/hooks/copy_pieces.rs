//! What a call copies: how many bytes, and which way.

use std::ffi::{c_int, c_void};

use weir_abi::types::*;
use weir_protocol::pages::CopyWay;

use super::memory::element_bytes;
use crate::driver;

/// What a call was asked to copy; pointers as the program passed them.
#[derive(Clone, Copy)]
pub enum What {
    /// Bytes, one way.
    Plain(CopyWay, usize),
    /// Bytes between two addresses, of which only the driver knows what they are.
    Between { to: CUdeviceptr, from: CUdeviceptr, bytes: usize },
    /// Device memory to device memory, perhaps another's.
    OnDevice { to: CUdeviceptr, from: CUdeviceptr, bytes: usize },
    /// A rectangle.
    Flat(*const CUDA_MEMCPY2D),
    /// A box.
    Solid(*const CUDA_MEMCPY3D),
    /// A box between two contexts.
    SolidPeer(*const CUDA_MEMCPY3D_PEER),
    /// Many between pairs of addresses.
    Batch { to: *const CUdeviceptr, from: *const CUdeviceptr, bytes: *const usize, count: usize },
    /// Many boxes.
    Solids { list: *const c_void, count: usize },
    /// Many over a fabric.
    Fabric { list: *const c_void, count: usize },
    /// Many pieces to be unpacked.
    Packed { list: *const c_void, count: usize },
    /// Managed memory that is to move to a device, or to the host (`None`). How much of it has to is not known.
    Prefetch { device: Option<c_int>, bytes: usize },
    /// The same, many ranges.
    Prefetches {
        bytes: *const usize,
        count: usize,
        places: *const CUmemLocation,
        first_of: *const usize,
        kinds: usize,
    },
}

/// Copies and bytes by way.
#[derive(Clone, Copy, Default)]
pub struct Amounts {
    calls: [u64; CopyWay::ALL.len()],
    bytes: [u64; CopyWay::ALL.len()],
    migrates: bool, // managed memory: nobody knows what of it moves, so no engine's time is expected
}

/// One end of a copy.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Host,
    Device(c_int),
}

/// A box of [`What::Solids`]: `CUDA_MEMCPY3D_BATCH_OP` of CUDA 12.8's `cuda.h`.
#[repr(C)]
struct Solid {
    from: Operand,
    to: Operand,
    extent: [usize; 3], // in elements, if there is an array; else in bytes
    _order_and_flags: [u32; 2],
}

/// One end of it: `CUmemcpy3DOperand`.
#[repr(C)]
struct Operand {
    kind: u32, // 1: a pointer, 2: an array
    address: u64,
    _rest: [u64; 3],
}

impl Operand {
    /// Bytes of an element of an array, which the driver knows.
    fn element_bytes(&self) -> Option<u64> {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut shape: CUDA_ARRAY3D_DESCRIPTOR = unsafe { std::mem::zeroed() };
        let known = self.kind == 2
            && driver::array_shape(&raw mut shape, driver::handle(self.address)) == CUDA_SUCCESS;
        known.then(|| element_bytes(shape.format, shape.num_channels))
    }
}

const _: () = assert!(size_of::<Operand>() == 40 && size_of::<Solid>() == 112);

/// One copy of [`What::Fabric`]: `CUDA_FABRIC_COPY_BATCH_OP` of CUDA 13.5's `cuda.h`.
#[repr(C)]
struct FabricCopy {
    from: FabricOperand,
    to: FabricOperand,
    bytes: usize, // 0: it does nothing
    _flags: u32,
}

/// One end of it: `CUfabricCpyOperand`.
#[repr(C)]
struct FabricOperand {
    kind: u32, // 1: a pointer, 2: an endpoint elsewhere
    address: u64,
    _rest: u64,
}

impl FabricOperand {
    fn end(&self) -> End {
        const ELSEWHERE: End = End::Device(-1);
        if self.kind == 1 { end_of(self.address) } else { ELSEWHERE }
    }
}

const _: () = assert!(size_of::<FabricOperand>() == 24 && size_of::<FabricCopy>() == 64);

/// One piece of [`What::Packed`]: `CUmemDecompressParams` of CUDA 12.8's `cuda.h`.
#[repr(C)]
struct Packed {
    from_bytes: usize,
    to_bytes: usize, // 0: the program does not say
    _written: u64,
    from: u64,
    to: u64,
    _algorithm: u32,
    _padding: [u8; 20],
}

const _: () = assert!(size_of::<Packed>() == 64);

impl Packed {
    /// What it is unpacked to, where that is said, else what is read.
    fn bytes(&self) -> u64 {
        let bytes = if self.to_bytes > 0 { self.to_bytes } else { self.from_bytes };
        bytes as u64
    }
}

impl Amounts {
    fn add(&mut self, way: Option<CopyWay>, bytes: u64) {
        if let Some(way) = way {
            let at = way as usize;
            self.calls.get_mut(at).into_iter().for_each(|calls| *calls += 1);
            self.bytes.get_mut(at).into_iter().for_each(|sum| *sum = sum.saturating_add(bytes));
        }
    }

    /// These and others.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// These without others that are among them.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn with(&self, other: &Self, both: impl Fn(u64, u64) -> u64) -> Self {
        let each = |mine: [u64; CopyWay::ALL.len()], others: [u64; CopyWay::ALL.len()]| {
            let mut pairs = mine.into_iter().zip(others);
            std::array::from_fn(|_| pairs.next().map_or(0, |(mine, other)| both(mine, other)))
        };
        Self {
            calls: each(self.calls, other.calls),
            bytes: each(self.bytes, other.bytes),
            migrates: self.migrates || other.migrates,
        }
    }

    /// (way, copies, bytes) of each way that something went.
    pub fn each(&self) -> impl Iterator<Item = (CopyWay, u64, u64)> {
        let all = CopyWay::ALL.into_iter().zip(self.calls).zip(self.bytes);
        all.map(|((way, calls), bytes)| (way, calls, bytes)).filter(|(_, calls, _)| *calls > 0)
    }

    /// The same, of the ways that a copy engine serves.
    pub fn on_engines(&self) -> impl Iterator<Item = (CopyWay, u64, u64)> {
        let known = !self.migrates;
        self.each().filter(move |(way, _, _)| known && !way.is_on_sms())
    }

    /// What runs on SMs, in all.
    pub fn on_sms(&self) -> Option<(CopyWay, u64)> {
        let mut on_sms = self.each().filter(|(way, _, _)| way.is_on_sms());
        on_sms.next().map(|(way, _, bytes)| (way, bytes))
    }

    /// Bytes that count against the budget of bandwidth.
    pub fn budgeted(&self) -> u64 {
        self.each()
            .filter(|(way, _, _)| way.is_budgeted())
            .fold(0, |sum, (_, _, bytes)| sum.saturating_add(bytes))
    }
}

impl What {
    /// What it comes to. `several`: the program has more than one GPU.
    pub fn amounts(self, several: bool) -> Amounts {
        let mut amounts = Amounts::default();
        match self {
            Self::Plain(way, bytes) => amounts.add(Some(way), bytes as u64),
            Self::OnDevice { bytes, .. } if !several => {
                amounts.add(Some(CopyWay::DeviceToDevice), bytes as u64);
            }
            Self::Between { to, from, bytes } | Self::OnDevice { to, from, bytes } => {
                amounts.add(way_between(end_of(from), end_of(to)), bytes as u64);
            }
            Self::Flat(copy) => flat(&mut amounts, copy),
            Self::Solid(copy) => solid(&mut amounts, copy),
            // The two structures differ in two words only: contexts here, reserved there.
            Self::SolidPeer(copy) => solid(&mut amounts, copy.cast()),
            Self::Batch { to, from, bytes, count } => {
                let ends = list(to, count).iter().zip(list(from, count)).zip(list(bytes, count));
                ends.for_each(|((to, from), bytes)| {
                    amounts.add(way_between(end_of(*from), end_of(*to)), *bytes as u64);
                });
            }
            Self::Solids { list: boxes, count } => {
                list(boxes.cast::<Solid>(), count).iter().for_each(|one| {
                    let end = |of: &Operand| if of.kind == 1 { end_of(of.address) } else { End::Device(0) };
                    let elements = [&one.from, &one.to].into_iter().find_map(Operand::element_bytes);
                    let bytes = product(one.extent).saturating_mul(elements.unwrap_or(1));
                    amounts.add(way_between(end(&one.from), end(&one.to)), bytes);
                });
            }
            Self::Fabric { list: copies, count } => {
                for copy in list(copies.cast::<FabricCopy>(), count).iter().filter(|copy| copy.bytes > 0) {
                    amounts.add(way_between(copy.from.end(), copy.to.end()), copy.bytes as u64);
                }
            }
            Self::Packed { list: pieces, count } => {
                for piece in list(pieces.cast::<Packed>(), count) {
                    amounts.add(way_between(end_of(piece.from), end_of(piece.to)), piece.bytes());
                }
            }
            Self::Prefetch { device, bytes } => migrate(&mut amounts, device, bytes),
            Self::Prefetches { bytes, count, places, first_of, kinds } => {
                let (places, first_of) = (list(places, kinds), list(first_of, kinds));
                for (at, bytes) in list(bytes, count).iter().enumerate() {
                    let kind = first_of.partition_point(|first| *first <= at).saturating_sub(1);
                    let device = places.get(kind).filter(|place| place.kind == CU_MEM_LOCATION_TYPE_DEVICE);
                    migrate(&mut amounts, device.map(|place| place.id), *bytes);
                }
            }
        }
        amounts
    }

    /// Managed memory that is to move to `location`.
    pub fn prefetch(location: CUmemLocation, bytes: usize) -> Self {
        let device = (location.kind == CU_MEM_LOCATION_TYPE_DEVICE).then_some(location.id);
        Self::Prefetch { device, bytes }
    }

    /// A memset of a graph.
    pub fn of_fill_node(node: &CUDA_MEMSET_NODE_PARAMS) -> Self {
        Self::fill(node.element_size as usize, node.width, node.height)
    }

    /// A memset of so many elements in each of so many rows.
    pub fn fill(element: usize, width: usize, height: usize) -> Self {
        Self::Plain(CopyWay::Fill, width.saturating_mul(element).saturating_mul(height))
    }
}

/// What the program passed as an array; the driver reads the same.
pub(super) fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller passes `count` elements, which stay until the call returns.
    unsafe { std::slice::from_raw_parts(start, count) }
}

fn product(extent: [usize; 3]) -> u64 {
    extent.into_iter().fold(1, |product: u64, n| product.saturating_mul(n as u64))
}

fn migrate(amounts: &mut Amounts, device: Option<c_int>, bytes: usize) {
    amounts.migrates = true;
    let to_device = device.is_some_and(|device| device >= 0);
    let way = if to_device { CopyWay::HostToDevice } else { CopyWay::DeviceToHost };
    amounts.add(Some(way), bytes as u64);
}

fn flat(amounts: &mut Amounts, copy: *const CUDA_MEMCPY2D) {
    // SAFETY: the caller passes a description or null; the driver reads the same fields.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return };
    let from = end(copy.src_memory_type, copy.src_device);
    let to = end(copy.dst_memory_type, copy.dst_device);
    amounts.add(way_between(from, to), product([copy.width_in_bytes, copy.height, 1]));
}

fn solid(amounts: &mut Amounts, copy: *const CUDA_MEMCPY3D) {
    // SAFETY: as above.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return };
    let from = end(copy.src_memory_type, copy.src_device);
    let to = end(copy.dst_memory_type, copy.dst_device);
    amounts.add(way_between(from, to), product([copy.width_in_bytes, copy.height, copy.depth]));
}

fn end(kind: CUmemorytype, address: CUdeviceptr) -> End {
    match kind {
        CU_MEMORYTYPE_HOST => End::Host,
        CU_MEMORYTYPE_UNIFIED => end_of(address),
        CU_MEMORYTYPE_DEVICE => end_of(address),
        _ => End::Device(0), // an array
    }
}

/// Host to host is no copy of the GPU's.
fn way_between(from: End, to: End) -> Option<CopyWay> {
    match (from, to) {
        (End::Host, End::Host) => None,
        (End::Host, End::Device(_)) => Some(CopyWay::HostToDevice),
        (End::Device(_), End::Host) => Some(CopyWay::DeviceToHost),
        (End::Device(from), End::Device(to)) if from != to => Some(CopyWay::Peer),
        (End::Device(_), End::Device(_)) => Some(CopyWay::DeviceToDevice),
    }
}

/// Where an address lies: one question to the driver, which answers from its own tables. What it does not know is the
/// host's.
fn end_of(address: CUdeviceptr) -> End {
    let (mut kind, mut device): (CUmemorytype, c_int) = (CU_MEMORYTYPE_HOST, 0);
    let mut which = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
    let mut places: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut device).cast()];
    let result = driver::pointer_attributes(2, which.as_mut_ptr(), places.as_mut_ptr(), address);
    if result == CUDA_SUCCESS && kind == CU_MEMORYTYPE_DEVICE { End::Device(device) } else { End::Host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_follow_from_the_ends() {
        use End::{Device, Host};
        let ways = [
            (Host, Host),
            (Host, Device(1)),
            (Device(1), Host),
            (Device(0), Device(1)),
            (Device(1), Device(1)),
        ];
        let wanted = [
            None,
            Some(CopyWay::HostToDevice),
            Some(CopyWay::DeviceToHost),
            Some(CopyWay::Peer),
            Some(CopyWay::DeviceToDevice),
        ];
        assert_eq!(ways.map(|(from, to)| way_between(from, to)), wanted);
    }

    #[test]
    fn amounts_are_told_apart_by_where_they_run_and_what_is_budgeted() {
        let mut amounts = Amounts::default();
        amounts.add(Some(CopyWay::HostToDevice), 100);
        amounts.add(Some(CopyWay::HostToDevice), 50);
        amounts.add(Some(CopyWay::Peer), 7);
        amounts.add(None, 1_000);
        assert_eq!((amounts.budgeted(), amounts.on_sms()), (150, None));
        let engines: Vec<_> = amounts.on_engines().collect();
        assert_eq!(engines, [(CopyWay::HostToDevice, 2, 150), (CopyWay::Peer, 1, 7)]);
        let fill = What::fill(4, 1_000, 3).amounts(false);
        assert_eq!((fill.on_sms(), fill.budgeted()), (Some((CopyWay::Fill, 12_000)), 0));
        let huge = What::fill(4, usize::MAX, 3).amounts(false);
        assert_eq!(huge.on_sms(), Some((CopyWay::Fill, u64::MAX)), "no product wraps");
    }

    #[test]
    fn boxes_of_a_list_are_counted_each() {
        let array = || Operand { kind: 2, address: 0, _rest: [0; 3] };
        let solid = |extent| Solid { from: array(), to: array(), extent, _order_and_flags: [3, 0] };
        let boxes = [solid([10, 2, 3]), solid([5, 1, 1])];
        let list = boxes.as_ptr().cast();
        let amounts: Vec<_> = What::Solids { list, count: 2 }.amounts(false).each().collect();
        assert_eq!(amounts, [(CopyWay::DeviceToDevice, 2, 65)]);
        let none = What::Solids { list: std::ptr::null(), count: 2 }.amounts(false);
        assert_eq!(none.each().count(), 0);
    }

    #[test]
    fn copies_over_a_fabric_are_counted_each_but_those_of_nothing() {
        let elsewhere = || FabricOperand { kind: 2, address: 7, _rest: 0 };
        let here = || FabricOperand { kind: 1, address: 0, _rest: 0 }; // unknown to the driver: the host's
        let copy = |from, to, bytes| FabricCopy { from, to, bytes, _flags: 0 };
        let copies =
            [copy(here(), elsewhere(), 10), copy(elsewhere(), here(), 5), copy(here(), elsewhere(), 0)];
        let list = copies.as_ptr().cast();
        let amounts: Vec<_> = What::Fabric { list, count: 3 }.amounts(false).each().collect();
        assert_eq!(amounts, [(CopyWay::HostToDevice, 1, 10), (CopyWay::DeviceToHost, 1, 5)]);
    }

    #[test]
    fn pieces_count_by_what_they_are_unpacked_to_or_else_by_what_is_read() {
        let piece = |from_bytes, to_bytes| Packed {
            from_bytes,
            to_bytes,
            _written: 0,
            from: 0,
            to: 0,
            _algorithm: 0,
            _padding: [0; 20],
        };
        assert_eq!([piece(10, 40), piece(10, 0)].map(|piece| piece.bytes()), [40, 10]);
    }

    #[test]
    fn migrations_are_counted_and_no_time_is_expected_of_them() {
        let moved = What::Prefetch { device: Some(0), bytes: 10 }.amounts(false);
        assert_eq!((moved.budgeted(), moved.on_engines().count()), (10, 0));
        let back: Vec<_> = What::Prefetch { device: Some(-1), bytes: 10 }.amounts(false).each().collect();
        assert_eq!(back, [(CopyWay::DeviceToHost, 1, 10)]);
        let places = [1, 2].map(|kind| CUmemLocation { kind, id: 0 });
        let (bytes, first_of) = ([1usize, 2, 4], [0usize, 2]);
        let (bytes, first_of, places) = (bytes.as_ptr(), first_of.as_ptr(), places.as_ptr());
        let many = What::Prefetches { bytes, count: 3, places, first_of, kinds: 2 }.amounts(false);
        let many: Vec<_> = many.each().collect();
        assert_eq!(many, [(CopyWay::HostToDevice, 2, 3), (CopyWay::DeviceToHost, 1, 4)]);
    }
}

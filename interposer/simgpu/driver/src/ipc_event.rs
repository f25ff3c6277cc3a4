//! Events that several processes record and wait for (`CU_EVENT_INTERPROCESS`): two words in a memfd, how many records were
//! put into streams and which of them the streams have come to. The handle says whose file it is; as with memory
//! (`ipc.rs`), the opener reaches it through `/proc/PID/fd`.
//!
//! What waits, waits for the last record as it was at the time of the call, whoever has put it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, put};
use crate::event::{self, FLAGS_OF_SHARED};
use crate::session::Obstacle;
use crate::stream::Stream;
use crate::work::Work;
use crate::{backing, checkpoint, context, effects, memory};

/// "WEIRIPE1": tells our handles from others.
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRIPE1");

/// Bytes of the two words.
const BYTES: usize = 16;

/// Between two looks of a thread that waits for a record.
const LOOK: Duration = Duration::from_micros(20);

/// What the processes share of an event.
pub struct Shared {
    address: u64,
    file: OwnedFd,
    /// It stands in the way of checkpoints.
    crosses: AtomicBool,
}

impl Shared {
    /// For an event that was never recorded.
    pub fn fresh() -> Answer<Self> {
        Self::over(backing::file(BYTES)?)
    }

    fn over(file: OwnedFd) -> Answer<Self> {
        let address = backing::lay_anywhere(BYTES, file.as_raw_fd())?;
        Ok(Self { address, file, crosses: AtomicBool::new(false) })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        // SAFETY: one of the two words of the mapping, which lives as long as this; touched by atomic operations alone.
        unsafe { &*memory::pointer(self.address).cast::<AtomicU64>().add(number) }
    }

    fn recorded(&self) -> &AtomicU64 {
        self.word(0)
    }

    fn reached(&self) -> &AtomicU64 {
        self.word(1)
    }

    /// Records in a stream.
    pub fn record(self: &Arc<Self>, stream: &'static Stream) -> Answer {
        // SeqCst here and below: what one process has recorded the others are to wait for at once.
        let number = self.recorded().fetch_add(1, Ordering::SeqCst) + 1;
        let put = effects::submit(stream, &Work::Reach(Arc::clone(self), number));
        if put.is_err() {
            self.reach(number); // nobody shall wait for it
        }
        put
    }

    /// Lets a stream wait for the last record.
    pub fn wait(self: &Arc<Self>, stream: &'static Stream) -> Answer {
        match self.missing() {
            Some(number) => effects::submit(stream, &Work::Await(Arc::clone(self), number)),
            None => Ok(()),
        }
    }

    /// The last record, if no stream has come to it.
    pub fn missing(&self) -> Option<u64> {
        let recorded = self.recorded().load(Ordering::SeqCst);
        (!self.has_reached(recorded)).then_some(recorded)
    }

    /// A stream has come to a record.
    pub fn reach(&self, number: u64) {
        self.reached().fetch_max(number, Ordering::SeqCst);
    }

    fn has_reached(&self, number: u64) -> bool {
        self.reached().load(Ordering::SeqCst) >= number
    }

    /// Looks until a stream has come to a record.
    pub fn sleep_until_reached(&self, number: u64, alive: impl Fn() -> bool) {
        while alive() && !self.has_reached(number) {
            std::thread::sleep(LOOK);
        }
    }

    /// Another process has it, too.
    fn crosses(&self) {
        // Relaxed: only the first one counts.
        if !self.crosses.swap(true, Ordering::Relaxed) {
            checkpoint::count_obstacle(Obstacle::Ipc, true);
        }
    }

    fn to_handle(&self) -> Answer<CUipcEventHandle> {
        let file = u64::try_from(self.file.as_raw_fd()).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
        let mut reserved = [0; 64];
        let words = [MAGIC, u64::from(std::process::id()), file];
        for (place, word) in reserved.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(CUipcEventHandle { reserved })
    }

    fn from_handle(handle: &CUipcEventHandle) -> Answer<Self> {
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(handle.reserved.chunks_exact(8)) {
            *word = bytes.try_into().map(u64::from_le_bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        }
        let [MAGIC, pid, file] = words else { return Err(CUDA_ERROR_INVALID_VALUE) };
        if pid == u64::from(std::process::id()) {
            return Err(CUDA_ERROR_INVALID_CONTEXT); // a handle is for other processes
        }
        let opened =
            std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{file}"));
        let file = opened.map_err(|_| CUDA_ERROR_MAP_FAILED)?;
        if file.metadata().is_ok_and(|about| about.len() == BYTES as u64) {
            Self::over(file.into())
        } else {
            Err(CUDA_ERROR_MAP_FAILED)
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        backing::give_back(self.address, BYTES);
        if self.crosses.load(Ordering::Relaxed) {
            checkpoint::count_obstacle(Obstacle::Ipc, false);
        }
    }
}

impl Driver {
    pub fn cuIpcGetEventHandle(out: *mut CUipcEventHandle, event: CUevent) -> Answer {
        let shared = event::of(event)?.shared().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, shared.to_handle()?)?;
        shared.crosses();
        Ok(())
    }

    pub fn cuIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) -> Answer {
        let shared = Shared::from_handle(&handle)?;
        let event = event::create(FLAGS_OF_SHARED, Some(context::current()?))?;
        shared.crosses();
        event.share(shared);
        put(out, event.handle.raw())
    }
}

//! Every exported symbol, made from the table of the driver API, and what each call passes on its way in.
//!
//! A call is counted, is refused before `cuInit`, in a forked child and in a broken context, may be struck by an injected
//! fault, and then reaches `Driver::symbol`. Functions that are implemented stand as `impl Driver` in the file of
//! their subject; Rust prefers those to the trait below, which answers `CUDA_ERROR_NOT_SUPPORTED` for every
//! symbol. So the table is the list of exports, and writing one method is all it takes to implement a row.
//!
//! The flavours for per-thread default streams (`_ptsz`, `_ptds`) reach the method of the plain symbol, with
//! a mark that says what the null stream means while the call lasts.

use std::cell::Cell;
use std::ffi::*;

use weir_abi::for_each_symbol;
use weir_abi::types::*;

use crate::edge::Answer;
use crate::{broken, counters, fault, session};

/// The simulated driver: one method per implemented function.
pub struct Driver;

/// What may be called before `cuInit`, and in a forked child.
const BEFORE_INIT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuModuleGetLoadingMode",
];

thread_local! {
    /// Whether the call in progress on this thread means its own default stream by the null stream.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the call in progress on this thread means the thread's own default stream by the null stream.
pub fn null_stream_is_per_thread() -> bool {
    PER_THREAD.get()
}

/// What is called about a process that is locked for a checkpoint, perhaps by that process itself.
const CHECKPOINTS: &str = "cuCheckpointProcess";

/// How a call comes in.
#[derive(Clone, Copy)]
enum Entry {
    /// At any time.
    Free,
    /// After `cuInit`.
    Initialized,
    /// After `cuInit`, and not while the process is locked for a checkpoint.
    Unlocked,
}

/// One call, from the caller's side to the handler's.
#[inline]
fn enter(index: usize, entry: Entry, call: impl FnOnce() -> Answer) -> CUresult {
    counters::count(index);
    let (admitted, _under_way) = match entry {
        Entry::Free => (Ok(()), None),
        Entry::Initialized => (session::check_initialized(), None),
        Entry::Unlocked => match session::Call::begin() {
            Ok(under_way) => (broken::check(index), Some(under_way)),
            Err(refusal) => (Err(refusal), None),
        },
    };
    match admitted.and_then(|()| fault::strike(index)).and_then(|is_last| call().map(|()| is_last)) {
        Ok(is_last) => {
            fault::succeeded(is_last);
            CUDA_SUCCESS
        }
        Err(code) => counters::refused(index, code),
    }
}

/// The same for a symbol whose null stream is the thread's own.
fn enter_per_thread(index: usize, entry: Entry, call: impl FnOnce() -> Answer) -> CUresult {
    let before = PER_THREAD.replace(true);
    let result = enter(index, entry, call);
    PER_THREAD.set(before);
    result
}

const fn entry_of(symbol: &str) -> Entry {
    let mut at = 0;
    while at < BEFORE_INIT.len() {
        if same(BEFORE_INIT[at].as_bytes(), symbol.as_bytes()) {
            return Entry::Free;
        }
        at += 1;
    }
    if begins(symbol.as_bytes(), CHECKPOINTS.as_bytes()) { Entry::Initialized } else { Entry::Unlocked }
}

const fn begins(whole: &[u8], head: &[u8]) -> bool {
    whole.len() >= head.len() && same(whole.split_at(head.len()).0, head)
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

macro_rules! enter_as {
    (Legacy) => {
        enter
    };
    (PerThread) => {
        enter_per_thread
    };
}

macro_rules! export {
    ($($name:ident $base:literal $since:literal $stream:ident $plain:ident $class:ident ($($argument:ident: $kind:ty),*);)*) => {
        /// The place of each symbol in the table.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "variants are named as the symbols they number")]
        #[derive(Clone, Copy)]
        #[repr(u16)]
        enum Index { $($name),* }

        /// The answer of every function that nobody has written.
        #[allow(unused_variables, dead_code, reason = "the written methods hide theirs")]
        trait NotSupported {
            $(fn $name($($argument: $kind),*) -> Answer { Err(CUDA_ERROR_NOT_SUPPORTED) })*
        }
        impl NotSupported for Driver {}

        $(
            /// See the CUDA driver API reference.
            ///
            /// # Safety
            /// What that reference asks of the pointers passed.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                enter_as!($stream)(Index::$name as usize, const { entry_of(stringify!($name)) },
                    || Driver::$plain($($argument),*))
            }
        )*

        /// The address of every exported symbol, in the table's order.
        static ADDRESSES: &[Address] = &[$(Address($name as *const ())),*];
    };
}

/// A function's address: plain data, whatever thread reads it.
struct Address(*const ());
// SAFETY: the address of a function in this library, never written through.
unsafe impl Sync for Address {}

/// The address of the symbol at this place of the table.
pub fn address(index: usize) -> *mut c_void {
    ADDRESSES[index].0.cast_mut().cast()
}

for_each_symbol!(export);

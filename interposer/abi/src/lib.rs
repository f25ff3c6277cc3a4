//! The CUDA driver API as a table: every symbol that the drivers of CUDA 12 and 13 export, with the name
//! and version under which `cuGetProcAddress` hands it out, what it means to a budget, and its signature in Rust types.
//!
//! The table (`src/table.rs`) is written and checked by `tests/headers`, which reads NVIDIA's own headers;
//! `WEIR_UPDATE=1` rewrites it. The headers themselves are never part of this repository.
//!
//! * [`SYMBOLS`] and [`index_of`]: all symbols, sorted by name; an index is stable within one build.
//! * [`Class`]: what a function means to a budget; a new CUDA's functions do not build before they have one.
//! * [`resolve`]: what `cuGetProcAddress(base, version, flags)` means.
//! * [`rows`] and [`fns`]: one constant and one function pointer type per symbol.
//! * [`for_each_symbol!`]: calls a macro with every row, for who must export or wrap them all.

mod class;
mod lookup;
mod table;
pub mod types;

pub use class::Class;
pub use lookup::{Unresolved, index_of, renamed, resolve};
pub use types::CUresult;

/// Which default stream a symbol means when it is given the null stream, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The legacy default stream; also every function that knows no stream.
    Legacy,
    /// The calling thread's own default stream: the symbols that end in `_ptsz` or `_ptds`.
    PerThread,
}

/// One exported symbol of the driver.
#[derive(Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The symbol as exported, `cuMemAlloc_v2`.
    pub name: &'static str,
    /// The name as `cuGetProcAddress` is asked, `cuMemAlloc`.
    pub base: &'static str,
    /// The first CUDA version with this symbol, 1000 x major + 10 x minor.
    pub since: u32,
    /// Which default stream it means.
    pub stream: Stream,
    /// The symbol of the same function for the legacy default stream; its own name if it is that one.
    pub plain: &'static str,
    /// What it means to a budget.
    pub class: Class,
}

macro_rules! declare_symbols {
    ($($name:ident $base:literal $since:literal $stream:ident $plain:ident $class:ident ($($argument:ident: $kind:ty),*);)*) => {
        /// Every symbol, ascending by name.
        pub static SYMBOLS: &[Symbol] = &[
            $(rows::$name,)*
        ];

        /// The row of every symbol, under the symbol's own name: for who needs a few and not the whole table.
        pub mod rows {
            #![allow(non_upper_case_globals, reason = "a row is named as the symbol it describes")]
            use super::{Class, Stream, Symbol};

            $(#[doc = concat!("`", stringify!($name), "`, ", stringify!($since), ".")]
              pub const $name: Symbol = Symbol {
                  name: stringify!($name), base: $base, since: $since, stream: Stream::$stream, plain: stringify!($plain),
                  class: Class::$class,
              };)*
        }

        /// The function pointer type of every symbol, under the symbol's own name.
        pub mod fns {
            #![allow(non_camel_case_types, reason = "a type here is named as the symbol it describes")]
            use crate::types::*;
            use std::ffi::*;

            $(#[doc = concat!("`", stringify!($name), "`, ", stringify!($since), ".")]
              pub type $name = unsafe extern "C" fn($($argument: $kind),*) -> CUresult;)*
        }
    };
}

for_each_symbol!(declare_symbols);

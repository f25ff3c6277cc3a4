//! The driver's names: all of our table.

use weir_abi::CUresult;
use weir_abi::types::CUDA_ERROR_NOT_FOUND;

macro_rules! names {
    ($($name:ident $base:literal $since:literal $stream:ident $plain:ident $class:ident ($($argument:ident: $kind:ty),*);)*) => {
        forwarders!(0, $($name)*);
    };
}

weir_abi::for_each_symbol!(names);

/// Stands for a function that the driver lacks, or that there is no driver for.
pub extern "C" fn absent() -> CUresult {
    CUDA_ERROR_NOT_FOUND
}

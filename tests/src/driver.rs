//! The driver as the small client programs use it: found by `dlopen` and `dlsym`, as by most programs.

use std::ffi::CString;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::CUresult;
pub use weir_abi::fns;
use weir_abi::types::CUDA_SUCCESS;

/// What the driver did not like.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// No driver, or one without a function.
    #[error(
        "cannot use libcuda.so.1: {0}\nhelp: name its directory in LD_LIBRARY_PATH; the simulated one is dist/simgpu"
    )]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call}: {result:?}")]
    Call {
        /// Which.
        call: &'static str,
        /// What it answered.
        result: CUresult,
    },
}

/// An answer as a `Result`.
///
/// # Errors
/// If it is not `CUDA_SUCCESS`.
pub fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(DriverError::Call { call, result }) }
}

/// Opens the driver.
///
/// # Errors
/// If there is none.
pub fn open() -> Result<Library, libloading::Error> {
    // SAFETY: the driver's constructors do nothing but load it.
    unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL) }
}

/// PTX with kernels of these names that do nothing: what they cost is the simulated GPU's configuration.
pub fn image<'a>(kernels: impl IntoIterator<Item = &'a str>) -> CString {
    let head = ".version 7.0\n.target sm_80\n.address_size 64\n".to_owned();
    let entry = |name| format!(".visible .entry {name}()\n{{\n\tret;\n}}\n");
    CString::new(head + &kernels.into_iter().map(entry).collect::<String>()).unwrap_or_default()
}

/// Calls a driver function out of the `library` of a client; looked up anew each time.
#[macro_export]
macro_rules! call {
    ($client:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let name = concat!(stringify!($function), "\0").as_bytes();
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let function = unsafe { $client.library.get::<$crate::driver::fns::$function>(name) };
        let function = function.unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: arguments as the driver's documentation wants them: handles that it gave out, places for answers.
        unsafe { function($($argument),*) }
    }};
}

/// A structure `Functions` of these functions, for programs that call them often; `Functions::find` looks them up.
#[macro_export]
macro_rules! driver_functions {
    ($($function:ident,)*) => {
        /// The functions, by their exported names.
        #[allow(non_snake_case, reason = "a field is named as the function it holds")]
        struct Functions { $($function: $crate::driver::fns::$function,)* }

        impl Functions {
            fn find(library: &libloading::os::unix::Library) -> Result<Self, libloading::Error> {
                // SAFETY: every symbol is given the type that weir-abi's table has for it.
                Ok(unsafe { Self { $($function: *library.get(concat!(stringify!($function), "\0").as_bytes())?,)* } })
            }
        }
    };
}

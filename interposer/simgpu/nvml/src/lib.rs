//! The simulated `libnvidia-ml.so.1`: what monitoring tools and node managers ask a GPU, answered from the
//! books of the simulated GPUs' broker. Sizes are bytes, unless NVML itself says otherwise.
//!
//! What the simulation has no notion of (fans, ECC, MIG) is answered with "not supported", as NVML does for a
//! card that lacks it; functions that are not exported at all are found missing by every client in use.

mod device;
mod edge;
mod fault;
mod health;
mod memory;
mod process;
mod session;
mod system;

/// Exports functions: each body answers `Ok` or NVML's error code.
macro_rules! nvml {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// What the NVML reference asks of the pointers passed.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "exported names are NVML's")]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> u32 {
            let answer = || -> $crate::edge::Answer { $body };
            $crate::fault::strike(stringify!($name)).and_then(|()| answer()).err().unwrap_or($crate::edge::SUCCESS)
        })*
    };
}
pub(crate) use nvml;

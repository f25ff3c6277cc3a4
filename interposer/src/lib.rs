//! `libweir.so`: the CUDA driver boundary.
//!
//! Preloaded into an unmodified program, it stands between the program and the driver for a short list of
//! calls ([`hooks`]), and nowhere else:
//!
//! ```text
//!   program -- dlsym, dlvsym, cuGetProcAddress, link --> resolve   which of our functions stands for which symbol
//!              cuLaunchKernel, cuMemAlloc, ..        --> hooks     one row and one handler each
//!                                                        thread    what a thread keeps at hand
//!                                                        link      the node manager: attach, pages, client state
//!                                                        driver    the real driver's calls that we need ourselves
//! ```
//!
//! With the feature `proxy` the same code is a `libcuda.so.1` that stands in the driver's place (`proxy`).
//!
//! The library is a guest. It never aborts, exits, panics outward, installs signal handlers, synchronizes a
//! stream or changes a success into an error, except for the two codes that are its own: out of memory over the
//! limit, and not permitted from `cuInit` in strict mode. It does nothing at all before the first CUDA call.

#![cfg_attr(
    any(test, feature = "proxy"),
    allow(
        dead_code,
        reason = "unit tests do not export the hooks, or they would shadow the C library; the proxy has no dlsym"
    )
)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("libweir.so is written for x86-64 Linux: its dlsym hook is a tail jump in assembly");

mod clock;
mod driver;
mod failpoint;
mod gang;
mod guard;
mod hint;
mod hooks;
mod joins;
mod link;
mod made;
mod nvml;
#[cfg(all(feature = "proxy", not(test)))]
mod proxy;
mod resolve;
mod say;
mod stall;
mod thread;
mod wait;

/// Tells the library in the driver's place that the calls come through our hooks already.
#[cfg(not(any(test, feature = "proxy")))]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "spelt as the driver spells its own names")]
pub static weirPreload: u8 = 1;

//! A client that gets and gives back device memory as it is told, one line on stdin at a time ([`weir_tests::obeying`]): for
//! stories that say what each call must cost.

mod checkpoints;
mod contexts;
mod device;
mod graphs;
mod multicast;
mod peers;
mod pools;
mod race;
mod shares;
mod tiles;

use std::process::ExitCode;
use std::ptr::null_mut;

use libloading::os::unix::Library;
use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::obeying::{Done, Obeys};
use weir_tests::{call, driver, obeying};

/// The driver, with the primary context of the first GPU.
struct Client {
    library: Library,
    stream: CUstream,
}

impl Obeys for Client {
    fn start() -> Result<(Self, CUresult), libloading::Error> {
        let mut client = Self { library: driver::open()?, stream: null_mut() };
        call!(client, cuInit(0));
        let result = client.begin();
        Ok((client, result))
    }

    fn obey(&mut self, command: &str, numbers: &[u64]) -> Option<Done> {
        let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
        device::obey(self, command, n)
            .or_else(|| pools::obey(self, command, n))
            .or_else(|| graphs::obey(self, command, n))
            .or_else(|| contexts::obey(self, command, n))
            .or_else(|| peers::obey(self, command, n))
            .or_else(|| shares::obey(self, command, n))
            .or_else(|| multicast::obey(self, command, n))
            .or_else(|| race::obey(self, command, n))
            .or_else(|| checkpoints::obey(self, command, n))
            .or_else(|| tiles::obey(self, command, n))
    }
}

impl Client {
    /// Makes the primary context current, with a stream.
    fn begin(&mut self) -> CUresult {
        let mut context = null_mut();
        let result = call!(self, cuDevicePrimaryCtxRetain(&raw mut context, 0));
        if result == CUDA_SUCCESS {
            call!(self, cuCtxSetCurrent(context));
            call!(self, cuStreamCreate(&raw mut self.stream, 0));
        }
        result
    }
}

fn main() -> ExitCode {
    obeying::run::<Client>("weir-memory")
}

//! Injected faults of the driver's calls: see `weir_simgpu_link::fault`.

use weir_abi::SYMBOLS;
use weir_abi::types::CUresult;
use weir_simgpu_link::config::Config;
use weir_simgpu_link::fault::{Faults, Struck};

use crate::edge::Answer;

static FAULTS: Faults = Faults::new();

/// Takes the configuration's faults over.
pub fn arm(config: &Config) {
    FAULTS.arm(config);
}

/// Lets a fault strike the call in progress, if one is due. Only NVML lies.
#[inline]
pub fn strike(index: usize) -> Answer {
    match FAULTS.strike(SYMBOLS[index].name) {
        Struck::Not | Struck::Lie(_) => Ok(()),
        Struck::Error(code) => Err(CUresult(code)),
    }
}

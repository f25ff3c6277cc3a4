//! Injected faults of the driver's calls: see `weir_simgpu_link::fault`.

use weir_abi::SYMBOLS;
use weir_abi::types::CUresult;
use weir_simgpu_link::config::Config;
use weir_simgpu_link::fault::{Faults, Struck, die};

use crate::broken;
use crate::edge::Answer;

static FAULTS: Faults = Faults::new();

/// Takes the configuration's faults over.
pub fn arm(config: &Config) {
    FAULTS.arm(config);
}

/// Lets a fault strike the call in progress, if one is due; says whether it is to be the process's last, if it succeeds. Only
/// NVML lies.
#[inline]
pub fn strike(index: usize) -> Answer<bool> {
    match FAULTS.strike(SYMBOLS[index].name) {
        Struck::Not | Struck::Lie(_) => Ok(false),
        Struck::Last => Ok(true),
        Struck::Error(code) => Err(CUresult(code)),
        Struck::Sticky(code) => Err(broken::strike(CUresult(code))),
    }
}

/// The call in progress has succeeded.
#[inline]
pub fn succeeded(is_last: bool) {
    if is_last {
        die();
    }
}

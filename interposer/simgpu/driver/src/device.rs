//! Devices: what they are called, what they can do, which of them this process sees.

use std::ffi::*;
use std::sync::{Mutex, MutexGuard};

use weir_abi::types::*;

use crate::api::Driver;
use crate::attributes as a;
use crate::edge::{Answer, get, put, put_optional, put_text};
use crate::primary::Primary;
use crate::{locked, session};

/// Largest number of devices that one process can see.
pub const MOST: usize = 64;

static PRIMARIES: [Mutex<Primary>; MOST] = [const { Mutex::new(Primary::new()) }; MOST];

/// Refuses a number that is no visible device.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn check(device: CUdevice) -> Answer<usize> {
    let count = session::current()?.devices.len();
    usize::try_from(device).ok().filter(|device| *device < count).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// The state of a device's primary context.
pub fn primary(device: CUdevice) -> Answer<MutexGuard<'static, Primary>> {
    Ok(locked(&PRIMARIES[check(device)?]))
}

/// Number of SMs that this process may use.
pub fn multiprocessors(device: CUdevice) -> Answer<u32> {
    Ok(session::current()?.devices[check(device)?].sms)
}

/// The same, and the device's.
pub fn all_multiprocessors(device: CUdevice) -> Answer<(u32, u32)> {
    let about = &session::current()?.devices[check(device)?];
    Ok((about.sms, about.all_sms))
}

fn attribute(attribute: CUdevice_attribute, device: CUdevice) -> Answer<c_int> {
    let about = &session::current()?.devices[check(device)?];
    let value = match attribute {
        a::MULTIPROCESSORS => about.sms,
        a::PCI_BUS => about.pci_bus,
        a::MPS_ENABLED => u32::from(session::current()?.mps.connected),
        _ if attribute == 0 || attribute > a::LAST => return Err(CUDA_ERROR_INVALID_VALUE),
        _ if a::STREAM_MEMORY.contains(&attribute) && !session::current()?.config().stream_waits => 0,
        _ => return Ok(a::FIXED.iter().find(|row| row.0 == attribute).map_or(0, |row| row.1)),
    };
    Ok(c_int::try_from(value).unwrap_or(c_int::MAX))
}

impl Driver {
    pub fn cuDeviceGet(out: *mut CUdevice, ordinal: c_int) -> Answer {
        check(ordinal)?;
        put(out, ordinal)
    }

    pub fn cuDeviceGetCount(out: *mut c_int) -> Answer {
        put(out, c_int::try_from(session::current()?.devices.len()).unwrap_or(c_int::MAX))
    }

    pub fn cuDeviceGetName(name: *mut c_char, capacity: c_int, device: CUdevice) -> Answer {
        let about = &session::current()?.devices[check(device)?];
        put_text(name, usize::try_from(capacity).map_err(|_| CUDA_ERROR_INVALID_VALUE)?, &about.name)
    }

    pub fn cuDeviceGetUuid(out: *mut CUuuid, device: CUdevice) -> Answer {
        put(out, CUuuid { bytes: session::current()?.devices[check(device)?].uuid })
    }

    pub fn cuDeviceGetUuid_v2(out: *mut CUuuid, device: CUdevice) -> Answer {
        Self::cuDeviceGetUuid(out, device)
    }

    pub fn cuDeviceGetAttribute(out: *mut c_int, which: CUdevice_attribute, device: CUdevice) -> Answer {
        put(out, attribute(which, device)?)
    }

    pub fn cuDeviceGetProperties(out: *mut CUdevprop, device: CUdevice) -> Answer {
        let of = |number| attribute(number, device);
        put(
            out,
            CUdevprop {
                max_threads_per_block: of(1)?,
                max_threads_dim: [of(2)?, of(3)?, of(4)?],
                max_grid_size: [of(5)?, of(6)?, of(7)?],
                shared_mem_per_block: of(8)?,
                total_constant_memory: of(9)?,
                simd_width: of(10)?,
                mem_pitch: of(11)?,
                regs_per_block: of(12)?,
                clock_rate: of(13)?,
                texture_align: of(14)?,
            },
        )
    }

    pub fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Answer {
        put(major, attribute(75, device)?)?;
        put(minor, attribute(76, device)?)
    }

    pub fn cuDeviceTotalMem_v2(out: *mut usize, device: CUdevice) -> Answer {
        put(
            out,
            usize::try_from(session::current()?.devices[check(device)?].memory_bytes).unwrap_or(usize::MAX),
        )
    }

    pub fn cuDeviceGetPCIBusId(out: *mut c_char, capacity: c_int, device: CUdevice) -> Answer {
        let about = &session::current()?.devices[check(device)?];
        let capacity = usize::try_from(capacity).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        put_text(out, capacity, &format!("0000:{:02X}:00.0", about.pci_bus))
    }

    pub fn cuDeviceGetByPCIBusId(out: *mut CUdevice, text: *const c_char) -> Answer {
        let text = crate::edge::text(text)?.to_string_lossy().to_lowercase();
        let bus = |about: &session::Device| format!("{:02x}:00", about.pci_bus);
        let found = session::current()?.devices.iter().position(|about| text.contains(&bus(about)));
        put(out, found.and_then(|at| CUdevice::try_from(at).ok()).ok_or(CUDA_ERROR_INVALID_DEVICE)?)
    }

    pub fn cuDeviceCanAccessPeer(out: *mut c_int, device: CUdevice, peer: CUdevice) -> Answer {
        put(out, c_int::from(check(device)? != check(peer)?))
    }

    pub fn cuDeviceGetP2PAttribute(
        out: *mut c_int,
        which: CUdevice_P2PAttribute,
        from: CUdevice,
        to: CUdevice,
    ) -> Answer {
        let apart = check(from)? != check(to)?;
        put(out, c_int::from(apart && which == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED))
    }

    pub fn cuDeviceGetExecAffinitySupport(out: *mut c_int, _kind: c_uint, device: CUdevice) -> Answer {
        check(device)?;
        put(out, 0)
    }

    pub fn cuDeviceGetTexture1DLinearMaxWidth(
        out: *mut usize,
        _format: CUarray_format,
        _channels: c_uint,
        device: CUdevice,
    ) -> Answer {
        put(out, usize::try_from(attribute(69, device)?).unwrap_or(0))
    }

    pub fn cuDeviceGetLuid(out: *mut c_char, node_mask: *mut c_uint, device: CUdevice) -> Answer {
        check(device)?;
        get(out)?;
        put_optional(node_mask, 0);
        Err(CUDA_ERROR_NOT_SUPPORTED) // as on every Linux driver
    }
}

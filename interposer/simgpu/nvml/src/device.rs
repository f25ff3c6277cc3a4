//! Devices: handles and what does not change.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use weir_simgpu_link::Device;

use crate::edge::{Answer, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, field, put, put_text, text};
use crate::{nvml, session};

/// A device's handle: a number in a pointer's clothes.
pub type Handle = *mut c_void;

/// Handles start here, so that null and small numbers are none.
const BASE: usize = 0x7eed_0000;
/// What devices are called: nobody shall take them for real ones.
const NAME: &str = "Weir simulated GPU (A100)";
/// PCI device and vendor of an A100 SXM4 40 GB. Source: the PCI ID repository, 10de:20b0.
const PCI_ID: u32 = 0x20b0_10de;
/// CUDA cores of one SM at compute capability 8.0. Source: the GA100 white paper.
const CORES_PER_SM: u32 = 64;
/// Memory bus, bits. Source: the A100 data sheet.
const BUS_BITS: u32 = 5_120;

/// The place of the device with this handle.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn place(handle: Handle) -> Answer<usize> {
    let place = handle.addr().checked_sub(BASE).ok_or(INVALID_ARGUMENT)?;
    session::device(place).map(|_| place)
}

fn about(handle: Handle) -> Answer<Device> {
    session::device(place(handle)?)
}

fn put_handle(out: *mut Handle, place: Option<usize>) -> Answer {
    put(out, ptr::without_provenance_mut(BASE + place.ok_or(NOT_FOUND)?))
}

fn by_index(out: *mut Handle, index: c_uint) -> Answer {
    session::device(index as usize)?;
    put_handle(out, Some(index as usize))
}

fn find(is_it: impl Fn(&Device) -> bool) -> Answer<Option<usize>> {
    Ok(session::current()?.welcome().devices.iter().position(is_it))
}

fn by_bus_id(out: *mut Handle, id: *const c_char) -> Answer {
    let id = text(id)?.to_string_lossy().to_lowercase();
    put_handle(out, find(|device| id.ends_with(&format!("{:02x}:00.0", device.pci_bus)))?)
}

/// `nvmlPciInfo_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [u8; 32],
}

/// `nvmlPciInfo_v2_t`, of the older calls.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OlderPciInfo {
    bus_id: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    reserved: [c_uint; 4],
}

fn put_older_pci(handle: Handle, out: *mut OlderPciInfo) -> Answer {
    let bus = c_uint::from(about(handle)?.pci_bus);
    let bus_id = field(&format!("0000:{bus:02X}:00.0"));
    put(
        out,
        OlderPciInfo {
            bus_id,
            domain: 0,
            bus,
            device: 0,
            pci_device_id: PCI_ID,
            pci_subsystem_id: 0,
            reserved: [0; 4],
        },
    )
}

fn count(out: *mut c_uint) -> Answer {
    put(out, c_uint::try_from(session::current()?.welcome().devices.len()).unwrap_or(c_uint::MAX))
}

nvml! {
    /// Number of devices.
    fn nvmlDeviceGetCount(out: *mut c_uint) { count(out) }
    /// Number of devices.
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) { count(out) }
    /// The device with this number.
    fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut Handle) { by_index(out, index) }
    /// The device with this number.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) { by_index(out, index) }
    /// The device with this UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) {
        let uuid = text(uuid)?.to_string_lossy();
        put_handle(out, find(|device| device.uuid_text() == uuid)?)
    }
    /// The device at this place of the PCI bus.
    fn nvmlDeviceGetHandleByPciBusId(id: *const c_char, out: *mut Handle) { by_bus_id(out, id) }
    /// The device at this place of the PCI bus.
    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, out: *mut Handle) { by_bus_id(out, id) }
    /// The device's number.
    fn nvmlDeviceGetIndex(device: Handle, out: *mut c_uint) {
        put(out, c_uint::try_from(place(device)?).unwrap_or(c_uint::MAX))
    }
    /// The number in `/dev/nvidiaN`, which a simulated device does not have but would.
    fn nvmlDeviceGetMinorNumber(device: Handle, out: *mut c_uint) {
        put(out, c_uint::try_from(place(device)?).unwrap_or(c_uint::MAX))
    }
    /// The device's name.
    fn nvmlDeviceGetName(device: Handle, out: *mut c_char, capacity: c_uint) {
        place(device)?;
        put_text(out, capacity, NAME)
    }
    /// The device's identity.
    fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, capacity: c_uint) {
        put_text(out, capacity, &about(device)?.uuid_text())
    }
    /// Brand: a data-centre card (`NVML_BRAND_NVIDIA`).
    fn nvmlDeviceGetBrand(device: Handle, out: *mut c_uint) { place(device)?; put(out, 14) }
    /// Architecture: Ampere (`NVML_DEVICE_ARCH_AMPERE`).
    fn nvmlDeviceGetArchitecture(device: Handle, out: *mut c_uint) { place(device)?; put(out, 7) }
    /// Compute capability.
    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: *mut c_int, minor: *mut c_int) {
        place(device)?;
        put(major, 8)?;
        put(minor, 0)
    }
    /// CUDA cores.
    fn nvmlDeviceGetNumGpuCores(device: Handle, out: *mut c_uint) { put(out, about(device)?.sms * CORES_PER_SM) }
    /// Width of the memory bus, bits.
    fn nvmlDeviceGetMemoryBusWidth(device: Handle, out: *mut c_uint) { place(device)?; put(out, BUS_BITS) }
    /// The device's place on the PCI bus.
    fn nvmlDeviceGetPciInfo_v3(device: Handle, out: *mut PciInfo) {
        let bus = c_uint::from(about(device)?.pci_bus);
        put(out, PciInfo {
            bus_id_legacy: field(&format!("0000:{bus:02X}:00.0")),
            domain: 0,
            bus,
            device: 0,
            pci_device_id: PCI_ID,
            pci_subsystem_id: 0,
            bus_id: field(&format!("00000000:{bus:02X}:00.0")),
        })
    }
    /// The same, in the older layout.
    fn nvmlDeviceGetPciInfo_v2(device: Handle, out: *mut OlderPciInfo) { put_older_pci(device, out) }
    /// The same, in the older layout.
    fn nvmlDeviceGetPciInfo(device: Handle, out: *mut OlderPciInfo) { put_older_pci(device, out) }
    /// MIG: the simulated device has none.
    fn nvmlDeviceGetMigMode(device: Handle, _current: *mut c_uint, _pending: *mut c_uint) {
        place(device)?;
        Err(NOT_SUPPORTED)
    }
    /// MIG: none.
    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, out: *mut c_uint) { place(device)?; put(out, 0) }
    /// MIG: none.
    fn nvmlDeviceIsMigDeviceHandle(device: Handle, out: *mut c_uint) { place(device)?; put(out, 0) }
    /// Virtualization: none.
    fn nvmlDeviceGetVirtualizationMode(device: Handle, out: *mut c_uint) { place(device)?; put(out, 0) }
    /// Compute mode: any number of processes.
    fn nvmlDeviceGetComputeMode(device: Handle, out: *mut c_uint) { place(device)?; put(out, 0) }
    /// Persistence mode: on, as the broker keeps the device.
    fn nvmlDeviceGetPersistenceMode(device: Handle, out: *mut c_uint) { place(device)?; put(out, 1) }
}

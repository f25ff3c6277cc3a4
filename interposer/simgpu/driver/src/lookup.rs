//! Finding functions: `cuInit`, versions, `cuGetProcAddress`, names of errors.

use std::ffi::*;
use std::ptr;
use std::sync::OnceLock;

use weir_abi::types::*;
use weir_abi::{Unresolved, index_of, resolve};

use crate::api::{self, Driver};
use crate::edge::{Answer, put, put_optional, text};
use crate::session;

/// The CUDA version of the simulated driver: known before `cuInit`, as clients ask for it first.
fn driver_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(crate::price::driver_version)
}

/// Looks a name up as the driver of the configured version would: what is younger than that does not exist.
fn find(
    name: &str,
    version: c_int,
    flags: c_ulonglong,
) -> Result<*mut c_void, CUdriverProcAddressQueryResult> {
    let own = driver_version();
    let asked = u32::try_from(version).unwrap_or(0).min(own);
    let symbol = resolve(name, asked, flags).map_err(|why| match why {
        Unresolved::Since(since) if since <= own => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        _ => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    })?;
    index_of(symbol.name).map(api::address).ok_or(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
}

impl Driver {
    pub fn cuInit(flags: c_uint) -> Answer {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        session::open()
    }

    pub fn cuDriverGetVersion(out: *mut c_int) -> Answer {
        put(out, driver_version().cast_signed())
    }

    pub fn cuGetProcAddress(
        name: *const c_char,
        out: *mut *mut c_void,
        version: c_int,
        flags: c_ulonglong,
    ) -> Answer {
        match find(&text(name)?.to_string_lossy(), version, flags) {
            Ok(address) => put(out, address),
            Err(_) => {
                put(out, ptr::null_mut())?;
                Err(CUDA_ERROR_NOT_FOUND)
            }
        }
    }

    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        out: *mut *mut c_void,
        version: c_int,
        flags: c_ulonglong,
        status: *mut CUdriverProcAddressQueryResult,
    ) -> Answer {
        let found = find(&text(name)?.to_string_lossy(), version, flags);
        put(out, found.unwrap_or(ptr::null_mut()))?;
        put_optional(status, found.err().unwrap_or(CU_GET_PROC_ADDRESS_SUCCESS));
        // Who has the status needs no error beside it.
        if found.is_err() && status.is_null() { Err(CUDA_ERROR_NOT_FOUND) } else { Ok(()) }
    }

    /// Export tables are undocumented, and one of them asks the driver to prove that it is NVIDIA's: this one
    /// is not, and says so to all.
    pub fn cuGetExportTable(out: *mut *const c_void, _id: *const CUuuid) -> Answer {
        put_optional(out, ptr::null());
        Err(CUDA_ERROR_NOT_FOUND)
    }

    pub fn cuGetErrorName(error: CUresult, out: *mut *const c_char) -> Answer {
        put_text(out, error.name())
    }

    pub fn cuGetErrorString(error: CUresult, out: *mut *const c_char) -> Answer {
        put_text(out, error.meaning())
    }

    pub fn cuProfilerStart() -> Answer {
        Ok(())
    }

    pub fn cuProfilerStop() -> Answer {
        Ok(())
    }
}

fn put_text(out: *mut *const c_char, known: Option<&'static CStr>) -> Answer {
    put(out, known.map_or(ptr::null(), CStr::as_ptr))?;
    known.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use weir_abi::{SYMBOLS, Stream};

    use super::*;

    /// Asks `cuGetProcAddress_v2`: the address and the status.
    fn ask(name: &str, version: c_int, flags: c_ulonglong) -> (*mut c_void, CUdriverProcAddressQueryResult) {
        let name = CString::new(name).expect("no NUL");
        let (mut address, mut status) = (ptr::null_mut(), 99);
        Driver::cuGetProcAddress_v2(name.as_ptr(), &raw mut address, version, flags, &raw mut status)
            .expect("with a status there is no error");
        (address, status)
    }

    #[test]
    fn every_symbol_that_the_driver_has_is_handed_out_under_its_base_name_and_version() {
        for (index, symbol) in
            SYMBOLS.iter().enumerate().filter(|(_, symbol)| symbol.since <= driver_version())
        {
            let flags = if symbol.stream == Stream::PerThread { 2 } else { 0 };
            let found = ask(symbol.base, symbol.since.cast_signed(), flags);
            assert_eq!(found, (api::address(index), CU_GET_PROC_ADDRESS_SUCCESS), "{}", symbol.name);
        }
    }

    #[test]
    fn a_younger_version_than_the_driver_gets_what_the_driver_has() {
        let own = index_of("cuCtxGetDevice").map(api::address);
        assert_eq!(Some(ask("cuCtxGetDevice", 13_000, 0).0), own);
    }

    #[test]
    fn too_old_a_version_and_no_such_name_are_told_apart() {
        assert_eq!(ask("cuMemCreate", 10_000, 0).1, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        let nothing = (ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        assert_eq!(ask("cuFabricCpyBatchAsync", 13_050, 0), nothing, "younger than the driver");
        assert_eq!(ask("", 12_000, 0), nothing);
    }
}

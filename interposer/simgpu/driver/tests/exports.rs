//! The library as a client meets it before `cuInit`: its symbols, and what it says of itself. No broker runs.

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use libloading::Library;
use weir_abi::types::*;
use weir_abi::{CUresult, SYMBOLS, fns};

/// The library that cargo has built beside this test.
fn driver() -> Library {
    let test = std::env::current_exe().expect("a test knows where it is");
    // SAFETY: our own library; loading it runs nothing.
    unsafe { Library::new(test.with_file_name("libcuda.so")) }.expect("the driver is built with its tests")
}

/// The address of an exported symbol.
fn exported(driver: &Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: the address is only compared, never called as this type.
    unsafe { driver.get::<unsafe extern "C" fn()>(symbol) }.ok().map(|found| *found as *mut c_void)
}

/// Asks `cuGetProcAddress_v2`: the address and the status.
fn ask(
    driver: &Library,
    name: &str,
    version: c_int,
    flags: u64,
) -> (*mut c_void, CUdriverProcAddressQueryResult) {
    let name = CString::new(name).expect("no NUL");
    let (mut address, mut status) = (ptr::null_mut(), 99);
    // SAFETY: the type is that of the table for this symbol, and every pointer is a live local's.
    let result = unsafe {
        let get = driver.get::<fns::cuGetProcAddress_v2>("cuGetProcAddress_v2").expect("exported");
        get(name.as_ptr(), &raw mut address, version, flags, &raw mut status)
    };
    assert_eq!(result, CUDA_SUCCESS, "with a status there is no error: {name:?}");
    (address, status)
}

#[test]
fn every_symbol_of_the_table_is_exported() {
    let driver = driver();
    let missing: Vec<&str> =
        SYMBOLS.iter().map(|symbol| symbol.name).filter(|name| exported(&driver, name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_lookup_hands_out_the_symbol_that_the_table_means_and_nothing_of_a_younger_driver() {
    let driver = driver();
    for symbol in SYMBOLS.iter().filter(|symbol| symbol.since <= 12_090) {
        let flags = if symbol.stream == weir_abi::Stream::PerThread { 2 } else { 0 };
        let (address, status) = ask(&driver, symbol.base, symbol.since.cast_signed(), flags);
        assert_eq!(status, CU_GET_PROC_ADDRESS_SUCCESS, "{}", symbol.name);
        assert_eq!(Some(address), exported(&driver, symbol.name), "{}", symbol.name);
    }
    assert_eq!(
        ask(&driver, "cuCtxGetDevice", 13_000, 0).0,
        exported(&driver, "cuCtxGetDevice").expect("exported")
    );
    assert_eq!(ask(&driver, "cuMemCreate", 10_000, 0).1, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_eq!(ask(&driver, "cuFabricCpyBatchAsync", 13_050, 0).1, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_eq!(ask(&driver, "", 12_000, 0), (ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
}

#[test]
fn before_cuinit_work_is_refused_and_questions_about_the_driver_are_answered() {
    let driver = driver();
    let (mut version, mut address, mut table) = (0, 0, ptr::null());
    // SAFETY: the types are those of the table for these symbols, and every pointer is a live local's.
    let results: [CUresult; 3] = unsafe {
        [
            driver.get::<fns::cuDriverGetVersion>("cuDriverGetVersion").expect("exported")(&raw mut version),
            driver.get::<fns::cuMemAlloc_v2>("cuMemAlloc_v2").expect("exported")(&raw mut address, 4096),
            driver.get::<fns::cuGetExportTable>("cuGetExportTable").expect("exported")(
                &raw mut table,
                ptr::null(),
            ),
        ]
    };
    assert_eq!(results, [CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_FOUND]);
    assert!(version >= 11_000 && address == 0 && table.is_null());
}

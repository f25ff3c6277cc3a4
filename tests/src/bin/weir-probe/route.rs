//! The ways to look a function up, each as a program would do it. All return the address found.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};
use weir_abi::fns;
use weir_abi::types::CUDA_SUCCESS;

use crate::symbols::Symbol;

/// The name by which everybody opens the driver.
pub const DRIVER: &CStr = c"libcuda.so.1";
/// The version that `cuGetProcAddress` is asked for.
const VERSION: c_int = 12_000;

/// Why a route gave no address.
pub type Missed = String;
/// What a route found.
pub type Found = Result<*const c_void, Missed>;

/// What the loader last complained of.
fn complaint() -> Missed {
    // SAFETY: dlerror returns null or a C string that lives until this thread's next call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "nothing found".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn non_null(pointer: *mut c_void) -> Result<*mut c_void, Missed> {
    if pointer.is_null() { Err(complaint()) } else { Ok(pointer) }
}

/// Opens a library; it stays open, as this process ends soon.
pub fn open(file: &CStr, flags: c_int) -> Result<*mut c_void, Missed> {
    // SAFETY: a C string; the libraries opened here are the driver and its like, whose constructors may run.
    non_null(unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | flags) })
}

/// `dlsym`, from this program.
pub fn dlsym(handle: *mut c_void, name: &CStr) -> Found {
    // SAFETY: a handle from the loader and a C string.
    non_null(unsafe { libc::dlsym(handle, name.as_ptr()) }).map(<*mut c_void>::cast_const)
}

/// `dlsym(handle)`.
pub fn by_handle(symbol: &Symbol) -> Found {
    dlsym(open(DRIVER, libc::RTLD_LOCAL)?, symbol.exported)
}

/// The same for a library that prefers its own symbols.
pub fn by_deep_binding(symbol: &Symbol) -> Found {
    dlsym(open(DRIVER, libc::RTLD_LOCAL | libc::RTLD_DEEPBIND)?, symbol.exported)
}

/// `dlsym(RTLD_DEFAULT)`, with the driver in the global scope.
pub fn by_default(symbol: &Symbol) -> Found {
    open(DRIVER, libc::RTLD_GLOBAL)?;
    dlsym(libc::RTLD_DEFAULT, symbol.exported)
}

/// A driver in a namespace of its own.
pub fn by_namespace(symbol: &Symbol) -> Found {
    // SAFETY: as for `open`.
    let handle = unsafe { libc::dlmopen(libc::LM_ID_NEWLM, DRIVER.as_ptr(), libc::RTLD_NOW) };
    dlsym(non_null(handle)?, symbol.exported)
}

/// The name of the route below: the one that may lead nowhere and yet not past us.
pub const BY_VERSION: &str = "dlvsym(handle)";

/// `dlvsym`. The driver's symbols have no versions, so a program that asks for one finds nothing, with us or without.
pub fn by_version(symbol: &Symbol) -> Found {
    let handle = open(DRIVER, libc::RTLD_LOCAL)?;
    // SAFETY: a handle from the loader and two C strings.
    let address = unsafe { libc::dlvsym(handle, symbol.exported.as_ptr(), c"Base".as_ptr()) };
    non_null(address).map(<*mut c_void>::cast_const)
}

/// `cuGetProcAddress` as CUDA 11.3 has it.
pub fn by_proc_address(symbol: &Symbol) -> Found {
    let address = dlsym(open(DRIVER, libc::RTLD_LOCAL)?, c"cuGetProcAddress")?;
    // SAFETY: the driver exports this name with this type.
    let ask = unsafe { std::mem::transmute::<*const c_void, fns::cuGetProcAddress>(address) };
    let mut found = std::ptr::null_mut();
    // SAFETY: a C string and a place for the answer.
    let result = unsafe { ask(symbol.base.as_ptr(), &raw mut found, VERSION, 0) };
    if result == CUDA_SUCCESS {
        non_null(found).map(<*mut c_void>::cast_const)
    } else {
        Err(format!("{result:?}"))
    }
}

/// `cuGetProcAddress_v2`, found by `dlsym`.
pub fn by_proc_address_v2(symbol: &Symbol) -> Found {
    let address = dlsym(open(DRIVER, libc::RTLD_LOCAL)?, c"cuGetProcAddress_v2")?;
    ask_v2(address, symbol.base)
}

/// `cuGetProcAddress_v2`, handed out by itself.
pub fn by_itself(symbol: &Symbol) -> Found {
    let first = dlsym(open(DRIVER, libc::RTLD_LOCAL)?, c"cuGetProcAddress_v2")?;
    ask_v2(ask_v2(first, c"cuGetProcAddress")?, symbol.base)
}

fn ask_v2(address: *const c_void, base: &CStr) -> Found {
    // SAFETY: the caller got the address under this function's name.
    let ask = unsafe { std::mem::transmute::<*const c_void, fns::cuGetProcAddress_v2>(address) };
    let (mut found, mut status) = (std::ptr::null_mut(), Default::default());
    // SAFETY: a C string and places for the answers.
    let result = unsafe { ask(base.as_ptr(), &raw mut found, VERSION, 0, &raw mut status) };
    if result == CUDA_SUCCESS {
        non_null(found).map(<*mut c_void>::cast_const)
    } else {
        Err(format!("{result:?}"))
    }
}

/// `RTLD_NEXT`, asked by another preloaded library.
pub fn by_next(symbol: &Symbol) -> Found {
    open(DRIVER, libc::RTLD_GLOBAL)?;
    let address = dlsym(libc::RTLD_DEFAULT, c"weir_probe_next")?;
    type Next = unsafe extern "C" fn(*const c_char) -> *mut c_void;
    // SAFETY: `probes/next.c` has this function with this type.
    let next = unsafe { std::mem::transmute::<*const c_void, Next>(address) };
    // SAFETY: a C string.
    non_null(unsafe { next(symbol.exported.as_ptr()) }).map(<*mut c_void>::cast_const)
}

/// A copy of the driver under another name, opened by its absolute path.
pub fn by_renamed_copy(symbol: &Symbol, driver: &Path) -> Found {
    let failed = |error: std::io::Error| format!("cannot copy the driver: {error}");
    let directory = tempfile::tempdir().map_err(failed)?;
    let copy = directory.path().join("renamed.so");
    std::fs::copy(driver, &copy).map_err(failed)?;
    dlsym(open(&c_path(&copy)?, libc::RTLD_LOCAL)?, symbol.exported)
}

/// The driver by its absolute path.
pub fn by_path(symbol: &Symbol, driver: &Path) -> Found {
    dlsym(open(&c_path(driver)?, libc::RTLD_LOCAL)?, symbol.exported)
}

/// No look-up at all: the driver's symbol table, read from its file.
pub fn by_symbol_table(symbol: &Symbol, _driver: &Path) -> Found {
    let (base, file) = loaded(open(DRIVER, libc::RTLD_LOCAL)?)?;
    let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let elf = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    let entry = elf.dynamic_symbols().find(|entry| entry.name_bytes() == Ok(symbol.exported.to_bytes()));
    let offset =
        usize::try_from(entry.ok_or("not in the table")?.address()).map_err(|error| error.to_string())?;
    Ok(std::ptr::with_exposed_provenance(base + offset))
}

/// Where a library was loaded, and from which file.
pub fn loaded(handle: *mut c_void) -> Result<(usize, PathBuf), Missed> {
    /// The beginning of the loader's `struct link_map`, which is public.
    #[repr(C)]
    struct LinkMap {
        base: usize,
        name: *const c_char,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: a handle from the loader; this request answers with a pointer to a link map.
    let result = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if result != 0 || map.is_null() {
        return Err(complaint());
    }
    // SAFETY: the loader's map lives as long as the library, its name is a C string.
    let (base, name) = unsafe { ((*map).base, CStr::from_ptr((*map).name)) };
    Ok((base, PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()))))
}

fn c_path(path: &Path) -> Result<CString, Missed> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())
}

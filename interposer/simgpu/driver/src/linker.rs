//! The linker: its inputs are joined, not linked. PTX texts become one text; of binaries the first stands.

use std::ffi::*;
use std::sync::Mutex;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, list, put, put_optional, text};
use crate::registry::Registry;
use crate::{context, locked};

static LINKERS: Registry<Mutex<Vec<u8>>> = Registry::new(7, CUDA_ERROR_INVALID_HANDLE);

/// Adds an input; a text's closing NUL gives way to a line's end, so that the next one can follow.
fn add(state: CUlinkState, input: &[u8]) -> Answer {
    let mut image = locked(LINKERS.get(state)?);
    image.extend_from_slice(input);
    if image.last() == Some(&0) {
        image.pop();
        image.push(b'\n');
    }
    Ok(())
}

impl Driver {
    pub fn cuLinkCreate_v2(
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
        out: *mut CUlinkState,
    ) -> Answer {
        context::current()?;
        put(out, LINKERS.insert(Mutex::default())?.0.raw())
    }

    pub fn cuLinkAddData_v2(
        state: CUlinkState,
        _kind: c_uint,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
    ) -> Answer {
        add(state, list(data.cast::<u8>().cast_const(), size)?)
    }

    pub fn cuLinkAddFile_v2(
        state: CUlinkState,
        _kind: c_uint,
        path: *const c_char,
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
    ) -> Answer {
        let path = text(path)?.to_string_lossy();
        add(state, &std::fs::read(path.as_ref()).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?)
    }

    pub fn cuLinkComplete(state: CUlinkState, out: *mut *mut c_void, size: *mut usize) -> Answer {
        let mut image = locked(LINKERS.get(state)?);
        image.push(0);
        put_optional(size, image.len());
        put(out, image.as_mut_ptr().cast())
    }

    pub fn cuLinkDestroy(state: CUlinkState) -> Answer {
        *locked(LINKERS.remove(state)?) = Vec::new();
        Ok(())
    }
}

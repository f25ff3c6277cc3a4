//! The C edge: reading and writing through the pointers that a caller passes.
//!
//! Every pointer here is an argument of an exported driver function. As with any driver, the caller vouches
//! that what is not null may be read or written as the API reference says; null is refused. That one promise
//! is what the SAFETY comments below lean on, and why the functions are not marked unsafe at each of their
//! several hundred uses.

use std::ffi::{CStr, c_char};

use weir_abi::types::*;

/// What a handler answers: nothing, or the code for the caller.
pub type Answer<T = ()> = Result<T, CUresult>;

/// Stores an answer where the caller wants it.
pub fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and an out-argument of the call in progress (see the module's text).
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Stores an answer if the caller wants it.
pub fn put_optional<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and an out-argument of the call in progress.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads a structure that the caller passes by pointer.
pub fn get<T: Copy>(place: *const T) -> Answer<T> {
    if place.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and an in-argument of the call in progress.
    Ok(unsafe { place.read_unaligned() })
}

/// The caller's array; an empty one may be null.
pub fn list<'a, T>(first: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller passes `count` elements for the length of the call.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Stores a list under the driver's convention for queries: without a place only the count is answered, with
/// one as many elements as fit.
pub fn put_list<T: Copy>(place: *mut T, count: *mut usize, values: &[T]) -> Answer {
    if place.is_null() {
        return put(count, values.len());
    }
    let fits = get(count)?.min(values.len());
    // SAFETY: the caller says that `place` holds `*count` elements; no more than that are written.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), place, fits) };
    put(count, fits)
}

/// A C string of the caller.
pub fn text<'a>(text: *const c_char) -> Answer<&'a CStr> {
    if text.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and a NUL-terminated in-argument of the call in progress.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Writes `value` into the caller's buffer of `capacity` bytes, cut where needed, always ended with a NUL.
pub fn put_text(place: *mut c_char, capacity: usize, value: &str) -> Answer {
    if place.is_null() || capacity == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let length = value.len().min(capacity - 1);
    // SAFETY: the caller says that the buffer has `capacity` bytes; `length` + 1 is no more.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), place.cast(), length);
        place.add(length).write(0);
    }
    Ok(())
}

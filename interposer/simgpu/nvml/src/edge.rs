//! The C edge: answers, and writing through the pointers that a caller passes.
//!
//! Every pointer here is an argument of an exported function. As with NVIDIA's library, the caller vouches
//! that what is not null may be read or written as the reference says; null is refused. The SAFETY comments
//! below lean on that one promise.

use std::ffi::{CStr, c_char};

/// Done.
pub const SUCCESS: u32 = 0;
/// Not initialized.
pub const UNINITIALIZED: u32 = 1;
/// An argument is out of its range.
pub const INVALID_ARGUMENT: u32 = 2;
/// The device does not have this.
pub const NOT_SUPPORTED: u32 = 3;
/// Nothing was found.
pub const NOT_FOUND: u32 = 6;
/// The caller's buffer is too small.
pub const INSUFFICIENT_SIZE: u32 = 7;
/// The driver is not loaded: here, there is no broker.
pub const DRIVER_NOT_LOADED: u32 = 9;
/// A structure of another version was passed.
pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
/// Something else.
pub const UNKNOWN: u32 = 999;

/// What a function answers: nothing, or an error code.
pub type Answer<T = ()> = Result<T, u32>;

/// Stores an answer where the caller wants it.
pub fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and an out-argument of the call in progress (see the module's text).
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Reads what the caller passes by pointer.
pub fn get<T: Copy>(place: *const T) -> Answer<T> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and an in-argument of the call in progress.
    Ok(unsafe { place.read_unaligned() })
}

/// A C string of the caller.
pub fn text<'a>(text: *const c_char) -> Answer<&'a CStr> {
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and a NUL-terminated in-argument of the call in progress.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Writes a string with its NUL; refuses a buffer that cannot hold it.
pub fn put_text(place: *mut c_char, capacity: u32, value: &str) -> Answer {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if value.len() >= capacity as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller says that the buffer has `capacity` bytes, and the string with its NUL is no longer.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), place.cast(), value.len());
        place.add(value.len()).write(0);
    }
    Ok(())
}

/// Writes a list into a buffer of `*count` elements and its length into `count`.
///
/// # Errors
/// [`INSUFFICIENT_SIZE`] when it does not fit; `count` then says how much is needed.
pub fn put_list<T: Copy>(place: *mut T, count: *mut u32, values: &[T]) -> Answer {
    let room = get(count.cast_const())? as usize;
    put(count, u32::try_from(values.len()).unwrap_or(u32::MAX))?;
    if values.len() > room {
        return Err(INSUFFICIENT_SIZE);
    }
    if !values.is_empty() {
        if place.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and the caller says that it holds `room` elements, which is enough.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), place, values.len()) };
    }
    Ok(())
}

/// A fixed-size field of a structure, filled with a string and NULs.
pub fn field<const N: usize>(value: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = value.len().min(N - 1);
    field[..length].copy_from_slice(&value.as_bytes()[..length]);
    field
}

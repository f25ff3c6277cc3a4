//! Primary contexts: one per device, shared by all who retain it.

use std::ffi::*;
use std::sync::atomic::Ordering;

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::Context;
use crate::device;
use crate::edge::{Answer, put, put_optional};

/// The primary context of one device, and how often it is retained.
pub struct Primary {
    context: Option<&'static Context>,
    references: usize,
    flags: c_uint,
}

impl Primary {
    /// Not created yet.
    pub const fn new() -> Self {
        Primary { context: None, references: 0, flags: 0 }
    }
}

/// Adds a user to a device's primary context, which the first one makes.
pub fn retain(device: CUdevice) -> Answer<&'static Context> {
    let mut primary = device::primary(device)?;
    let context = match primary.context {
        Some(context) => context,
        None => Context::create(device, primary.flags)?,
    };
    primary.context = Some(context);
    primary.references += 1;
    Ok(context)
}

impl Driver {
    pub fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, device: CUdevice) -> Answer {
        put(out, retain(device)?.handle.raw())
    }

    pub fn cuDevicePrimaryCtxRelease(device: CUdevice) -> Answer {
        let mut primary = device::primary(device)?;
        primary.references = primary.references.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        match primary.references {
            0 => primary.context.take().map_or(Ok(()), Context::destroy),
            _ => Ok(()),
        }
    }

    pub fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Answer {
        Self::cuDevicePrimaryCtxRelease(device)
    }

    pub fn cuDevicePrimaryCtxReset(device: CUdevice) -> Answer {
        let mut primary = device::primary(device)?;
        primary.references = 0;
        primary.context.take().map_or(Ok(()), Context::destroy)
    }

    pub fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> Answer {
        Self::cuDevicePrimaryCtxReset(device)
    }

    pub fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) -> Answer {
        let mut primary = device::primary(device)?;
        primary.flags = flags;
        if let Some(context) = primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Answer {
        Self::cuDevicePrimaryCtxSetFlags(device, flags)
    }

    pub fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Answer {
        let primary = device::primary(device)?;
        put_optional(flags, primary.flags);
        put_optional(active, c_int::from(primary.context.is_some()));
        Ok(())
    }
}

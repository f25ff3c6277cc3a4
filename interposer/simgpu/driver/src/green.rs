//! Green contexts: parts of a device's primary context with SMs of their own.
//!
//! A kernel in a green context holds at most its SMs; one that wants more takes longer in proportion (`price.rs`). The
//! parts of one split are disjoint sets on a GPU; here only their sizes count, as the model has no places for blocks.
//! Work queues as a resource (CUDA 13) are not there.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::{self, Context};
use crate::edge::{Answer, get, list, put, put_optional};
use crate::event;
use crate::registry::Registry;
use crate::stream::{self, Kind};
use crate::{capture, device};

/// Least SMs of a part on compute capability 8.x, and the steps above that (cuda.h of 12.9, `cuDevSmResourceSplitByCount`).
const LEAST: u32 = 4;
const STEP: u32 = 2;

static GREENS: Registry<Green> = Registry::new(17, CUDA_ERROR_INVALID_CONTEXT);
static DESCRIPTIONS: Registry<Description> = Registry::new(18, CUDA_ERROR_INVALID_VALUE);

/// A green context.
struct Green {
    context: &'static Context,
}

/// What a green context is to be made of; stays for the life of the process, as documented.
struct Description {
    device: CUdevice,
    sms: u32,
}

/// The handle of the green context that a context stands for.
pub fn of_context(context: &Context) -> Option<CUgreenCtx> {
    let mut greens = GREENS.with_handles();
    greens.find(|(_, green)| ptr::eq(green.context, context)).map(|(handle, _)| handle.raw())
}

fn resource(device: CUdevice, sms: u32) -> CUdevResource {
    let mut internal = [0; 23];
    internal[0] = device.cast_unsigned();
    let sm = CUdevSmResource {
        sm_count: sms,
        min_sm_partition_size: LEAST,
        sm_coscheduled_alignment: STEP,
        flags: 0,
    };
    let kind = if sms == 0 { CU_DEV_RESOURCE_TYPE_INVALID } else { CU_DEV_RESOURCE_TYPE_SM };
    CUdevResource { kind, internal, sm, reserved: [0; 6], next: ptr::null_mut() }
}

fn put_resource(out: *mut CUdevResource, kind: CUdevResourceType, device: CUdevice, sms: u32) -> Answer {
    if kind != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    put(out, resource(device, sms))
}

/// Reads what one of the calls here has written: its device and SMs.
fn read(resource: &CUdevResource) -> Answer<(CUdevice, u32)> {
    if resource.kind != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let device = resource.internal[0].cast_signed();
    if resource.sm.sm_count == 0 || resource.sm.sm_count > device::multiprocessors(device)? {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    Ok((device, resource.sm.sm_count))
}

/// Streams of a green context that capture: nothing may be recorded or waited for beside them.
fn forbid_beside_capture(context: &'static Context) -> Answer {
    stream::all_of(context).try_for_each(capture::forbid_in)
}

impl Driver {
    pub fn cuDeviceGetDevResource(
        device: CUdevice,
        out: *mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Answer {
        put_resource(out, kind, device, device::multiprocessors(device)?)
    }

    pub fn cuCtxGetDevResource(
        context: CUcontext,
        out: *mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Answer {
        let context = Context::of(context)?;
        put_resource(out, kind, context.device, context.sms)
    }

    pub fn cuGreenCtxGetDevResource(
        green: CUgreenCtx,
        out: *mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Answer {
        let context = GREENS.get(green)?.context;
        put_resource(out, kind, context.device, context.sms)
    }

    pub fn cuStreamGetDevResource(
        stream: CUstream,
        out: *mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Answer {
        let context = stream::of(stream)?.context;
        put_resource(out, kind, context.device, context.sms)
    }

    pub fn cuDevSmResourceSplitByCount(
        out: *mut CUdevResource,
        groups: *mut c_uint,
        input: *const CUdevResource,
        remaining: *mut CUdevResource,
        flags: c_uint,
        least: c_uint,
    ) -> Answer {
        let (device, all) = read(&get(input)?)?;
        let fine = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING != 0;
        let size = least.max(if fine { STEP } else { LEAST }).next_multiple_of(STEP);
        if least > all || size > all {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let most = all / size;
        if out.is_null() {
            return put(groups, most);
        }
        let made = get(groups.cast_const())?.min(most);
        for group in 0..made as usize {
            put(out.wrapping_add(group), resource(device, size))?;
        }
        put_optional(remaining, resource(device, all - made * size));
        put(groups, made)
    }

    pub fn cuDevResourceGenerateDesc(
        out: *mut *mut c_void,
        resources: *mut CUdevResource,
        count: c_uint,
    ) -> Answer {
        let resources = list(resources.cast_const(), count as usize)?;
        let parts = resources.iter().map(read).collect::<Answer<Vec<_>>>()?;
        let (device, _) = *parts.first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let sms: u32 = parts.iter().map(|(_, sms)| sms).sum();
        if parts.iter().any(|(other, _)| *other != device) || sms > device::multiprocessors(device)? {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        put(out, DESCRIPTIONS.insert(Description { device, sms })?.0.raw())
    }

    pub fn cuGreenCtxCreate(
        out: *mut CUgreenCtx,
        description: *mut c_void,
        device: CUdevice,
        flags: c_uint,
    ) -> Answer {
        let description = DESCRIPTIONS.get(description)?;
        if description.device != device || flags & !CU_GREEN_CTX_DEFAULT_STREAM != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let parent = crate::primary::retain(device)?;
        let context = Context::part(parent, description.sms)?;
        put(out, GREENS.insert(Green { context })?.0.raw())
    }

    pub fn cuGreenCtxDestroy(green: CUgreenCtx) -> Answer {
        let Green { context } = GREENS.remove(green)?;
        let device = context.device;
        context.detach()?;
        Self::cuDevicePrimaryCtxRelease(device)
    }

    pub fn cuCtxFromGreenCtx(out: *mut CUcontext, green: CUgreenCtx) -> Answer {
        put(out, GREENS.get(green)?.context.handle.raw())
    }

    pub fn cuGreenCtxStreamCreate(
        out: *mut CUstream,
        green: CUgreenCtx,
        flags: c_uint,
        priority: c_int,
    ) -> Answer {
        if flags != CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, stream::create(GREENS.get(green)?.context, Kind::NonBlocking, priority)?.handle.raw())
    }

    pub fn cuStreamGetGreenCtx(stream: CUstream, out: *mut CUgreenCtx) -> Answer {
        put(out, of_context(stream::of(stream)?.context).unwrap_or(ptr::null_mut()))
    }

    pub fn cuGreenCtxGetId(green: CUgreenCtx, out: *mut c_ulonglong) -> Answer {
        let context = if green.is_null() { context::current()? } else { GREENS.get(green)?.context };
        let handle = of_context(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        put(out, handle.addr() as u64)
    }

    pub fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> Answer {
        let (context, event) = (GREENS.get(green)?.context, event::of(event)?);
        forbid_beside_capture(context)?;
        // A stream that comes behind all others of the green context: its record is the end of them all.
        let meeting = context.legacy()?;
        for stream in stream::all_of(context).filter(|stream| !ptr::eq(*stream, meeting)) {
            let at = event::create(CU_EVENT_DISABLE_TIMING, None)?;
            at.record(stream)?;
            at.wait(meeting)?;
            event::destroy(at)?;
        }
        event.record(meeting)
    }

    pub fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) -> Answer {
        let (context, event) = (GREENS.get(green)?.context, event::of(event)?);
        forbid_beside_capture(context)?;
        stream::all_of(context).try_for_each(|stream| event.wait(stream))
    }
}

//! Contexts, and what makes them grow.

use std::ffi::CString;
use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "context" => {
            let (mut context, mut popped) = (null_mut(), null_mut());
            let result = call!(client, cuCtxCreate_v2(&raw mut context, 0, 0));
            if result == CUDA_SUCCESS {
                call!(client, cuCtxPopCurrent_v2(&raw mut popped));
            }
            (result, vec![number(context)])
        }
        "stream_on" => stream_on(client, n(0)),
        "context_destroy" => (call!(client, cuCtxDestroy_v2(handle(n(0)))), Vec::new()),
        "context_attach" => {
            let (mut context, mut popped) = (null_mut(), null_mut());
            call!(client, cuCtxPushCurrent_v2(handle(n(0))));
            let result = call!(client, cuCtxAttach(&raw mut context, 0));
            call!(client, cuCtxPopCurrent_v2(&raw mut popped));
            (result, vec![number(context)])
        }
        "context_detach" => (call!(client, cuCtxDetach(handle(n(0)))), Vec::new()),
        "current" => (call!(client, cuCtxSetCurrent(handle(n(0)))), Vec::new()),
        "which" => {
            let mut context = null_mut();
            (call!(client, cuCtxGetCurrent(&raw mut context)), vec![number(context)])
        }
        "primary_reset" => (call!(client, cuDevicePrimaryCtxReset_v2(0)), Vec::new()),
        "begin" => (client.begin(), Vec::new()),
        "primary_release" => (call!(client, cuDevicePrimaryCtxRelease_v2(0)), Vec::new()),
        "heap" => (call!(client, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, size(n(0)))), Vec::new()),
        "module" => {
            let mut module = null_mut();
            let variable = format!(".visible .global .align 8 .b8 big[{}];\n", n(0));
            let head = ".version 7.0\n.target sm_80\n.address_size 64\n";
            let image = CString::new(format!("{head}{variable}")).unwrap_or_default();
            (call!(client, cuModuleLoadData(&raw mut module, image.as_ptr().cast())), vec![number(module)])
        }
        "module_unload" => (call!(client, cuModuleUnload(handle(n(0)))), Vec::new()),
        _ => return None,
    })
}

/// From now on the client's stream is one of this device, and of a context that is not current.
fn stream_on(client: &mut Client, device: u64) -> Done {
    let (mut context, mut popped, device) = (null_mut(), null_mut(), i32::try_from(device).unwrap_or(-1));
    let made = call!(client, cuCtxCreate_v2(&raw mut context, 0, device));
    if made != CUDA_SUCCESS {
        return (made, Vec::new());
    }
    let mut stream = null_mut();
    let result = call!(client, cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING));
    call!(client, cuCtxPopCurrent_v2(&raw mut popped));
    client.stream = stream;
    (result, Vec::new())
}

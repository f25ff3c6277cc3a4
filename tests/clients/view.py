"""Prints how much memory the GPU seems to have: by the driver, and by NVML."""
import json
import sys

import pynvml
from cuda.bindings import driver


def call(answer):
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code.name)
    return values[0] if len(values) == 1 else values


call(driver.cuInit(0))
device = call(driver.cuDeviceGet(0))
call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
call(driver.cuMemAlloc(int(sys.argv[1]) << 20))
driver_free, driver_total = call(driver.cuMemGetInfo())

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
first = pynvml.nvmlDeviceGetMemoryInfo(handle)
second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
print(json.dumps({
    "total": [driver_total, call(driver.cuDeviceTotalMem(device)), first.total, second.total],
    "free": [driver_free, first.free, second.free],
    "used": [first.used, second.used],
}))

"""Prints how much memory the GPU seems to have: by the driver, and by NVML."""
import json
import sys

import pynvml
from cuda.bindings import driver

from opened import call, device

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

"""Launches a kernel through cuda-python's driver API and asks for memory in every plain way. Prints what its control
flow did."""
import json
import sys

from cuda.bindings import driver

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 50

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
    ret;
}
"""


def call(answer):
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code.name)
    return values[0] if len(values) == 1 else values


call(driver.cuInit(0))
device = call(driver.cuDeviceGet(0))
call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
module = call(driver.cuModuleLoadData(PTX))
function = call(driver.cuModuleGetFunction(module, b"nothing"))
stream = call(driver.cuStreamCreate(0))
figures = {"steps": 0, "total": call(driver.cuDeviceTotalMem(device)) > 0}
for _ in range(STEPS):
    plain = call(driver.cuMemAlloc(1 << 20))
    managed = call(driver.cuMemAllocManaged(1 << 20, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    pitched, _ = call(driver.cuMemAllocPitch(1000, 100, 4))
    ordered = call(driver.cuMemAllocAsync(1 << 20, stream))
    call(driver.cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, stream, 0, 0))
    call(driver.cuMemFreeAsync(ordered, stream))
    call(driver.cuStreamSynchronize(stream))
    for pointer in (plain, managed, pitched):
        call(driver.cuMemFree(pointer))
    figures["steps"] += 1
free, total = call(driver.cuMemGetInfo())
figures["free"] = 0 < free <= total
print(json.dumps(figures), flush=True)

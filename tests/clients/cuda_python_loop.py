"""Launches a kernel through cuda-python's driver API and asks for memory in every plain way. Prints what its control
flow did."""
import json
import sys

from cuda.bindings import driver

from opened import call, device, kernel

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 50
function = kernel()
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

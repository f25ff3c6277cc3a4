"""Closes every file descriptor that it does not know, as daemons do, before it uses CUDA and again after its first
launch; prints what its calls then answer."""
import json
import os

os.closerange(3, 4096)

from cuda.bindings import driver

PTX = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n"


def call(answer):
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code.name)
    return values[0] if len(values) == 1 else values


call(driver.cuInit(0))
device = call(driver.cuDeviceGet(0))
call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
function = call(driver.cuModuleGetFunction(call(driver.cuModuleLoadData(PTX)), b"nothing"))


def launch():
    code, = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    return code.name


answers = [launch()]
os.closerange(3, 4096)
answers += [launch() for _ in range(3)]
print(json.dumps(answers), flush=True)

"""Forks after CUDA was initialized: the child does something that is not CUDA and exits in its usual way, which runs
what was registered for the exit; the parent goes on launching. CUDA itself forbids its use in such a child."""
import json
import os
import sys

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
    call(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    call(driver.cuCtxSynchronize())


launch()
how = sys.argv[1]
child = os.fork()
if child == 0:
    if how == "exec":
        os.execvp("sh", ["sh", "-c", "exit 7"])
    if how == "exit":
        sys.exit(7)
    os._exit(7)
_, status = os.waitpid(child, 0)
launch()
print(json.dumps({"child": os.waitstatus_to_exitcode(status), "parent": "launched again"}), flush=True)

"""Forks after CUDA was initialized: the child does something that is not CUDA and exits in its usual way, which runs
what was registered for the exit; the parent goes on launching. CUDA itself forbids its use in such a child."""
import json
import os
import sys

from cuda.bindings import driver

from opened import call, kernel

function = kernel()


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

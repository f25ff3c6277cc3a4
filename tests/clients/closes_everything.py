"""Closes every file descriptor that it does not know, as daemons do, before it uses CUDA and again after its first
launch; prints what its calls then answer."""
import json
import os

os.closerange(3, 4096)

from cuda.bindings import driver

from opened import kernel

function = kernel()


def launch():
    code, = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    return code.name


answers = [launch()]
os.closerange(3, 4096)
answers += [launch() for _ in range(3)]
print(json.dumps(answers), flush=True)

"""Launches a kernel in a loop with numba-cuda. Prints what its control flow did."""
import json
import sys

import numpy
from numba import cuda

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 50
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # of one more array, on top


@cuda.jit
def add_one(array):
    at = cuda.grid(1)
    if at < array.size:
        array[at] += 1


figures = {"steps": 0, "bytes": 0}
try:
    extra = cuda.device_array(MIB << 20, dtype=numpy.uint8) if MIB else None
    for _ in range(STEPS):
        array = cuda.to_device(numpy.zeros(1 << 16, dtype=numpy.float32))
        add_one[256, 256](array)
        figures["bytes"] += array.copy_to_host().nbytes
        figures["steps"] += 1
    cuda.synchronize()
except Exception as error:  # its own error, whatever it is: the story looks at it
    figures["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(figures), flush=True)

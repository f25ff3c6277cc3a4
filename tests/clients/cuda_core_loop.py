"""Compiles a kernel with NVRTC and launches it through cuda-core, with stream-ordered memory. Prints what its
control flow did."""
import json
import sys

from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 50

SOURCE = 'extern "C" __global__ void nothing(float *values) { values[0] = 1; }'

device = Device()
device.set_current()
stream = device.create_stream()
kernel = Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("nothing")
figures = {"steps": 0, "bytes": 0}
for _ in range(STEPS):
    buffer = device.memory_resource.allocate(1 << 20, stream=stream)
    launch(stream, LaunchConfig(grid=32, block=128), kernel, buffer)
    figures["bytes"] += buffer.size
    buffer.close(stream)
    figures["steps"] += 1
stream.sync()
print(json.dumps(figures), flush=True)

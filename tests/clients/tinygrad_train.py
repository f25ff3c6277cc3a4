"""Trains a small network with tinygrad, whose JIT turns a step into a CUDA graph. Prints what its control flow did.

Run with DEV=CUDA TRAINING=1. Values are not looked at: a simulated GPU computes none.
"""
import json
import sys

from tinygrad import Device, Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import GlobalCounters
from tinygrad.nn.optim import SGD

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # of one more tensor, on top


class Net:
    def __init__(self):
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 10)

    def __call__(self, x):
        return self.second(self.first(x).relu())


net = Net()
optimizer = SGD(nn.state.get_parameters(net), lr=0.01)


@TinyJit
def step(x, y):
    optimizer.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y).backward()
    optimizer.step()
    return loss.realize()


figures = {"device": Device.DEFAULT, "steps": 0, "kernels": []}
try:
    extra = Tensor.zeros(MIB, 1 << 18).contiguous().realize() if MIB else None  # float32
    for _ in range(STEPS):
        GlobalCounters.reset()
        step(Tensor.zeros(16, 64).contiguous().realize(), Tensor.zeros(16, dtype=dtypes.int).contiguous().realize()).item()
        figures["kernels"].append(GlobalCounters.kernel_count)
        figures["steps"] += 1
except Exception as error:  # its own error, whatever it is: the story looks at it
    figures["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(figures), flush=True)

"""A small network, trained for as long as it is let: tinygrad straight from PyPI, its training step compiled by NVRTC
and replayed as a CUDA graph. Nothing in here knows of Weir.

stdin: "stop" ends the loop. stdout: one line when the steady state is reached, one at the end.
"""

import sys
import threading

from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import SGD

BATCH, WIDTH, CLASSES = 256, 512, 10
WARM_UP_STEPS = 8  # TinyJit runs, then captures, then replays


class Net:
    def __init__(self):
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, CLASSES)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def main() -> None:
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()

    net = Net()
    optimizer = SGD(nn.state.get_parameters(net), lr=0.01)
    x = Tensor.rand(BATCH, WIDTH).realize()
    y = Tensor.randint(BATCH, high=CLASSES).realize()

    @TinyJit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    steps = 0
    while not stop.is_set():
        step()  # asynchronous: the next step is queued while this one runs
        steps += 1
        if steps == WARM_UP_STEPS:
            print("ready", flush=True)
    print(f"steps {steps}", flush=True)


if __name__ == "__main__":
    main()

"""A small network, trained for as long as it is let: tinygrad straight from PyPI, its training step compiled by NVRTC
and replayed as a CUDA graph. Nothing in here knows of Weir.

usage: train_tinygrad.py        a line on stdin ends it; stdout: one line when the steady state is reached, one at the end
       train_tinygrad.py --log  looks at the loss after each step, and tells every quarter of a second how far it has come
"""

import sys
import threading
import time

from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import SGD

BATCH, WIDTH, CLASSES = 256, 512, 10
WARM_UP_STEPS = 8  # TinyJit runs, then captures, then replays
LOG_EVERY_S = 0.25


class Net:
    def __init__(self):
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, CLASSES)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class Log:
    def __init__(self):
        self.steps, self.at = 0, time.monotonic()

    def step(self, steps: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.at >= LOG_EVERY_S:
            rate = (steps - self.steps) / (now - self.at)
            print(f"step {steps}: loss {loss:.4f}, {rate:.2f} steps/s", flush=True)
            self.steps, self.at = steps, now


def main() -> None:
    stop, log = threading.Event(), Log() if "--log" in sys.argv else None
    if not log:
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
        loss = step()  # asynchronous: the next step is queued while this one runs
        steps += 1
        if log:
            log.step(steps, loss.item())
        if steps == WARM_UP_STEPS:
            print("ready", flush=True)
    print(f"steps {steps}", flush=True)


if __name__ == "__main__":
    main()

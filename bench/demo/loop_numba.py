"""A kernel in a loop, for as long as it is let: numba-cuda straight from PyPI. Nothing in here knows of Weir.

stdin: "grow SIZE" allocates so many bytes and reports what the framework says, "stop" ends the loop.
stdout: a line for each thing that happened.
"""

import queue
import sys
import threading

import numpy as np
from numba import cuda

BLOCKS, THREADS = 1024, 256
QUEUED = 4  # launches kept queued: an event is waited for only when this many newer ones are behind it


@cuda.jit
def saxpy(out, x, y, a):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def grow(size: int) -> None:
    try:
        cuda.device_array(size, dtype=np.uint8)
        print(f"allocated {size} bytes", flush=True)
    except Exception as error:  # the framework's own error, whatever its type
        print(f"out of memory: {type(error).__name__}: {error}".replace("\n", " "), flush=True)


def main() -> None:
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [orders.put(line) for line in sys.stdin], daemon=True).start()

    n = BLOCKS * THREADS
    x, y, out = (cuda.to_device(np.ones(n, dtype=np.float32)) for _ in range(3))
    events = [cuda.event(timing=False) for _ in range(QUEUED)]
    launches = 0
    while True:
        saxpy[BLOCKS, THREADS](out, x, y, 2.0)
        events[launches % QUEUED].record()
        launches += 1
        if launches >= QUEUED:
            events[launches % QUEUED].synchronize()
        if launches == 2 * QUEUED:
            print("ready", flush=True)
        if not orders.empty():
            order = orders.get().split()
            if order[:1] == ["stop"]:
                break
            if order[:1] == ["grow"]:
                grow(int(order[1]))
    print(f"launches {launches}", flush=True)


if __name__ == "__main__":
    main()

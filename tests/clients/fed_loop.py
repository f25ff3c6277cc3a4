"""A loop that its host feeds: data for a step arrive every so many milliseconds, as long as no more than four wait; a step is one
kernel for each sample of its batch. Prints a line for each step, with its latency.

usage: fed_loop.py BATCH PERIOD_MS
"""
import sys
import time

from numba import cuda

BATCH, PERIOD_S, WAITING = int(sys.argv[1]), float(sys.argv[2]) / 1e3, 4


@cuda.jit
def step(array):
    array[cuda.grid(1)] += 1


array = cuda.device_array(1 << 16)
arrives = time.monotonic()
while True:
    start = time.monotonic()
    arrives = max(arrives, start - WAITING * PERIOD_S)
    if arrives > start:
        time.sleep(arrives - start)
        start = arrives
    arrives += PERIOD_S
    for _ in range(BATCH):
        step[256, 256](array)
    cuda.synchronize()
    print(f"latency_ms: {(time.monotonic() - start) * 1e3:.3f}", flush=True)

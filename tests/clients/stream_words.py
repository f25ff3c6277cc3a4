"""Lets a stream write words of pinned memory between kernels, and looks at them by each way to see that the stream has come
so far. Prints what it saw, and how long the GPU took for it all."""
import ctypes
import json

from cuda.bindings import driver

from opened import call, kernel

ROUNDS = 200

function = kernel()
stream = call(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
pinned = call(driver.cuMemHostAlloc(8, 0))
word = ctypes.c_uint64.from_address(pinned)
word.value = 0
first, event, last = (call(driver.cuEventCreate(0)) for _ in range(3))


def launch():
    call(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))


def is_there():
    code, = driver.cuEventQuery(event)
    return code == driver.CUresult.CUDA_SUCCESS


stale = {"event_waited_for": 0, "event_asked": 0, "stream_waited_for": 0}
for value in range(1, ROUNDS, 3):
    for way, by in enumerate(stale):
        launch()
        call(driver.cuStreamWriteValue64(stream, pinned, value + way, 0))
        call(driver.cuEventRecord(event, stream))
        launch()
        if by == "event_waited_for":
            call(driver.cuEventSynchronize(event))
        elif by == "stream_waited_for":
            call(driver.cuStreamSynchronize(stream))
        else:
            while not is_there():
                pass
        stale[by] += word.value != value + way

call(driver.cuEventRecord(first, stream))
for value in range(ROUNDS):
    launch()
    call(driver.cuStreamWriteValue64(stream, pinned, value, 0))
call(driver.cuEventRecord(last, stream))
call(driver.cuStreamSynchronize(stream))
took_ms = call(driver.cuEventElapsedTime(first, last))

print(json.dumps({"stale": stale, "launches": ROUNDS, "took_ms": took_ms}), flush=True)

"""What vLLM does with memory when it starts, by the driver's calls alone: no model, no torch.

A server is given --gpu-memory-utilization, a part of *all* the memory that it sees, and finds by looking at free memory how
much of that its KV cache may have:

1. before the model: free and total memory. Less free than the wanted part: it refuses to start.
2. the model's weights; buffers of communication outside of torch's pool; kernels that are loaded.
3. a trial run with the largest batch: activations, taken and given back, of which only the peak is remembered.
4. KV cache = wanted part - weights - peak of activations - what else is less free than at 1. If more is free
   than at 1, somebody else has let go of memory meanwhile: it refuses to go on.
5. the KV cache, in whole blocks, tensor by tensor.

Each step waits for a line on stdin and answers with one of JSON, so that a story may put another server's steps between.
"""
import argparse
import json
import os
import sys

from cuda.bindings import driver

MIB = 1 << 20
SEGMENT = 2 * MIB  # torch's pool takes memory in such steps
LAYERS = 4
BLOCK = MIB // 2   # of one layer's KV cache

parser = argparse.ArgumentParser()
parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
parser.add_argument("--weights", type=int, default=512, help="MiB")
parser.add_argument("--activations", type=int, default=200, help="MiB")
parser.add_argument("--communication", type=int, default=96, help="MiB outside of torch's pool")
parser.add_argument("--device", type=int, default=0)
args = parser.parse_args()


class Refused(Exception):
    """vLLM would raise here."""


def call(answer):
    code, *values = answer
    if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise Refused("out of memory")
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code.name)
    return values[0] if len(values) == 1 else values


def pooled(size):
    return -(-size // SEGMENT) * SEGMENT


def allocate(sizes):
    return [call(driver.cuMemAlloc(pooled(size))) for size in sizes]


def physical(size):
    """Memory by handle, as NCCL takes its buffers."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = args.device
    return call(driver.cuMemCreate(pooled(size), prop, 0))


def steps():
    call(driver.cuInit(0))
    device = call(driver.cuDeviceGet(args.device))
    call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
    free_at_start, total = call(driver.cuMemGetInfo())
    wanted = int(total * args.gpu_memory_utilization)
    if free_at_start < wanted:
        raise Refused(f"free memory {free_at_start} of {total} is less than what is wanted, {wanted}")
    yield {"total": total, "free": free_at_start}

    weights = [args.weights * MIB // LAYERS] * LAYERS
    allocate(weights)
    physical(args.communication * MIB)
    yield {}

    activations = [args.activations * MIB // 2] * 2
    for pointer in allocate(activations):
        call(driver.cuMemFree(pointer))
    free_now, _ = call(driver.cuMemGetInfo())
    if free_now >= free_at_start:
        raise Refused(f"more is free than at the start: {free_now} against {free_at_start}")
    pool = sum(map(pooled, weights))
    other = (free_at_start - free_now) - pool
    kv_bytes = wanted - pool - sum(map(pooled, activations)) - other
    blocks = kv_bytes // (BLOCK * LAYERS)
    yield {"kv_bytes": kv_bytes, "blocks": blocks}

    if blocks <= 0:
        raise Refused("no memory for cache blocks")
    allocate([blocks * BLOCK] * LAYERS)
    allocate(activations)
    free, _ = call(driver.cuMemGetInfo())
    yield {"free": free}


print(os.getpid(), flush=True)
server, said = steps(), {}
for line in sys.stdin:
    if "refused" not in said:
        try:
            said = next(server)
        except Refused as why:
            said = {"refused": str(why)}
    print(json.dumps(said), flush=True)

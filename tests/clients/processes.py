"""Holds memory and prints, line by line, which processes NVML shows, what they hold, and how busy they are."""
import json
import os
import sys

import pynvml
from cuda.bindings import driver

from opened import call

call(driver.cuMemAlloc(int(sys.argv[1]) << 20))
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
lists = {
    "compute": pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    "compute_v2": pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    "graphics": pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    "mps": pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
}
def details(handle):
    version = pynvml.nvmlProcessDetailList_v1
    return pynvml.nvmlDeviceGetRunningProcessDetailList(handle, version, 0)


def of_the_card_alone():
    """What there is for the whole card alone, and is shown."""
    shown = {}
    for name in ("nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
        try:
            shown[name] = str(getattr(pynvml, name)(handle))
        except pynvml.NVMLError_NotSupported:
            pass
    return shown


print(os.getpid(), flush=True)
for _ in sys.stdin:
    seen = {name: {p.pid: p.usedGpuMemory for p in ask(handle)} for name, ask in lists.items()}
    seen["used"] = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    seen["percent"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    try:
        seen["sampled"] = {s.pid: s.smUtil for s in pynvml.nvmlDeviceGetProcessUtilization(handle, 0)}
    except pynvml.NVMLError_NotFound:
        seen["sampled"] = {}
    seen["detailed"] = {}
    for entry in details(handle):
        seen["detailed"][entry.pid] = entry.usedGpuMemory
    try:
        seen["sampled_info"] = {s.pid: s.smUtil for s in pynvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)}
    except pynvml.NVMLError_NotFound:
        seen["sampled_info"] = {}
    seen["accounted"] = {}
    for pid in pynvml.nvmlDeviceGetAccountingPids(handle):
        seen["accounted"][pid] = pynvml.nvmlDeviceGetAccountingStats(handle, pid).gpuUtilization
    _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    seen["samples"] = [sample.sampleValue.uiVal for sample in samples]
    seen["of_the_card_alone"] = of_the_card_alone()
    print(json.dumps(seen), flush=True)

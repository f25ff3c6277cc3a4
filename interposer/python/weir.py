"""What a program may tell Weir: one call, for those who want to. Without Weir it does nothing and says so.

    weir run --request 30% --memory 8GiB --class latency --slo 'p95 < 200ms' --latency-from hint request -- python server.py

    weir.latency("request", seconds)    in server.py, for each request that was served
"""

import ctypes
import os

_tell = None


def _find():
    # Preloaded it is in everybody's scope; in the driver's place it has the driver's name.
    for name, mode in ((None, ctypes.DEFAULT_MODE), ("libcuda.so.1", os.RTLD_NOW | os.RTLD_NOLOAD)):
        try:
            tell = ctypes.CDLL(name, mode=mode).weir_latency
        except (OSError, AttributeError):
            continue
        tell.argtypes, tell.restype = (ctypes.c_char_p, ctypes.c_uint64), ctypes.c_int
        return tell
    return None


def latency(metric, seconds):
    """Tells that a request took so many seconds, by the name behind `--latency-from hint`.

    True if it counts: False without Weir, or if the tenant promises nothing by this name.
    """
    global _tell
    _tell = _tell or _find()
    return _tell is not None and _tell(metric.encode(), max(0, round(seconds * 1e9))) == 0

"""Stands in for `player.py` where there is no PyTorch: obeys the same orders and answers in the same shape, and uses no GPU.

It shows that the runner works, and measures nothing.
"""

import json
import os
import sys
import time

# What it claims of each work, a second.
RATES = {"train": 57, "bigtrain": 34, "flood": 609, "bursty": 54, "loader": 49, "decode": 860, "replay": 3430}
# The work at which it dies, for tests of the runner.
DIES_AT = os.environ.get("STAND_IN_DIES_AT")


def answer(name, seconds):
    if name == DIES_AT:
        os._exit(7)
    time.sleep(seconds)
    if name == "server":
        return {"requests": int(seconds * 125), "p50_ms": 1.0, "p90_ms": 1.5, "p99_ms": 2.9, "max_ms": 3.5}
    if name == "memory":
        return {"free_bytes": 1 << 30, "total_bytes": 2 << 30, "granted_bytes": 1 << 30, "error": "out of memory"}
    if name == "charge":
        return {"per_s": RATES["flood"], "p50_ms": 1.0, "max_ms": 2.0, "gpu_ms": 1e3 * seconds}
    return {"per_s": RATES[name], "p50_ms": 1.0, "max_ms": 2.0}


def main():
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        name, *rest = line.split()
        said = answer(name, float(rest[0]) if rest else 0.0)
        print(json.dumps({"work": name, **said}), flush=True)


if __name__ == "__main__":
    main()

"""Tells latencies, one line of stdin each: METRIC SECONDS TIMES; prints what the last call answered."""
import sys

import weir

for line in sys.stdin:
    metric, seconds, times = line.split()
    for _ in range(int(times)):
        answer = weir.latency(metric, float(seconds))
    print(answer, flush=True)

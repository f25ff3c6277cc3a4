"""Programs whose parts wait for each other, in PyTorch's own words, for ten seconds under a hard limit: one thread captures a graph while
another asks for events; streams wait for each other's kernels; the host waits for kernels that sleep. Prints {"ready"}, then {"rounds"}:
whoever hangs says nothing more. With `--cpu` only its own logic is tried."""

import json
import sys
import threading
import time

import torch

CPU = "--cpu" in sys.argv
SECONDS = 0.2 if CPU else 10


def capture(x, stop, errors, rounds):
    """Captures and replays, again and again; in the mode in which other threads may go on."""
    try:
        while not stop.is_set():
            if CPU:
                x.add_(1)
            else:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    x.add_(1)
                graph.replay()
            rounds[0] += 1
    except Exception as error:
        errors.append(f"capture: {type(error).__name__}: {error}")


def wait(stop, errors, rounds):
    """Two streams that wait for each other, kernels that sleep, and a host that looks for an event."""
    try:
        if CPU:
            while not stop.is_set():
                rounds[1] += 1
            return
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        while not stop.is_set():
            with torch.cuda.stream(one):
                torch.cuda._sleep(2_000_000)
                first = one.record_event()
            two.wait_event(first)
            with torch.cuda.stream(two):
                torch.cuda._sleep(200_000)
                second = two.record_event()
            one.wait_event(second)
            while not second.query():
                time.sleep(0)
            one.synchronize()
            rounds[1] += 1
    except Exception as error:
        errors.append(f"wait: {type(error).__name__}: {error}")


def main():
    x = torch.zeros(1024, device="cpu" if CPU else "cuda")
    if not CPU:
        x.add_(1)
        torch.cuda.synchronize()
    print(json.dumps({"ready": True}), flush=True)
    stop, errors, rounds = threading.Event(), [], [0, 0]
    threads = [
        threading.Thread(target=capture, args=(x, stop, errors, rounds)),
        threading.Thread(target=wait, args=(stop, errors, rounds)),
    ]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError("; ".join(errors))
    print(json.dumps({"rounds": min(rounds), "captures": rounds[0], "waits": rounds[1]}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        raise

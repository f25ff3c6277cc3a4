"""A server that answers HTTP requests in batches, each with work on the GPU: numba-cuda straight from PyPI. Nothing in here knows of
Weir.

usage: serve_numba.py PORT --batch N      serves until it is ended: GET /healthz, and anything else is a request
       serve_numba.py --steady --batch N  full batches without end, a line for each: what a profiler measures
"""

import argparse
import http.server
import queue
import threading
import time

import numpy as np
from numba import cuda

BLOCKS, THREADS = 1024, 256
STEPS = 12  # of a batch, however many requests are in it
HOST_S = 0.07  # of a batch: what is looked up elsewhere while the GPU has nothing to do
FILL_S = 0.01  # longest that a batch waits for more requests


@cuda.jit
def prefill(out, x):  # once for each request
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + 1.0


@cuda.jit
def decode(out, x):  # once for each step of a batch
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2.0 * x[i]


class Model:
    def __init__(self):
        n = BLOCKS * THREADS
        self.x, self.out = (cuda.to_device(np.ones(n, dtype=np.float32)) for _ in range(2))
        self.answer(1)  # compiled before anybody asks

    def answer(self, requests: int) -> None:
        for _ in range(requests):
            prefill[BLOCKS, THREADS](self.out, self.x)
        for _ in range(STEPS):
            decode[BLOCKS, THREADS](self.out, self.x)
        cuda.synchronize()
        time.sleep(HOST_S)


waiting: queue.Queue[threading.Event] = queue.Queue()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/healthz":
            answered = threading.Event()
            waiting.put(answered)
            answered.wait()
        body = b"done\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def next_batch(most: int) -> list[threading.Event]:
    batch = [waiting.get()]
    until = time.monotonic() + FILL_S
    while len(batch) < most and (left := until - time.monotonic()) > 0:
        try:
            batch.append(waiting.get(timeout=left))
        except queue.Empty:
            break
    return batch


def serve(model: Model, port: int, most: int) -> None:
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        batch = next_batch(most)
        model.answer(len(batch))
        for answered in batch:
            answered.set()


def steady(model: Model, batch: int) -> None:
    while True:
        start = time.monotonic()
        model.answer(batch)
        print(f"latency_ms: {(time.monotonic() - start) * 1e3:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int, nargs="?")
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    if args.steady == (args.port is not None):
        parser.error("give a port, or --steady")
    steady(Model(), args.batch) if args.steady else serve(Model(), args.port, args.batch)


if __name__ == "__main__":
    main()

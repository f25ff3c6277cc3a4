"""Answers HTTP requests with work on the GPU: numba-cuda straight from PyPI. Nothing in here knows of Weir. Argument: the port."""

import http.server
import sys
import threading

import numpy as np
from numba import cuda

BLOCKS, THREADS = 1024, 256
LAUNCHES = 50  # of each request


@cuda.jit
def saxpy(out, x, y, a):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


n = BLOCKS * THREADS
x, y, out = (cuda.to_device(np.ones(n, dtype=np.float32)) for _ in range(3))
one_at_a_time = threading.Lock()


def work(launches: int) -> None:
    with one_at_a_time:
        for _ in range(launches):
            saxpy[BLOCKS, THREADS](out, x, y, 2.0)
        cuda.synchronize()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/healthz":
            work(LAUNCHES)
        body = f"{sys.argv[1]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


work(1)  # compiled before anybody asks
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

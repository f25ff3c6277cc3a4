"""Answers HTTP requests with work on the GPU: numba-cuda straight from PyPI. Nothing in here knows of Weir. Argument: the port.

`/stream` is answered in two parts, the second one once somebody has asked for `/go`; a body that is posted comes back.
"""

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
gone_on = threading.Event()


def work(launches: int) -> None:
    with one_at_a_time:
        for _ in range(launches):
            saxpy[BLOCKS, THREADS](out, x, y, 2.0)
        cuda.synchronize()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/stream":
            self.stream()
            return
        if self.path == "/go":
            gone_on.set()
        if self.path != "/healthz":
            work(LAUNCHES)
        self.answer(f"{sys.argv[1]}\n".encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        work(LAUNCHES)
        self.answer(body)

    def stream(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in ("first", "last"):
            work(LAUNCHES)
            self.wfile.write(f"{len(part):x}\r\n{part}\r\n".encode())
            self.wfile.flush()
            gone_on.wait()
        self.wfile.write(b"0\r\n\r\n")

    def answer(self, body):
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

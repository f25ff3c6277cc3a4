"""A loop that works on its host and on the GPU in turn: a step is so many milliseconds of the one and a kernel of the other. Prints a
line for each step. With a socket that listens, by its number, it prints nothing: a page of Prometheus text there counts its steps; with a
time for it that page is answered only so much later, and lines are printed all the same.

usage: host_and_gpu.py HOST_MS [SOCKET [LATER_S]]
"""
import http.server
import socket
import sys
import threading
import time

HOST_S = float(sys.argv[1]) / 1e3
SOCKET = int(sys.argv[2]) if len(sys.argv) > 2 else None
LATER_S = float(sys.argv[3]) if len(sys.argv) > 3 else None
steps = 0


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        counters = ["# TYPE steps_total counter", f'steps_total{{rank="0"}} {steps}', "epochs_total 3"]
        lines = counters + ["# TYPE samples_per_second gauge", "samples_per_second 250"]
        page = "".join(line + "\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


if SOCKET is not None:  # before the import below, which takes its time: nobody waits for a page
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page, bind_and_activate=False)
    server.socket = socket.socket(fileno=SOCKET)
    serving = threading.Timer(LATER_S or 0, server.serve_forever)
    serving.daemon = True
    serving.start()

from numba import cuda  # noqa: E402


@cuda.jit
def step(array):
    array[cuda.grid(1)] += 1


array = cuda.device_array(1 << 16)
while True:
    time.sleep(HOST_S)
    step[256, 256](array)
    cuda.synchronize()
    steps += 1
    if SOCKET is None or LATER_S is not None:
        print(steps, flush=True)

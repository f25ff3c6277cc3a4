"""PyTorch programs as users write them: reads orders from stdin, one a line, and answers each with one line of JSON.

    WORK SECONDS      works so long; see `WORKS`, and `server`
    charge SECONDS    the work `flood`, with the GPU's own time of it beside it
    memory            allocates until it is refused

The programs differ in who keeps whom waiting: `flood` and `bigtrain` keep the GPU busy, `train` and `decode` are bound by their host,
`replay` by the GPU in small pieces; `bursty` and `loader` pause, with and without a call to the driver; `server` answers requests.
"""

import json
import os
import random
import sys
import time
import warnings

warnings.filterwarnings("ignore")  # PyTorch's hints on how to go faster would drown the answers

import torch
from torch import nn
from torch.nn import functional

try:
    from weir import latency as tell
except ImportError:  # without Weir nobody listens

    def tell(metric, seconds):
        return False


DEVICE = "cuda"
WARM_UP = 12  # units of each work before the first order: kernels are loaded, the allocator has its memory
FLOOD_AHEAD = 4  # products under way at once
PRODUCT_WIDTH = 8192  # of a square matrix: 1.6 ms a product on an H200
BURST = 6  # products of a step of `bursty` and `loader`: 10 ms on an H200
BURSTY_PAUSE_S = 0.010
LOADER_PAUSE_S = 0.020
REQUEST_EVERY_S = 0.008  # mean, at random moments (Poisson)
REQUEST_REPLAYS = 4  # graph replays of a request: 1.1 ms on an H200
SPIN_S = 0.0002  # a request is slept for until so long before it is due
PIECE_BYTES = 256 << 20  # of the order `memory`


class Net(nn.Module):
    """A small transformer for training."""

    def __init__(self, width=1024, layers=6, words=8192):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.body(self.words(x)))


class Training:
    """Steps of one batch; every tenth waits for its loss, as a progress bar does."""

    def __init__(self, net, optimizer, batch):
        self.net, self.optimizer = net, optimizer
        self.data = torch.randint(0, 8192, (batch, 256), device=DEVICE)

    def __call__(self, i):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = functional.cross_entropy(self.net(self.data).flatten(0, 1), self.data.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if i % 10 == 9:
            loss.item()


class Decode:
    """A token at a time through 24 small layers: 96 kernels of a few microseconds, eager and as a graph."""

    def __init__(self, width=1024, layers=24):
        layer = lambda: nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.net = nn.Sequential(*[layer() for _ in range(layers)]).to(DEVICE).half().eval()
        self.token = torch.randn(1, width, device=DEVICE, dtype=torch.float16)
        self.graph = self.captured()

    @torch.no_grad()
    def step(self):
        self.net(self.token)

    def captured(self):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph

    def eager(self, i):
        self.step()
        if i % 20 == 19:
            torch.cuda.synchronize()

    def replay(self, i):
        self.graph.replay()
        if i % 4 == 3:
            torch.cuda.synchronize()


class Products:
    """Large matrix products: back to back, or in bursts with pauses."""

    def __init__(self):
        square = lambda: torch.randn(PRODUCT_WIDTH, PRODUCT_WIDTH, device=DEVICE, dtype=torch.bfloat16)
        self.a, self.b = square(), square()
        self.ring = [torch.cuda.Event() for _ in range(FLOOD_AHEAD)]

    def one(self):
        torch.mm(self.a, self.b)

    def flood(self, i):
        done = self.ring[i % FLOOD_AHEAD]
        done.synchronize()
        self.one()
        done.record()

    def bursty(self, i):
        for _ in range(BURST):
            self.one()
        torch.cuda.synchronize()
        time.sleep(BURSTY_PAUSE_S)

    def loader(self, i):
        """Its pause has no call in it: work is launched, then the host is busy elsewhere."""
        for _ in range(BURST):
            self.one()
        time.sleep(LOADER_PAUSE_S)


def quantile(ordered, p):
    return round(1e3 * ordered[min(len(ordered) - 1, int(p * len(ordered)))], 3)


def count(unit, seconds):
    """Units done a second; the last has ended. The times are of the host's calls."""
    spans, start = [], time.perf_counter()
    last = start
    while last - start < seconds:
        unit(len(spans))
        now = time.perf_counter()
        spans.append(now - last)
        last = now
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    spans.sort()
    return {"per_s": round(len(spans) / took, 2), "p50_ms": quantile(spans, 0.5), "max_ms": quantile(spans, 1.0)}


def serve(replay, seconds):
    """Requests at random moments; a request's latency counts from when it was due."""
    start = time.perf_counter()
    due, late = start, []
    while True:
        due += random.expovariate(1 / REQUEST_EVERY_S)
        if due - start > seconds:
            break
        while time.perf_counter() < due - SPIN_S:
            time.sleep(0.0001)
        for _ in range(REQUEST_REPLAYS):
            replay()
        torch.cuda.synchronize()
        late.append(time.perf_counter() - due)
        tell("request", late[-1])
    late.sort()
    spread = {f"p{p}_ms": quantile(late, p / 100) for p in (50, 90, 99)}
    return {"requests": len(late), **spread, "max_ms": quantile(late, 1.0)}


def charge(products, seconds):
    """The flood, and what the GPU itself says of its time: two events around work that never runs out."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    answer = count(products.flood, seconds)
    last.record()
    torch.cuda.synchronize()
    return {**answer, "gpu_ms": round(first.elapsed_time(last), 3)}


def memory():
    """How much there is by the driver's word, and how much is granted."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    pieces, error = [], None
    while len(pieces) * PIECE_BYTES <= total:
        try:
            pieces.append(torch.empty(PIECE_BYTES, dtype=torch.uint8, device=DEVICE))
        except torch.OutOfMemoryError as refusal:
            error = str(refusal).splitlines()[0][:200]
            break
    granted = len(pieces) * PIECE_BYTES
    del pieces
    torch.cuda.empty_cache()
    return {"free_bytes": free, "total_bytes": total, "granted_bytes": granted, "error": error}


def works():
    """Each work by its name, warmed up."""
    net = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=True)
    decode, products = Decode(), Products()
    all_works = {
        "train": Training(net, optimizer, 16),
        "bigtrain": Training(net, optimizer, 64),
        "flood": products.flood,
        "bursty": products.bursty,
        "loader": products.loader,
        "decode": decode.eager,
        "replay": decode.replay,
    }
    for unit in all_works.values():
        for i in range(WARM_UP):
            unit(i)
    torch.cuda.synchronize()
    return all_works, decode, products


def main():
    torch.manual_seed(1)
    random.seed(1)
    all_works, decode, products = works()
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        name, *rest = line.split()
        seconds = float(rest[0]) if rest else 0.0
        if name == "server":
            said = serve(decode.graph.replay, seconds)
        elif name == "charge":
            said = charge(products, seconds)
        elif name == "memory":
            said = memory()
        else:
            said = count(all_works[name], seconds)
        print(json.dumps({"work": name, **said}), flush=True)


if __name__ == "__main__":
    main()

"""PyTorch as users run it, told what to do by lines on stdin; answers are lines of JSON. The orders are those of the twin
(`bench/src/check/player/mod.rs`), and so is what each answer means:

    work NAME | round N | steps N | go [PAUSE_US] | look | stop | serve [OFFSETS_US] | exit by the end of stdin

`python torch_play.py NAME`; with `--cpu` a trial of all of it without a GPU.
"""

import collections
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import torch

import torch_work

try:
    from weir import latency as tell_latency  # dist/python; without Weir it does nothing
except ImportError:

    def tell_latency(metric, seconds):
        return False


CPU = "--cpu" in sys.argv
DEVICE = "cpu" if CPU else "cuda"
AHEAD = 3  # units under way where the program does not wait for each
SPIN_S = 300e-6  # a request is slept for until so long before it comes

lock = threading.Lock()
progress = {"at_ns": 0, "done": 0}


def say(answer):
    with lock:
        print(json.dumps(answer), flush=True)


def count_one():
    progress["at_ns"], progress["done"] = time.monotonic_ns(), progress["done"] + 1


class Done:
    """Marks the end of what was launched so far."""

    def __init__(self, here=not CPU):
        self.event = torch.cuda.Event() if here else None
        if self.event:
            self.event.record()

    def wait(self):
        if self.event:
            self.event.synchronize()


class Exchange:
    """A training step of one of two processes, which then exchange through gloo, on the host: while they do, the GPU is idle."""

    def __init__(self, rank=0, meeting=None):
        import torch.distributed as dist

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both are on this machine, which may know no name of its own
        self.dist, self.rank, self.child = dist, rank, None
        if rank == 0:
            meeting = tempfile.mktemp(prefix="weir-check-")
            command = [sys.executable, "-u", __file__, "exchange-peer", meeting] + (["--cpu"] if CPU else [])
            self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        self.step = torch_work.train(DEVICE)
        self.gradient = torch.ones(torch_work.size(DEVICE, 4 << 20, 1024))
        self.more = torch.ones(1)

    def __call__(self):
        """The first process's: it tells the other that there is one more step."""
        self.dist.broadcast(self.more.fill_(1), 0)
        self.both()

    def both(self):
        self.one()
        self.dist.all_reduce(self.gradient)

    def one(self):
        self.step()
        torch_work.wait(DEVICE)

    def steps(self, count):
        """The first process's: so many steps of both, with no exchange between them."""
        self.dist.broadcast(self.more.fill_(-count), 0)
        for _ in range(count):
            self.one()
        self.dist.broadcast(self.more, 1)  # the other one is done as well

    def follow(self):
        """The second one's: as many steps as the first one makes."""
        while True:
            self.dist.broadcast(self.more, 0)
            count = int(self.more.item())
            if not count:
                return
            if count > 0:
                self.both()
                continue
            for _ in range(-count):
                self.one()
            self.dist.broadcast(self.more, 1)

    def end(self):
        self.dist.broadcast(self.more.fill_(0), 0)
        self.child.wait(10)


class Player:
    def __init__(self, name):
        self.waits = name in torch_work.WAITS
        elsewhere = name in torch_work.ELSEWHERE
        self.wait = (lambda: None) if elsewhere else (lambda: torch_work.wait(DEVICE))
        self.mark = (lambda: Done(False)) if elsewhere else Done
        self.unit = Exchange() if name == "exchange" else torch_work.WORKS[name](DEVICE)
        for _ in range(3):
            self.unit()  # kernels are loaded, allocators grow
        self.wait()

    def obey(self, order, orders):
        """The answer, and the next order if one came meanwhile."""
        word, _, rest = order.partition(" ")
        if word == "round":
            return self.round(int(rest)), None
        if word == "steps":
            return self.steps(int(rest)), None
        if word == "go":
            return self.go(next((int(part) for part in rest.split() if part.isdigit()), 0), orders)
        if word == "serve":
            return self.serve(json.loads(rest)), None
        if word == "stop":
            return {}, None
        return {"error": f"`{order}` is no order"}, None

    def round(self, units):
        start = time.perf_counter()
        for _ in range(units):
            self.unit()
            if self.waits:
                self.wait()
        self.wait()
        return {"s": time.perf_counter() - start}

    def steps(self, count):
        if not isinstance(self.unit, Exchange):
            return self.round(count)
        start = time.perf_counter()
        self.unit.steps(count)
        return {"s": time.perf_counter() - start}

    def go(self, pause_us, orders):
        ahead = 0 if self.waits or pause_us else AHEAD
        under_way, began, order = collections.deque(), progress["done"], None
        while order is None:
            self.unit()
            under_way.append(self.mark())
            while len(under_way) > ahead:
                under_way.popleft().wait()
                count_one()
            if pause_us:
                time.sleep(pause_us / 1e6)
            try:
                order = orders.get_nowait()
            except queue.Empty:
                pass
        for done in under_way:
            done.wait()
            count_one()
        return {"went": progress["done"] - began}, order

    def serve(self, offsets_us):
        start, took = time.perf_counter(), []
        for offset in offsets_us:
            due = start + offset / 1e6
            left = due - time.perf_counter()
            if left > SPIN_S:
                time.sleep(left - SPIN_S)
            while time.perf_counter() < due:
                pass
            self.unit()
            self.wait()
            seconds = time.perf_counter() - due
            tell_latency("request", seconds)
            took.append(seconds * 1e6)
            count_one()
        return {"us": took}


def read(orders):
    for line in sys.stdin:
        line = line.strip()
        if line == "look":
            say(dict(progress))
        else:
            orders.put(line)
    orders.put("")  # the end


def main():
    name = sys.argv[1]
    if name == "exchange-peer":
        Exchange(1, sys.argv[2]).follow()
        return
    torch.manual_seed(0)
    player = Player(name)
    say({"ready": True})
    orders = queue.Queue()
    threading.Thread(target=read, args=(orders,), daemon=True).start()
    order = orders.get()
    while order:
        following = None
        if order.startswith("work "):
            player = None  # its memory goes back before the next one needs some
            player = Player(order[5:])
            answer = {"ready": True}
        else:
            answer, following = player.obey(order, orders)
        say(answer)
        order = orders.get() if following is None else following
    if isinstance(player.unit, Exchange):
        player.unit.end()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # whatever it is, the check tells it and goes on with what does not need PyTorch
        say({"error": f"{type(error).__name__}: {error}"})
        raise

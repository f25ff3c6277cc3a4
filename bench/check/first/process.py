"""Programs that this run starts: each in a group of its own, so that it ends with all that it has started."""

import json
import os
import select
import signal
import subprocess
import time

# A player imports PyTorch, makes its models and warms up: 13 s on an H200 where eight start at once; cold files take longer.
START_PATIENCE_S = 90
# A work that was told how long to take may be late by so much: what is queued has to end first.
ANSWER_PATIENCE_S = 8
# From the end of stdin to the kill.
END_PATIENCE_S = 2.0


class Trouble(Exception):
    """A program that gave no answer."""


def start(command, env, log, **more):
    """A program in a group of its own, whose stderr is the log."""
    return subprocess.Popen(command, env=env, stderr=log, start_new_session=True, **more)


def kill_group(process):
    """Ends a program and all that it has started, and waits for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Player:
    """A program that works when told: an order is a line on its stdin, the answer a line of JSON on its stdout."""

    def __init__(self, name, command, env, log):
        self.name, self.pid, self.buffer = name, None, b""
        self.process = start(command, env, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def order(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, patience_s):
        """The next line of JSON; other lines are noise of the program's libraries."""
        deadline = time.monotonic() + patience_s
        while True:
            line, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                try:
                    return json.loads(line)
                except ValueError:
                    continue
            self.read_more(deadline - time.monotonic())

    def read_more(self, patience_s):
        if patience_s <= 0 or not select.select([self.process.stdout], [], [], patience_s)[0]:
            raise Trouble(f"{self.name} gave no answer in time")
        more = os.read(self.process.stdout.fileno(), 1 << 16)
        if not more:
            raise Trouble(f"{self.name} ended with {self.process.wait()}")
        self.buffer += more

    def wait_until_ready(self, patience_s=START_PATIENCE_S):
        self.pid = self.answer(patience_s)["pid"]

    def kill_program(self):
        """Kills the program itself, as a user or the kernel would: whoever has started it is left to see that."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self):
        """Asks it to end by the end of its stdin."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it is gone already

    def kill(self):
        self.end()
        kill_group(self.process)


def end_all(players):
    """Ends players, those first that heed the end of their stdin; kills the others."""
    for player in players:
        player.end()
    deadline = time.monotonic() + END_PATIENCE_S
    while time.monotonic() < deadline and any(player.process.poll() is None for player in players):
        time.sleep(0.02)
    for player in players:
        player.kill()

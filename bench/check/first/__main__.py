"""The first minutes on a card, in one call: `gpu-check --first`; and `--second`, the duels that decide, for a mended build.

Results come one a line, printed and saved as they come, in the order of what decides most. Every part may fail by itself, the whole ends
by its own deadline, and what was started is ended with it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Other libraries read these as they start: their hints would drown the answers.
QUIET = {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}
# Seconds that a call may take: a card is lent for minutes.
FIRST_S, SECOND_S = 420, 120
# One more build plays the deciding ways again.
OTHER_S = 75
# Past the deadline nothing is waited for any more.
GRACE_S = 5

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from cases import DECIDING, MORE, PROMISED, THREE, UNDER_MPS
from cast import Cast, Library
from duels import Duels
from mps import Mps
from node import Build
from parts import Parts
from probe import Probe
from results import Results


def options():
    parser = argparse.ArgumentParser(prog="gpu-check --first", description=__doc__)
    parser.add_argument("call", choices=["first", "second"])
    parser.add_argument("--dist", required=True, help="Weir: a folder laid out as a pack")
    parser.add_argument("--out", default=os.environ.get("OUT", "gpu-check-results"), help="where the results go: two files at most")
    parser.add_argument("--within", type=float, help=f"seconds that it may take [default: {FIRST_S}; --second: {SECOND_S}]")
    parser.add_argument("--interposer", help="another build (a pack's folder), or another interposer's library, to be compared")
    parser.add_argument("--mps", action="store_true", help="plain pairs under the card's own MPS, too, at the end")
    parser.add_argument("--player", help="a program in the place of the PyTorch one (for trials)")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds of every case, times this (for trials)")
    return parser.parse_args()


def builders(given):
    """Our build, and whom it is compared with."""
    ours = [Build(os.path.abspath(given.dist), "weir")]
    if given.interposer is None:
        return ours
    other = os.path.abspath(given.interposer)
    return [*ours, Build(other, "other") if os.path.isdir(other) else Library(other, "other")]


def watch(results, cast):
    """Ends everything once the deadline is well past: what hangs must not keep the results."""

    def body():
        time.sleep(max(0, results.left()) + GRACE_S)
        results.say("the deadline is past: what is still at work is ended", part="deadline")
        cast.kill_all()
        os._exit(1)

    threading.Thread(target=body, daemon=True).start()


def import_once(python):
    """Reads PyTorch's files into memory before a dozen players want them at once."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([python, "-c", "import torch"], **pipes)


def first(duels, parts, probe, builds, results):
    ours = builds[0]
    duels.play_all(DECIDING, ours)
    note(duels, ours)
    for part in (parts.overhead, parts.charge):
        results.attempt(part.__name__, part, ours)
    duels.play_all(MORE, ours)
    duels.play_all(PROMISED, ours)
    for other in builds[1:]:
        duels.play_all(DECIDING, other, plain=False)
    for part in (parts.kill, parts.manager, parts.memory):
        results.attempt(part.__name__, part, ours)
    duels.play_all(THREE, ours)
    duels.cast.end_all()  # the probe wants the card to itself
    results.attempt("probe", probe.run_the_rest)


def under_mps(duels, folder):
    """Plain pairs under MPS, whose daemon ends with them."""
    duels.cast.end_all()
    mps = Mps(folder)
    try:
        mps.start()
        duels.play_all(UNDER_MPS, mps)
    finally:
        duels.cast.end_all()
        mps.stop()


def second(duels, builds, results):
    for build in builds:
        duels.play_all(DECIDING, build, plain=build is builds[0])
        note(duels, build)


def note(duels, build):
    """What Weir says of it all."""
    for node, command in (("pair", ["ps"]), ("pair", ["why", "b"]), ("serve", ["ps"]), ("serve", ["why", "f"])):
        duels.results.attempt("weir", duels.note, build, node, *command)


def run(given, results, folder, log):
    python = os.environ.get("WEIR_PYTHON", "python3")
    program = given.player.split() if given.player else [python, "-u", os.path.join(HERE, "player.py")]
    builds = builders(given)
    paths = [os.path.join(builds[0].root, "python"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    cast = Cast(program, folder, log)
    watch(results, cast)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    try:
        play(given, results, cast, builds, Probe(results, os.path.join(HERE, "probe"), folder, log), python)
    finally:
        cast.end_all()
        cast.kill_all()


def play(given, results, cast, builds, probe, python):
    duels = Duels(results, cast, given.pace)
    if given.call == "first":
        probe.build()
        results.attempt("probe", probe.run_while, import_once(python))
        first(duels, Parts(results, cast, duels), probe, builds, results)
        if given.mps:
            results.attempt("mps", under_mps, duels, cast.folder)
    else:
        second(duels, builds, results)
    results.say("the table, each with its part of what it gets alone (plain, without others):", part="end", took_s=results.elapsed())
    for line in duels.summary():
        print(line, flush=True)


def main():
    given = options()
    os.environ.update(QUIET)
    os.makedirs(given.out, exist_ok=True)
    within = given.within or (FIRST_S if given.call == "first" else SECOND_S + (OTHER_S if given.interposer else 0))
    results = Results(os.path.join(given.out, f"{given.call}.jsonl"), within)
    results.say(part="begin", call=given.call, argv=sys.argv[1:], within_s=within, commit=commit(given.dist), card=card())
    folder = tempfile.mkdtemp(prefix="weir-first-")
    try:
        with open(os.path.join(given.out, f"{given.call}-log.txt"), "w", encoding="utf-8") as log:
            run(given, results, folder, log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit(dist):
    """Which source the build was made of, where it says so."""
    try:
        with open(os.path.join(dist, "commit"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def card():
    """The card by its driver's own tool; a card without one is measured all the same."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_mode,power.limit", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"


if __name__ == "__main__":
    main()

"""The probe of the card itself (`probe/`): compiled where the card is, run while nobody else is at work there."""

import json
import os
import shutil
import subprocess
import threading

from process import kill_group, start

CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")  # where the toolkit is, if not in PATH
# What each part may take; the longest took 16 s on an H100.
PART_PATIENCE_S = 45
PARTS = ("costs", "gates", "handover", "slices")


class Probe:
    """Its parts, each of which prints one line of JSON an answer."""

    def __init__(self, results, source, folder, log):
        self.results, self.source, self.folder, self.log = results, source, folder, log
        self.compiler, self.left = None, list(PARTS)

    def build(self):
        """Begins to compile it, in the background."""
        nvcc = os.environ.get("NVCC") or shutil.which("nvcc") or os.path.join(CUDA, "bin", "nvcc")
        script = os.path.join(self.source, "build")
        command = ["bash", script, self.folder]
        env = {**os.environ, "NVCC": nvcc, "CUDA_HOME": CUDA}
        self.compiler = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def run_while(self, other):
        """Runs parts for as long as another process is at work, if it is compiled by then."""
        while other.poll() is None:
            if self.compiler.poll() == 0 and self.left:
                self.run_next()
            else:
                try:
                    other.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    pass

    def run_the_rest(self):
        """All that was not run yet."""
        code = self.compiler.wait(timeout=max(1, self.results.left()))
        if code != 0:
            raise RuntimeError(f"the probe could not be compiled ({code}): see the log")
        while self.left and self.results.left() > 5:
            self.run_next()
        if self.left:
            self.results.say(part="probe", left_out=self.left)

    def run_next(self):
        """One part; each answer is saved as it comes, and what was answered until it is cut off stands."""
        part = self.left.pop(0)
        patience = min(PART_PATIENCE_S, max(1, self.results.left()))
        process = start(["./probe", part], dict(os.environ), self.log, cwd=self.folder, stdout=subprocess.PIPE)
        cut = threading.Timer(patience, kill_group, [process])
        cut.start()
        answers = sum(self.note(part, line) for line in process.stdout)
        cut.cancel()
        code = process.wait()
        outcome = "" if code == 0 else f", ended with {code} (-9: after {patience:.0f} s)"
        self.results.say(f"probe {part}: {answers} answers{outcome}", part="probe", of=part, answers=answers, code=code)

    def note(self, part, line):
        """Saves a line, if it is whole; how many answers that makes."""
        try:
            answer = json.loads(line)
        except ValueError:
            return 0
        self.results.say("", part="probe", of=part, answer=answer)
        return 1

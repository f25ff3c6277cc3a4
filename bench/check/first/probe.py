"""The probe of the card itself (`probe/`): compiled where the card is, run while nobody else is at work there."""

import json
import os
import shutil
import subprocess

CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
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
        nvcc = shutil.which("nvcc") or os.path.join(CUDA, "bin", "nvcc")
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
        """One part; its answers as they came, also where it was cut off."""
        part = self.left.pop(0)
        answers, why = [], None
        try:
            patience = min(PART_PATIENCE_S, max(1, self.results.left()))
            pipes = {"stdout": subprocess.PIPE, "stderr": self.log}
            done = subprocess.run(["./probe", part], cwd=self.folder, timeout=patience, check=False, **pipes)
            text, why = done.stdout, f"ended with {done.returncode}" if done.returncode else None
        except subprocess.TimeoutExpired as cut:
            text, why = cut.stdout or b"", "was cut off"
        for line in text.decode(errors="replace").splitlines():
            try:
                answers.append(json.loads(line))
            except ValueError:
                pass  # a line that was cut off
        for answer in answers:
            self.results.say(part="probe", of=part, **answer)
        if why:
            self.results.say(f"probe {part} {why}", part="probe", of=part, failed=why)

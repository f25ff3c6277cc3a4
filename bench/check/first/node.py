"""A node manager of one build of Weir, and the tenants that its programs are."""

import os
import subprocess
import time

from process import kill_group, start

# `weir` answers in milliseconds; a card that is full may keep it waiting.
TOOL_PATIENCE_S = 15
# A node manager asks the driver for its GPUs first.
NODE_PATIENCE_S = 20
# Of what `weir` says only the end is kept, in characters: history is long, what counts stands last.
KEPT_CHARACTERS = 1800


class Build:
    """A build of Weir: a folder laid out as `dist` or a pack is."""

    def __init__(self, root, label):
        self.root, self.label = root, label
        self.weir = os.path.join(root, "bin", "weir")


class Node:
    """A node manager, in a folder of its own: several on one GPU know nothing of each other, so one's tenants rest meanwhile."""

    def __init__(self, build, folder, log):
        self.build, self.folder, self.log = build, folder, log
        self.env = {**os.environ, "WEIR_NODE_DIR": folder}
        self.process = None

    def start(self):
        self.process = start([self.build.weir, "node"], self.env, self.log, stdin=subprocess.DEVNULL, stdout=self.log)
        deadline = time.monotonic() + NODE_PATIENCE_S
        while self.tool("ps")[0] != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the node manager in {self.folder} does not come up")
            time.sleep(0.1)

    def tool(self, *arguments):
        """The exit code and what `weir ARGUMENTS` says."""
        command = [self.build.weir, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, env=self.env, timeout=TOOL_PATIENCE_S, check=False, **pipes)
        return done.returncode, done.stdout.decode(errors="replace")

    def told(self, *arguments):
        """The end of what it says, without the lines about programs that belong to nobody here."""
        code, text = self.tool(*arguments)
        lines = [line for line in text.splitlines() if "NOT MANAGED" not in line]
        return {"weir": " ".join(arguments), "code": code, "said": "\n".join(lines)[-KEPT_CHARACTERS:]}

    def run(self, name, options, program):
        """The command that runs a program as this tenant."""
        return [self.build.weir, "run", "--name", name, *options, "--", *program]

    def set_request(self, name, percent):
        code, text = self.tool("set", name, "--request", f"{percent}%")
        if code != 0:
            raise RuntimeError(f"weir set {name}: {text.strip()[-300:]}")

    def kill(self):
        if self.process is not None:
            kill_group(self.process)
            self.process = None

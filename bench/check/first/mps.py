"""The card's own MPS, by a control daemon of this run: plain programs whose kernels run beside each other."""

import os
import subprocess

DAEMON = "nvidia-cuda-mps-control"
PATIENCE_S = 15


class Mps:
    """Builds players whose programs go through the daemon; leave it with `stop`, when they have ended."""

    label = "mps"

    def __init__(self, folder):
        pipe, log = os.path.join(folder, "mps-pipe"), os.path.join(folder, "mps-log")
        for path in (pipe, log):
            os.makedirs(path, exist_ok=True)
        self.env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": log}

    def start(self):
        subprocess.run([DAEMON, "-d"], env=self.env, timeout=PATIENCE_S, check=True)

    def stop(self):
        try:
            subprocess.run([DAEMON], input=b"quit\n", env=self.env, timeout=PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            pass  # it was never there, or is gone

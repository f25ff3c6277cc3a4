"""Training steps of a small transformer and a loop of tiny kernels, timed: PyTorch as users run it. Run once bare and
once under Weir by `gpu-check overhead`; prints one JSON line.
"""

import json
import sys
import time

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 50
TINY = 20_000


def timed(body) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    body()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(32, 128, 512, device="cuda")

    def steps() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()

    tiny = torch.zeros(1, device="cuda")

    def tiny_kernels() -> None:
        for _ in range(TINY):
            tiny.add_(1.0)

    steps()  # warm: kernels loaded, allocator grown
    seconds, tiny_seconds = timed(steps), timed(tiny_kernels)
    print(json.dumps({"step_ms": 1e3 * seconds / STEPS, "tiny_us": 1e6 * tiny_seconds / TINY, "count": tiny.item()}))


if __name__ == "__main__":
    main()

"""Results of ordinary PyTorch programs, to be compared between a run with Weir and runs without: convolutions, attention, training with
AdamW, CUDA graphs, `cudaMallocAsync`, expandable segments, a Triton kernel, `torch.compile`, generation. What is missing here (Triton, a
compiler) is left out and says why; one that fails says so, and the others go on. Prints {"ready"}, then
{"results": {NAME: {"digest": HEX, "numbers": [NUMBER, ..]}}, "skipped": {NAME: WHY}, "failed": {NAME: WHY}}: the digest is of all bytes, the
numbers are for results that two runs do not agree in to the bit.

Deterministic settings throughout: where PyTorch has them, two runs are equal to the bit. With `--cpu` a trial without a GPU.
"""

import ctypes
import hashlib
import json
import math
import os
import subprocess
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what PyTorch asks for deterministic cuBLAS

import torch
from torch import nn
from torch.nn import functional

import torch_work

CPU = "--cpu" in sys.argv
DEVICE = "cpu" if CPU else "cuda"
BACKENDS = {"malloc_async": "backend:cudaMallocAsync", "expandable_segments": "expandable_segments:True"}


class Skip(Exception):
    """Something that this case needs is not here."""


def seeded():
    torch.manual_seed(0)
    return torch.Generator(device=DEVICE).manual_seed(0)


def result(*tensors, numbers=()):
    """A digest of all bytes, and a few numbers: those given, and of each tensor its sum, its sum of squares, and some elements."""
    digest, out = hashlib.sha256(), list(numbers)
    digest.update(json.dumps(out).encode())
    for tensor in tensors:
        here = tensor.detach().cpu().contiguous()
        digest.update(f"{here.dtype}{tuple(here.shape)}".encode())
        digest.update(ctypes.string_at(here.data_ptr(), here.numel() * here.element_size()))
        flat = here.double().flatten()
        out += [flat.sum().item(), flat.square().sum().item()] + flat[:: max(1, flat.numel() // 16)].tolist()
    # JSON has no other way to say what is no number; two of them are alike.
    return {"digest": digest.hexdigest(), "numbers": [number if math.isfinite(number) else str(number) for number in out]}


def convolutions():
    seeded()
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.AdaptiveAvgPool2d(4)).to(DEVICE)
    x = torch.randn(16, 3, 64, 64, device=DEVICE, requires_grad=True)
    y = model(x)
    y.square().mean().backward()
    return result(y, x.grad, *(p.grad for p in model.parameters()))


def attention():
    generator = seeded()
    query, key, value = (torch.randn(4, 8, 128, 64, device=DEVICE, generator=generator) for _ in range(3))
    return result(functional.scaled_dot_product_attention(query, key, value, is_causal=True))


def training():
    seeded()
    model = torch_work.Transformer(128, 4, 2, 500).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = torch.randint(500, (8, 65), device=DEVICE)
    losses = []
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        logits = model(words[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, 500), words[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return result(*model.parameters(), numbers=losses)


def cuda_graph():
    seeded()
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).to(DEVICE).eval()
    x = torch.randn(32, 256, device=DEVICE)

    @torch.no_grad()
    def body():
        x.copy_(model(x) + x)

    replay = torch_work.captured(DEVICE, body)
    x.copy_(torch.arange(32 * 256, device=DEVICE).view(32, 256) / 8192)
    for _ in range(10):
        replay()
    return result(x)


def generation():
    seeded()
    model = torch_work.Transformer(128, 4, 2, 500).to(DEVICE).eval()
    caches = model.caches(4, 33, DEVICE, torch.float32)
    words, said = torch.ones(4, 1, dtype=torch.long, device=DEVICE), []
    with torch.no_grad():
        for at in range(32):
            words = model.step(words, caches, at)[:, -1:].argmax(-1)
            said += words.flatten().tolist()
    return result(numbers=said)


def triton_kernel():
    if CPU:
        raise Skip("no GPU in this trial")
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise Skip(f"no triton: {error}") from error

    @triton.jit
    def scale_and_add(x, y, out, n, BLOCK: tl.constexpr):
        places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = places < n
        tl.store(out + places, 2.0 * tl.load(x + places, mask=mask) + tl.load(y + places, mask=mask), mask=mask)

    generator = seeded()
    x, y = (torch.randn(100_003, device=DEVICE, generator=generator) for _ in range(2))
    out = torch.empty_like(x)
    try:
        scale_and_add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        raise Skip(f"triton cannot compile here: {error}") from error
    return result(out)


def compiled():
    if CPU:
        raise Skip("no GPU in this trial")
    seeded()
    model = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)).to(DEVICE)
    x = torch.randn(64, 128, device=DEVICE)
    try:
        return result(torch.compile(model)(x))
    except Exception as error:  # it needs a C compiler and Triton, and names what is missing in many ways
        raise Skip(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0][:200]}") from error


def start_backend(name):
    """The training case in a process of its own, whose allocator works in another way: that is fixed when it starts."""
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": BACKENDS[name], "PYTORCH_ALLOC_CONF": BACKENDS[name]}
    command = [sys.executable, __file__, "--only", "training"] + (["--cpu"] if CPU else [])
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_backend(name, process):
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(f"with {BACKENDS[name]}: {err.strip().splitlines()[-1:]}")
    said = json.loads(out.splitlines()[-1])
    if "training" not in said["results"]:
        raise RuntimeError(f"with {BACKENDS[name]}: {said['failed']}")
    return said["results"]["training"]


CASES = {case.__name__: case for case in (convolutions, attention, training, cuda_graph, generation, triton_kernel, compiled)}


def main():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.zeros(1, device=DEVICE)
    print(json.dumps({"ready": True}), flush=True)
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    results, skipped, failed = {}, {}, {}

    def tell(name, case):
        try:
            results[name] = case()
        except Skip as why:
            skipped[name] = str(why)
        except Exception as error:  # whatever it is, it is this case's
            failed[name] = f"{type(error).__name__}: {error}"[:300]

    others = {} if only else {name: start_backend(name) for name in BACKENDS}  # beside all that follows
    for name, case in CASES.items():
        if only in (None, name):
            tell(name, case)
    for name, process in others.items():
        tell(name, lambda name=name, process=process: end_backend(name, process))
    print(json.dumps({"results": results, "skipped": skipped, "failed": failed}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        raise

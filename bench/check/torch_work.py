"""What PyTorch's players do: each work is a function of a device that returns another one, which launches one unit.

The names are those of the twin (`bench/src/check/player/work.rs`). Plain torch only, nothing that has to be downloaded: models are
built from numbers, data are drawn from a seed.
"""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, WORDS = 1024, 16, 8, 32_000


class Block(nn.Module):
    """One layer of a transformer: attention over what came before, and two linear layers."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x):
        batch, length, width = x.shape
        parts = self.project(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        return parts.permute(2, 0, 3, 1, 4)

    def finish(self, x, attended):
        batch, heads, length, depth = attended.shape
        x = x + self.join(attended.transpose(1, 2).reshape(batch, length, heads * depth))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))

    def forward(self, x):
        query, key, value = self.split(x)
        return self.finish(x, functional.scaled_dot_product_attention(query, key, value, is_causal=True))

    def step(self, x, keys, values, at):
        """One more word, whose key and value are written to place `at` of the cache; later places are masked by length."""
        query, key, value = self.split(x)
        keys[:, :, at : at + 1], values[:, :, at : at + 1] = key, value
        return self.finish(x, functional.scaled_dot_product_attention(query, keys[:, :, : at + 1], values[:, :, : at + 1]))


class Transformer(nn.Module):
    def __init__(self, width=WIDTH, heads=HEADS, layers=LAYERS, words=WORDS):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words)
        self.shape = (layers, heads, width // heads)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))

    def caches(self, batch, length, device, dtype):
        layers, heads, depth = self.shape
        return [
            tuple(torch.zeros(batch, heads, length, depth, device=device, dtype=dtype) for _ in range(2)) for _ in range(layers)
        ]

    def step(self, words, caches, at):
        x = self.words(words)
        for block, (keys, values) in zip(self.blocks, caches):
            x = block.step(x, keys, values, at)
        return self.head(self.last(x))


def small(device):
    """Whether this is only a trial without a GPU."""
    return torch.device(device).type != "cuda"


def size(device, full, trial):
    return trial if small(device) else full


def wait(device):
    if not small(device):
        torch.cuda.synchronize()


def captured(device, body):
    """The body as a CUDA graph, captured as PyTorch's documentation wants it; without a GPU the body itself."""
    if small(device):
        return body
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


def tiny(device):
    """A loop of kernels that do next to nothing: a unit is 200 of them."""
    one = torch.zeros(1, device=device)

    def unit():
        for _ in range(200):
            one.add_(1.0)

    return unit


def graph(device):
    """A captured forward pass of a small model."""
    width = size(device, 1024, 32)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(20))).to(device).eval()
    x = torch.randn(64, width, device=device)

    @torch.no_grad()
    def body():
        model(x)

    return captured(device, body)


def matmul(device):
    """Two big products of matrices of half precision."""
    n = size(device, 8192, 64)
    dtype = torch.float32 if small(device) else torch.float16
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))

    def unit():
        torch.mm(torch.mm(a, b), b)

    return unit


def mix(device):
    """A tiny loop, a graph and a product, in turn."""
    parts = tiny(device), graph(device), matmul(device)

    def unit():
        for part in parts:
            part()

    return unit


def train(device):
    """A step of AdamW on a small transformer."""
    model = Transformer(*size(device, (512, 8, 4, WORDS), (32, 2, 1, 100))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(size(device, WORDS, 100), (8, size(device, 257, 17)), device=device)
    inputs, targets = words[:, :-1], words[:, 1:].reshape(-1)

    def unit():
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs)
        functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets).backward()
        optimizer.step()

    return unit


def decode(device):
    """A request: four more words for a batch of eight, each a captured graph."""
    dtype = torch.float32 if small(device) else torch.float16
    model = Transformer(*size(device, (WIDTH, HEADS, LAYERS, WORDS), (32, 2, 1, 100))).to(device, dtype).eval()
    batch, before, more = 8, size(device, 512, 8), 4
    caches = model.caches(batch, before + more, device, dtype)
    words = torch.zeros(batch, 1, dtype=torch.long, device=device)

    @torch.no_grad()
    def step(at):
        words.copy_(model.step(words, caches, at)[:, -1:].argmax(-1))

    steps = [captured(device, lambda at=before + n: step(at)) for n in range(more)]

    def unit():
        for one in steps:
            one()

    return unit


WORKS = {work.__name__: work for work in (tiny, graph, matmul, mix, train, decode)}

# Programs that wait for each unit, as those do that look at the result.
WAITS = {"train", "decode"}

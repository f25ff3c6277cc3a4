"""What PyTorch's players do: each work is a function of a device that returns another one, which launches one unit.

The names are those of the twin (`bench/src/check/player/work.rs`). Plain torch only, nothing that has to be downloaded: models are
built from numbers, data are drawn from a seed.
"""

import atexit
import json
import os
import shutil
import tempfile

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, WORDS = 1024, 16, 8, 32_000

# What vLLM may take of the memory: it fits beside a training job under the limit of the check's tenants.
VLLM_BYTES = 4 << 30


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


def vllm(device):
    """A request to vLLM: four more words for a batch of eight, by a model of the size of `decode`'s with made-up weights. As its users
    have it, but for what would be downloaded: its engine is a process of its own, which captures graphs."""
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    width, heads, layers, words = size(device, (WIDTH, HEADS, LAYERS, WORDS), (128, 2, 1, 1_000))
    model = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16" if not small(device) else "float32",
        "hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads, "num_key_value_heads": heads,
        "num_hidden_layers": layers, "vocab_size": words, "max_position_embeddings": 2_048, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    place = tempfile.mkdtemp(prefix="weir-check-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with open(os.path.join(place, "config.json"), "w") as file:
        json.dump(model, file)
    options = {} if small(device) else {"gpu_memory_utilization": min(0.9, VLLM_BYTES / current_platform.get_device_total_memory())}
    engine = LLM(
        model=place, load_format="dummy", skip_tokenizer_init=True, max_model_len=1_024, max_num_seqs=8, enable_prefix_caching=False,
        disable_log_stats=True, **options,
    )  # fmt: skip
    asked = [{"prompt_token_ids": [(7 * word + row) % (words - 3) + 3 for word in range(64)]} for row in range(8)]
    some = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, detokenize=False)

    def unit():
        answers = engine.generate(asked, some, use_tqdm=False)
        assert all(len(answer.outputs[0].token_ids) == 4 for answer in answers)

    return unit


WORKS = {work.__name__: work for work in (tiny, graph, matmul, mix, train, decode, vllm)}

# Programs that wait for each unit, as those do that look at the result.
WAITS = {"train", "decode", "vllm"}

# Programs whose GPU is another process's: this one shall have no context there, and knows that a unit is done when it has the answer.
ELSEWHERE = {"vllm"}

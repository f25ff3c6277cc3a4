"""What PyTorch makes of a memory limit: `python torch_memory.py LIMIT_BYTES`, under Weir. Prints {"ready"}, then
{"checks": {NAME: {"ok", "said"}}}. With `--cpu` only its own logic is tried."""

import json
import sys

import torch

LIMIT = int(sys.argv[1])
CPU = "--cpu" in sys.argv
MIB = 1 << 20


def told():
    """Free and total memory are the tenant's."""
    free, total = torch.cuda.mem_get_info()
    return total == LIMIT and 0 < free < LIMIT, f"free {free}, total {total}, limit {LIMIT}"


def properties():
    """So is what PyTorch knows of the card."""
    total = torch.cuda.get_device_properties(0).total_memory
    return total == LIMIT, f"total_memory {total}"


def out_of_memory():
    """More than the limit is PyTorch's own error, and it goes on after it."""
    try:
        torch.empty(LIMIT, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        after = torch.ones(1024, device="cuda").sum().item()
        return after == 1024, f"{type(error).__name__}, then {after}"
    return False, "it was given all of the limit beside its context"


def to_the_limit():
    """Tensors until there is no more; then all of them again once they are freed."""
    counts = []
    for _ in range(2):
        held = []
        try:
            while len(held) < 4096:
                held.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            pass
        counts.append(len(held))
        del held
        torch.cuda.empty_cache()
    room = LIMIT // (64 * MIB)
    return counts[0] == counts[1] and 0 < counts[0] <= room, f"{counts} pieces of 64 MiB, {room} without a context"


def reserved_is_within():
    """What PyTorch has reserved and what it is told to be free add up to no more than the limit."""
    free, _ = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    return free + reserved <= LIMIT, f"free {free} + reserved {reserved}"


CHECKS = (told, properties, out_of_memory, to_the_limit, reserved_is_within)


def main():
    if not CPU:
        torch.zeros(1, device="cuda")
    print(json.dumps({"ready": True}), flush=True)
    checks = {}
    for check in () if CPU else CHECKS:
        try:
            ok, said = check()
        except Exception as error:
            ok, said = False, f"{type(error).__name__}: {error}"
        checks[check.__name__] = {"ok": bool(ok), "said": said}
    print(json.dumps({"checks": checks}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        raise

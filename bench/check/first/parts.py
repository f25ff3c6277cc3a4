"""What is asked beside the duels: the cost of being alone under Weir, the charge, memory, kills, a manager that dies."""

import json
import statistics
import time

from cases import STEADY
from duels import figure

OVERHEAD_SECONDS = 1.0
OVERHEAD_ROUNDS = 3  # of bare and Weir in turn
KILL_SECONDS = 4.0
KILL_AFTER_S = 1.0
CHARGE_SECONDS = 2.0
# The ledger follows within a tick or two; a second is far more.
SETTLE_S = 1.0


class Parts:
    """Each method is a part, which may fail by itself."""

    def __init__(self, results, cast, duels):
        self.results, self.cast, self.duels = results, cast, duels

    def overhead(self, build):
        """Bare, Weir, bare, Weir ...: what a program that is alone loses; the limit is `gpu.overhead_percent`."""
        self.cast.need(build, ["bare1", "a"], keep_others=True)
        seconds = OVERHEAD_SECONDS * self.duels.pace
        for work in STEADY:
            rounds = {"bare1": [], "a": []}
            for _ in range(OVERHEAD_ROUNDS):
                for role, rates in rounds.items():
                    answer = self.duels.ask(build, {role: work}, seconds)[role]
                    rates.append(figure(answer))
            pairs = [100 * (bare / ours - 1) for bare, ours in zip(*rounds.values()) if bare and ours]
            added = statistics.median(pairs) if pairs else None
            line = f"{work} alone, bare {rounds['bare1']} Weir {rounds['a']}: {added if added is None else round(added, 2)} % added"
            self.results.say(line, part="overhead", by=build.label, work=work, rates=rounds, added_percent=added)

    def charge(self, build):
        """The time that a tenant is charged, against its own two events."""
        self.cast.need(build, ["a"], keep_others=True)
        node = self.cast.node(build, "pair")
        before = used_ns(node, "a")
        answer = self.duels.ask(build, {"a": "charge"}, CHARGE_SECONDS)["a"]
        time.sleep(SETTLE_S)
        charged_ms = (used_ns(node, "a") - before) / 1e6
        error = 100 * (charged_ms / answer["gpu_ms"] - 1)
        line = f"charge of a flood: {charged_ms:.1f} ms of {answer['gpu_ms']} by its own events, {error:+.2f} %"
        self.results.say(line, part="charge", by=build.label, charged_ms=charged_ms, answer=answer, error_percent=error)

    def memory(self, build):
        """What a program is told of its memory, and where it is refused."""
        self.cast.need(build, ["b"], keep_others=True)
        answer = self.duels.ask(build, {"b": "memory"}, 0)["b"]
        if "trouble" in answer:
            raise RuntimeError(answer["trouble"])
        mib = {name: answer[f"{name}_bytes"] >> 20 for name in ("free", "total", "granted")}
        line = f"memory: told {mib['total']} MiB, {mib['free']} free, granted {mib['granted']}; then: {answer['error']}"
        self.results.say(line, part="memory", by=build.label, answer=answer)

    def kill(self, build):
        """One of two is killed in mid-work: the other's rate and faults, and the dead one's memory."""
        self.cast.need(build, ["a", "b"], keep_others=True)
        self.cast.share(build, "50/50")
        key, seconds = self.cast.key(build, "b"), KILL_SECONDS * self.duels.pace
        for role in ("a", "b"):
            self.cast.player(build, role).order(f"flood {seconds}")
        time.sleep(KILL_AFTER_S * self.duels.pace)
        self.cast.player(build, "b").kill_program()
        answer = self.duels.collect(build, "a", seconds)
        self.cast.players.pop(key).kill()
        said = self.cast.node(build, "pair").told("ps")
        self.results.say(f"flood beside one who is killed: {figure(answer)}/s", part="kill", by=build.label, answer=answer, **said)

    def manager(self, build):
        """The manager is killed under two at work, and started again."""
        self.cast.need(build, ["a", "b"], keep_others=True)
        self.cast.share(build, "70/30")
        seconds = KILL_SECONDS * self.duels.pace
        node = self.cast.node(build, "pair")
        for role in ("a", "b"):
            self.cast.player(build, role).order(f"bigtrain {seconds}")
        time.sleep(KILL_AFTER_S * self.duels.pace)
        node.kill()
        time.sleep(KILL_AFTER_S * self.duels.pace)
        node.start()
        answers = {role: self.duels.collect(build, role, seconds) for role in ("a", "b")}
        rates = " and ".join(f"{figure(answer)}/s" for answer in answers.values())
        self.results.say(f"bigtrain x2, 70/30, manager killed and back: {rates}", part="manager", by=build.label, answers=answers)


def used_ns(node, name):
    """GPU time that a tenant was charged since it is there."""
    code, text = node.tool("stats", "--json")
    if code != 0:
        raise RuntimeError(f"weir stats: {text[-300:]}")
    tenant = next(tenant for tenant in json.loads(text)["tenants"] if tenant["name"] == name)
    return sum(gpu["total"]["charged_ns"] for gpu in tenant["gpus"])

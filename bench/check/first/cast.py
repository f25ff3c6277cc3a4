"""Everybody who plays: programs without Weir, tenants of each build's nodes, and programs under another interposer."""

import os

from cases import MEMORY, ROLES, WAYS
from mps import Mps
from node import Build, Node
from process import Player, Trouble, end_all, kill_group

# Who failed so often in a row is left out: each start takes its seconds from the cases.
MOST_FAILURES = 2
# What HAMi-core's library is told by (`CUDA_DEVICE_SM_LIMIT` in percent); others ignore it.
LIBRARY_MEMORY = "12g"


class Library:
    """Another interposer's library, preloaded by hand."""

    def __init__(self, path, label):
        self.path, self.label = path, label

    def env(self, role, percent, folder):
        limits = {"CUDA_DEVICE_SM_LIMIT": str(percent), "CUDA_DEVICE_MEMORY_LIMIT": LIBRARY_MEMORY}
        cache = os.path.join(folder, f"{self.label}-{role}.cache")
        return {**os.environ, **limits, "LD_PRELOAD": self.path, "CUDA_DEVICE_MEMORY_SHARED_CACHE": cache, "LIBCUDA_LOG_LEVEL": "0"}


class Cast:
    """Starts and ends players and nodes; a player that failed is started again when it is needed next."""

    def __init__(self, program, folder, log):
        self.program, self.folder, self.log = program, folder, log
        self.players, self.nodes, self.failures, self.requests = {}, {}, {}, {}

    def key(self, builder, role):
        """Programs without Weir are the same beside every build."""
        return (builder.label if ROLES[role].node or isinstance(builder, Mps) else "bare", role)

    def need(self, builder, roles, keep_others=False):
        """Has these players ready; ends the others, whose memory may be needed."""
        keys = {self.key(builder, role): role for role in roles}
        if not keep_others:
            self.end([key for key in self.players if key not in keys])
        missing = {key: role for key, role in keys.items() if key not in self.players}
        for key, role in missing.items():
            if self.failures.get(key, 0) >= MOST_FAILURES:
                raise Trouble(f"{role} failed before and is left out")
            self.players[key] = self.start(builder, role)
        failed = []
        for key in missing:  # all of them are waited for, whoever fails
            try:
                self.guarded(key, self.players[key].wait_until_ready)
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def guarded(self, key, ask, *arguments):
        """Asks a player; one that gives no answer is killed, and started anew when it is needed next."""
        try:
            return ask(*arguments)
        except (Trouble, OSError, KeyError):
            self.failures[key] = self.failures.get(key, 0) + 1
            self.players.pop(key).kill()
            raise

    def start(self, builder, role):
        spec = ROLES[role]
        if isinstance(builder, Mps):
            return Player(role, self.program, builder.env, self.log)
        if spec.node is None:
            return Player(role, self.program, dict(os.environ), self.log)
        if isinstance(builder, Library):
            env = builder.env(role, spec.request or 100, self.folder)
            return Player(role, self.program, env, self.log)
        node = self.node(builder, spec.node)
        self.requests[(node.folder, role)] = spec.request
        options = ("--memory", MEMORY, *spec.options)
        return Player(role, node.run(role, options, self.program), node.env, self.log)

    def node(self, build, name):
        """The build's node of this name, which is started where it is not there yet."""
        key = (build.label, name)
        if key not in self.nodes:
            node = Node(build, os.path.join(self.folder, f"{build.label}-{name}"), self.log)
            node.start()
            self.nodes[key] = node
        return self.nodes[key]

    def player(self, builder, role):
        return self.players[self.key(builder, role)]

    def share(self, build, way):
        """Sets the way's requests; who gives comes before who takes."""
        if not isinstance(build, Build):
            return
        wanted = dict(zip(WAYS[way].roles, WAYS[way].requests))
        at = {role: (self.node(build, ROLES[role].node).folder, role) for role in wanted}
        for role in sorted(wanted, key=lambda role: wanted[role] - self.requests[at[role]]):
            if self.requests[at[role]] != wanted[role]:
                self.node(build, ROLES[role].node).set_request(role, wanted[role])
                self.requests[at[role]] = wanted[role]

    def end(self, keys):
        end_all([self.players.pop(key) for key in keys])

    def end_all(self):
        """All players; nodes go on."""
        self.end(list(self.players))

    def kill_all(self):
        """Everything at once, whatever state it is in."""
        for player in list(self.players.values()):
            kill_group(player.process)
        for node in list(self.nodes.values()):
            node.kill()

"""The table of duels: which programs run beside each other, and in which ways. What decides comes first."""

from typing import NamedTuple

# Long enough for a rate within 2 % of a GPU-bound program; one step of the slowest takes 0.15 s.
SECONDS = 2.5
# A server's slowest hundredth is of some 500 requests then.
SERVER_SECONDS = 4.0
ALONE_SECONDS = 1.5
MEMORY = "12GiB"  # of each tenant; seven players fit into the 80 GB of an H100
PROMISE = ("--slo", "p99 < 6ms", "--latency-from", "hint", "request")


class Role(NamedTuple):
    """Who somebody is: a tenant of a node, or nobody's."""

    node: str | None
    options: tuple = ()
    request: int | None = None


def primary(node, percent):
    return Role(node, ("--request", f"{percent}%"), percent)


ROLES = {
    "bare1": Role(None),
    "bare2": Role(None),
    "bare3": Role(None),
    "m1": Role(None),
    "m2": Role(None),
    "a": primary("pair", 70),
    "b": primary("pair", 30),
    "s": Role("serve", ("--class", "latency", "--request", "40%")),
    "p": primary("serve", 50),
    "f": Role("serve", ("--class", "filler")),
    "t": Role("promise", ("--class", "latency", "--request", "40%", *PROMISE)),
    "g": Role("promise", ("--class", "filler")),
    "c": primary("three", 40),
    "d": primary("three", 30),
    "e": primary("three", 30),
}


class Way(NamedTuple):
    """How the programs of a duel share the card."""

    about: str
    roles: tuple
    requests: tuple = ()


WAYS = {
    "plain": Way("the driver's own time slices", ("bare1", "bare2", "bare3")),
    "70/30": Way("Weir, primaries of 70 and 30 %", ("a", "b"), (70, 30)),
    "50/50": Way("Weir, primaries of 50 % each", ("a", "b"), (50, 50)),
    "filler": Way("Weir, a latency tenant of 40 % and a filler", ("s", "f")),
    "primary": Way("Weir, a latency tenant of 40 % and a primary of 50 %", ("s", "p")),
    "beside": Way("Weir, a primary of 50 % and a filler", ("p", "f")),
    "promise": Way("Weir, a latency tenant with p99 < 6 ms and a filler", ("t", "g")),
    "mps": Way("the card's own MPS, without Weir", ("m1", "m2")),
    "40/30/30": Way("Weir, three primaries", ("c", "d", "e")),
}


class Duel(NamedTuple):
    """Programs, and the ways in which they meet."""

    works: tuple
    ways: tuple

    def seconds(self):
        return SERVER_SECONDS if "server" in self.works else SECONDS


# What another interposer's library can be told by a percentage for each program.
LIBRARY_WAYS = ("70/30",)

PAIRED = ("plain", "70/30", "50/50")
SERVED = ("plain", "filler", "primary")
FILLED = ("plain", "beside")

DECIDING = (
    Duel(("train", "train"), PAIRED),
    Duel(("decode", "decode"), PAIRED),
    Duel(("decode", "train"), PAIRED),
    Duel(("server", "bigtrain"), SERVED),
    Duel(("server", "flood"), SERVED),
    Duel(("bursty", "flood"), FILLED),
    Duel(("loader", "flood"), FILLED),
)
MORE = (
    Duel(("flood", "flood"), PAIRED),
    Duel(("bigtrain", "bigtrain"), PAIRED),
    Duel(("replay", "replay"), PAIRED),
    Duel(("decode", "flood"), PAIRED),
    Duel(("bursty", "bigtrain"), FILLED),
)
PROMISED = (Duel(("server", "flood"), ("promise",)), Duel(("server", "bigtrain"), ("promise",)))
THREE = (Duel(("train", "train", "train"), ("plain", "40/30/30")),)

UNDER_MPS = tuple(
    Duel(works, ("mps",))
    for works in (
        ("train", "train"),
        ("decode", "decode"),
        ("decode", "train"),
        ("server", "flood"),
        ("server", "bigtrain"),
        ("bursty", "flood"),
        ("flood", "flood"),
    )
)

# Alone, each by a program without Weir; the server comes last and takes longer.
ALONE = ("train", "decode", "flood", "bigtrain", "bursty", "loader", "replay", "server")
# Programs whose rates are steady enough to tell half a percent.
STEADY = ("replay", "flood", "bigtrain")


def roles_of(duels):
    """Everybody whom these duels need, in the order of the table."""
    needed = {role for duel in duels for way in duel.ways for role in WAYS[way].roles[: len(duel.works)]}
    return [role for role in ROLES if role in needed]

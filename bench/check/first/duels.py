"""The duels: pairs of programs at work beside each other, each way in turn, with how far each gets of what it gets alone."""

from cases import ALONE, ALONE_SECONDS, LIBRARY_WAYS, SERVER_SECONDS, WAYS, roles_of
from cast import Library
from node import Build
from process import ANSWER_PATIENCE_S

# What a case takes beyond its seconds, at least: orders, the last work's end.
CASE_EXTRA_S = 3.0


def figure(answer):
    """A work's one figure for people, and for ratios: its rate, or a server's p99; none of one who gave no answer."""
    return answer.get("p99_ms") if "requests" in answer else answer.get("per_s")


def told(answer, alone):
    if "trouble" in answer:
        return f"NO ANSWER ({answer['trouble'][:40]})"
    percent = f" ({100 * figure(answer) / figure(alone):.0f} %)" if alone else ""
    if "requests" in answer:
        return f"p50 {answer['p50_ms']} p99 {answer['p99_ms']} ms{percent}"
    return f"{answer['per_s']}/s{percent}"


def suitable(duel, builder, plain):
    """The ways of a duel in which this builder can play; plain slicing belongs to no build, and is played once."""
    mine = [way for way in duel.ways if way != "plain" or plain]
    if isinstance(builder, Library):
        mine = [way for way in mine if way in (*LIBRARY_WAYS, "plain")]
    return duel._replace(ways=tuple(mine))


class Duels:
    """Plays cases and keeps what they gave."""

    def __init__(self, results, cast, pace=1.0):
        self.results, self.cast, self.pace = results, cast, pace
        self.alone, self.rows = {}, []

    def ask(self, builder, orders, seconds):
        """All at once: `{role: work}`; what each answers, or its trouble."""
        for role, work in orders.items():
            self.cast.player(builder, role).order(f"{work} {seconds}")
        return {role: self.collect(builder, role, seconds) for role in orders}

    def collect(self, builder, role, seconds):
        """What a player answers, or its trouble: the others' answers are still to be read."""
        key = self.cast.key(builder, role)
        try:
            answer = self.cast.guarded(key, self.cast.players[key].answer, seconds + ANSWER_PATIENCE_S)
            self.cast.failures.pop(key, None)  # it works: what failed before was one case's
            return answer
        except Exception as error:
            return {"trouble": str(error)}

    def measure_alone(self, builder, works=ALONE):
        """What each work does by itself, without Weir."""
        for work in works:
            seconds = self.pace * (SERVER_SECONDS if work == "server" else ALONE_SECONDS)
            self.cast.need(builder, ["bare1"], keep_others=True)
            answer = self.ask(builder, {"bare1": work}, seconds)["bare1"]
            if "trouble" not in answer:
                self.alone[work] = answer
            self.results.say(f"{work} alone: {told(answer, None)}", part="alone", work=work, seconds=seconds, answer=answer)

    def play(self, duel, way, builder):
        """One case, if there is time for it."""
        name, seconds = " + ".join(duel.works), self.pace * duel.seconds()
        by = builder.label if way != "plain" else "plain"
        if self.results.left() < seconds + CASE_EXTRA_S:
            return self.results.say(part="duel", works=duel.works, way=way, by=by, left_out="no time")
        roles = WAYS[way].roles[: len(duel.works)]
        self.cast.need(builder, roles, keep_others=True)
        self.cast.share(builder, way)
        answers = self.ask(builder, dict(zip(roles, duel.works)), seconds)
        words = [told(answers[role], self.alone.get(work)) for role, work in zip(roles, duel.works)]
        self.rows.append((name, f"{way}, {by}" if way != "plain" else way, words))
        said = [{"work": work, "role": role, **answers[role]} for role, work in zip(roles, duel.works)]
        return self.results.say(
            f"{name}, {self.rows[-1][1]}: {'; '.join(words)}",
            part="duel", works=duel.works, way=way, by=by, seconds=seconds, answers=said,
        )  # fmt: skip

    def play_all(self, duels, builder, plain=True):
        """Every way of every duel by one build: all players of two at once would not fit on a small card."""
        suited = [duel for duel in (suitable(duel, builder, plain) for duel in duels) if duel.ways]
        everybody = roles_of(suited) if self.alone else ["bare1", *roles_of(suited)]
        self.results.attempt(f"start {builder.label}", self.cast.need, builder, everybody)
        if not self.alone:
            self.results.attempt("alone", self.measure_alone, builder)
        for duel in suited:
            for way in duel.ways:
                self.results.attempt(f"{'+'.join(duel.works)}, {way}", self.play, duel, way, builder)

    def note(self, builder, node, *arguments):
        """What `weir` says of itself, for whoever reads the results."""
        if isinstance(builder, Build):
            said = self.cast.node(builder, node).told(*arguments)
            self.results.say(f"{builder.label} {node}: weir {' '.join(arguments)}", part="weir", by=builder.label, node=node, **said)

    def summary(self):
        """The table of all cases, in lines."""
        return [f"{name:<24} {way:<18} {'   '.join(words)}" for name, way, words in self.rows]

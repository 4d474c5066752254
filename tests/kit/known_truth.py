"""Plays searches and comparisons of models whose answers are known, in virtual time: a model stands
where a trial or a run is played. `make truth` plays 1,000 of each and prints the table of
docs/explanation/intervals.md."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from pubstorm.contract.histogram import Histogram, bucket_index
from pubstorm.experiment.search.answer import Terms, answer_of
from pubstorm.experiment.search.strategy import Settings, State, Strategy, TrialOutcome
from pubstorm.metrics.expressions import parse_expression
from pubstorm.result import (
    HistogramPair,
    LimitedBy,
    Measured,
    Rates,
    SearchResult,
    Status,
    Trial,
)
from pubstorm.result.comparison import Comparison, Group, compare, default_figures
from tests.kit.example_search import search_of
from tests.kit.measured import backend, device, latency, measured_run

TERMS = Terms("per_s", 1.0, None, "", 0.95, "{} messages/s in all")
STATES = {
    "passed": (Status.PASS, LimitedBy.NONE, True),
    "failed": (Status.FAIL, LimitedBy.BROKER, True),
    "uncounted": (Status.FAIL, LimitedBy.HOST, False),
}
BODY = [math.exp(0.6 * NormalDist().inv_cdf((n + 0.5) / 1000)) for n in range(1000)]
"""Latencies of a run as multiples of their median."""
P99 = parse_expression("latency.p99")
RUN_S = 15
"""Virtual time of a run."""


@dataclass(frozen=True)
class System:
    """A system with a capacity that searches look for."""

    name: str
    spread: float
    """Deviation of the capacity from trial to trial, as a share."""
    drift: float = 0.0
    """Growth of the capacity from trial to trial, as a share."""
    busy: float = 0.0
    """Share of the trials that this host spoils."""
    repeat: int = 3

    def search(self, chance: random.Random) -> tuple[SearchResult, float]:
        """Plays a search. Returns it with the true capacity at its middle."""
        capacity = math.exp(chance.uniform(math.log(3000), math.log(300_000)))
        strategy = Strategy(Settings(1000, 10_000_000, repeat=self.repeat))
        trials: list[Trial] = []
        while (following := strategy.next) is not None:
            now = capacity * math.exp(self.drift * len(trials) + chance.gauss(0, self.spread))
            state: State = "passed" if following.value <= now else "failed"
            state = "uncounted" if chance.random() < self.busy else state
            trials.append(_trial(len(trials) + 1, following.value, state))
            strategy.take(TrialOutcome(state))
        answer = answer_of(trials, strategy.facts, TERMS)
        middle = capacity * math.exp(self.drift * len(trials) / 2)
        return search_of(trials=tuple(trials), answer=answer), middle


@dataclass(frozen=True)
class Sides:
    """Two sides that are compared by runs in turn."""

    name: str
    factor: float = 1.0
    """Latency of the candidate, as a multiple of that of the baseline."""
    spread: float = 0.12
    """Deviation of the latencies of runs, as a share."""
    drift: float = 0.0
    """Growth of all latencies from run to run, as a share."""
    repeat: int = 5
    messages: int = 4000
    every: bool = False
    """True if all default figures are compared; otherwise latency.p99 alone."""

    def comparison(self, chance: random.Random) -> Comparison:
        """Plays the runs of both sides in the order ABBA, and compares them."""
        runs: tuple[list[Measured], list[Measured]] = ([], [])
        for turn in range(2 * self.repeat):
            side = (turn % 2) ^ (turn // 2 % 2)
            slow = (self.factor if side else 1.0) * math.exp(self.drift * turn)
            runs[side].append(self._run(chance, slow, turn))
        one, other = (Group(str(side), each, []) for side, each in enumerate(runs))
        figures = default_figures([*runs[0], *runs[1]]) if self.every else (P99,)
        return compare(one, other, figures, (), "")

    def _run(self, chance: random.Random, slow: float, turn: int) -> Measured:
        median_ns = 1e6 * slow * math.exp(chance.gauss(0, self.spread))
        pair = _pair(chance, median_ns, self.messages)
        receiver = backend(
            latency_us=pair.latency_us(),
            rates=Rates(received_per_s=chance.gauss(1000, 5)),
            connect_time_us=latency(100, p99=chance.lognormvariate(6, 0.1)),
        )
        return _GOOD.model_copy(
            update={
                "started_unix_ns": (turn + 1) * RUN_S * 10**9,
                "populations": {"device": _SENDER, "backend": receiver},
                "flows": (_GOOD.flows[0].model_copy(update={"histogram_ns": pair}),),
            }
        )


_GOOD, _SENDER = measured_run(), device()


def _pair(chance: random.Random, median_ns: float, messages: int) -> HistogramPair:
    """Returns the latencies of messages, as a run stores them."""
    drawn = Counter(chance.choices(BODY, k=messages))
    durations = {round(median_ns * each): count for each, count in drawn.items()}
    buckets: Counter[int] = Counter()
    for duration_ns, count in durations.items():
        buckets[bucket_index(duration_ns)] += count
    histogram = Histogram(
        count=messages,
        sum_ns=sum(each * count for each, count in durations.items()),
        min_ns=min(durations),
        max_ns=max(durations),
        buckets=tuple(sorted(buckets.items())),
    )
    return HistogramPair(intended=histogram, actual=histogram)


def _trial(number: int, value: float, state: State) -> Trial:
    status, limited_by, counted = STATES[state]
    return Trial(
        number=number,
        value=value,
        written=f"{value}/s",
        folder=f"trials/{number:03}",
        phase="grow",
        status=status,
        limited_by=limited_by,
        counted=counted,
    )


SEARCHES = (
    System("capacity varies by 3 %", 0.03),
    System("capacity varies by 10 %", 0.10),
    System("5 repeats, 3 %", 0.03, repeat=5),
    System("3 %, and grows by 0.1 % a trial", 0.03, drift=0.001),
    System("3 %, the host spoils a tenth of the trials", 0.03, busy=0.1),
    System("capacity never varies", 0.0),
)
COMPARISONS = (
    Sides("equal"),
    Sides("equal, 3 repeats", repeat=3),
    Sides("equal, latencies grow by 5 % a run", drift=0.05),
    Sides("equal, all default figures", every=True),
    Sides("1.5 times slower", factor=1.5),
    Sides("1.5 times slower, latencies grow by 5 % a run", factor=1.5, drift=0.05),
)


def searched(system: System, times: int, seed: int = 1) -> Counter[str]:
    """Counts the outcomes of searches: `interval` and, of these, `covered`; each status."""
    chance, found = random.Random(seed), Counter[str]()
    for _ in range(times):
        search, capacity = system.search(chance)
        best = search.answer.best
        found[str(search.status)] += 1
        if best is not None and best.bound == "exact":
            found["interval"] += 1
            found["covered"] += best.low <= capacity <= best.high
    return found


def compared(sides: Sides, times: int, seed: int = 1) -> Counter[str]:
    """Counts the outcomes of comparisons: intervals of latency.p99 that have `covered` the truth;
    comparisons that were `called` different; those that `found` the candidate to be slower."""
    chance, found = random.Random(seed), Counter[str]()
    for _ in range(times):
        comparison = sides.comparison(chance)
        figures = {each.figure: each for each in comparison.figures}
        p99 = figures[str(P99)]
        assert p99.low is not None and p99.high is not None, "two runs of each side were played"
        found["covered"] += p99.low <= sides.factor - 1 <= p99.high
        found["found"] += p99.outcome == "worse"
        found["called"] += any(
            each.outcome in {"better", "worse", "different"} for each in figures.values()
        )
    return found


def tables(times: int) -> Iterator[str]:
    """Yields the lines of both tables."""
    yield f"| search, {times:,} each | interval covers the truth | pass | not confirmed | open |"
    yield "|---|---:|---:|---:|---:|"
    for system in SEARCHES:
        found = searched(system, times)
        shares = [found["covered"] / max(found["interval"], 1)]
        shares += [found[status] / times for status in ("pass", "fail", "open")]
        yield f"| {system.name} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |"
    yield ""
    yield f"| comparison, {times:,} each | interval covers the truth | called different | slower |"
    yield "|---|---:|---:|---:|"
    for sides in COMPARISONS:
        counts = compared(sides, times)
        shares = [counts[each] / times for each in ("covered", "called", "found")]
        yield f"| {sides.name} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |"


if __name__ == "__main__":
    for line in tables(int(sys.argv[1])):
        print(line, flush=True)

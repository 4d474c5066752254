"""Problems: counted failures of populations by kind, with their reasons. Results store those of all
populations; findings name those of some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pubstorm.contract.snapshot import Answer, Reason
from pubstorm.metrics.metric import Failures
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.quantities import count_text
from pubstorm.result.populations import PopulationResult
from pubstorm.result.summary import Problem


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem: a metric that counts failures."""

    field: str
    """Field of a population's result with the number."""
    failures: Failures

    def count(self, population: PopulationResult) -> int:
        """Returns the number of a population."""
        return self._sum(population, (self.field,))

    def of(self, population: PopulationResult) -> int:
        """Returns the number of all of a population."""
        return self._sum(population, self.failures.of)

    def _sum(self, population: PopulationResult, fields: tuple[str, ...]) -> int:
        if self.failures.after and not getattr(population, self.failures.after):
            return 0
        return sum(getattr(population, field) for field in fields)


def problems(
    populations: Mapping[str, PopulationResult], unfollowed_total: int
) -> tuple[Problem, ...]:
    """Returns the problems of all kinds that occurred."""
    found = [
        problem for kind in KINDS.values() if (problem := problem_of(kind, populations)) is not None
    ]
    if unfollowed_total:
        received = sum(population.received_total for population in populations.values())
        words = f"{_out_of(unfollowed_total, received)} deliveries were not followed"
        name = "deliveries not followed"
        problem = Problem(kind=name, count=unfollowed_total, of=received, text=words)
        found.append(problem)
    return tuple(found)


def problem_of(kind: ProblemKind, populations: Mapping[str, PopulationResult]) -> Problem | None:
    """Returns the problem of one kind, over some populations; None if there was none."""
    by_population = {name: kind.count(each) for name, each in populations.items()}
    count = sum(by_population.values())
    if not count:
        return None
    of = sum(map(kind.of, populations.values())) if kind.failures.of else None
    reasons = sum((Counter(dict(_reasons(kind, p))) for p in populations.values()), Counter())
    why = reasons_text(reasons, populations.values())
    return Problem(
        kind=kind.failures.kind,
        count=count,
        of=of,
        text=f"{_out_of(count, of)} {kind.failures.words}" + (f": {why}" if why else ""),
        reasons=dict(reasons.most_common()),
        populations={name: each for name, each in by_population.items() if each},
    )


def reasons_text(counts: Counter[Reason | Answer], populations: Iterable[PopulationResult]) -> str:
    """Returns reasons with their counts, the most frequent first: `12 connect refused`."""
    peer = "broker" if any(p.can.has_broker for p in populations) else "publisher"
    words = ((n, str(r).replace("_", " ").replace("broker", peer)) for r, n in counts.most_common())
    return ", ".join(f"{count_text(n)} {word}" for n, word in words if n)


def _reasons(
    kind: ProblemKind, population: PopulationResult
) -> Iterator[tuple[Reason | Answer, int]]:
    """Yields the reasons of a population for a kind. Reasons of several kinds fill the number that
    the reasons of this kind only leave."""
    room = kind.count(population)
    for is_meant in (kind.failures.names, kind.failures.possible.__contains__):
        for reason, count in sorted(population.outcomes.items()):
            if is_meant(reason) and min(count, room) > 0:
                yield reason, min(count, room)
                room -= min(count, room)


def _out_of(count: int, of: int | None) -> str:
    return count_text(count) if of is None else f"{count_text(count)} of {count_text(of)}"


KINDS: Mapping[str, ProblemKind] = {
    metric.name: ProblemKind(metric.field, metric.failures)
    for metric in sorted(POPULATIONS, key=lambda m: m.failures.place if m.failures else 0)
    if metric.failures is not None
}
"""Kinds of problems by the name of their metric, in the order of a result."""

"""Findings about the links of clients: conditions that the scenario has put between clients and
brokers. What a link limits is limited by the link, and not by the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import count_text, counted, duration_text
from pubstorm.result import Measured, PopulationResult
from pubstorm.result.verdict.culprit import EvidenceKind, Uncarried
from pubstorm.result.verdict.findings import MIN_HELD_UP_SHARE, Finding

STANDING_US = 100_000
"""Median wait for the rate of a link from which bytes wait in front of it."""
MOST = 2
"""Ratio of a latency to the time in links up to which the links are most of it."""


def is_full(population: PopulationResult) -> bool:
    """Returns True if bytes stood in front of the links of a population: the rate took less than
    came."""
    bursts, waits = population.link_time_us.count, population.link_wait_us
    return bursts > 0 and (
        waits.p50 >= STANDING_US or population.link_full_total > MIN_HELD_UP_SHARE * bursts
    )


def limiting(measured: Measured) -> list[str]:
    """Returns the populations whose links limit a run: those with full links, else those whose
    links delay their messages."""
    linked = {n: p for n, p in measured.populations.items() if p.link_time_us.count}
    full = [name for name, population in linked.items() if is_full(population)]
    return full or [*linked]


def delayed_by(measured: Measured, asked: Expression) -> bool:
    """Returns True if most of a latency that was asked for is time in links."""
    kind = _DELAYED.get(asked.metric.removesuffix("latency"))
    found = () if kind is None else kind(measured)
    names = {part for name in found for part in (name, name.partition("/")[0])}
    return bool(names) if asked.subject is None else asked.subject in names


def _waiting(measured: Measured) -> Iterator[str]:
    """Yields the populations whose acknowledgements are mostly a round trip of their links."""
    for name, population in measured.populations.items():
        waited = population.ack_latency_us.actual
        if waited.count and waited.p50 <= MOST * 2 * population.link_time_us.p50:
            yield name


def _receiving(measured: Measured) -> Iterator[str]:
    """Yields the populations that receive messages of which the links took most of the time."""
    for flow in measured.flows:
        ends = (measured.populations[name] for name in (flow.source, flow.to))
        in_links_us = sum(population.link_time_us.p50 for population in ends)
        latency = flow.latency_us.actual
        if latency.count and latency.p50 <= MOST * in_links_us:
            yield flow.to


def _links(measured: Measured) -> Iterable[Finding]:
    """The time that bytes spent in links, and links that were full."""
    missing = Uncarried.of(measured)
    for name, population in measured.populations.items():
        times, waits = population.link_time_us, population.link_wait_us
        if not times.count:
            continue
        lost = population.link_retransmissions_total
        yield Finding(
            f"{name}: its link takes {duration_text(times.p50)} in each direction at p50, "
            f"{duration_text(times.p99)} at p99, with {counted(lost, 'retransmission')}; "
            "latencies contain it"
        )
        if is_full(population):
            yield Finding(
                f"{name}: its link was full {count_text(population.link_full_total)} ×, and bytes "
                f"waited for its rate for {duration_text(waits.p50)} at p50",
                EvidenceKind.FULL_LINK(missing.of_time(1.0)),
            )


LINK_RULES = (_links,)
_DELAYED: Mapping[str, Callable[[Measured], Iterable[str]]] = {
    "": _receiving,
    "live_": _receiving,
    "ack_": _waiting,
}
"""The populations whose latency is mostly time in links, by the first word of the latency."""

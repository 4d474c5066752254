"""Memory of the bytes that wait in links of clients, by arithmetic: each direction holds what the
clients send in its delay. A link that carries less than that fills up to its room."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.offered_load import PhaseLoad
from pubstorm.contract.plan import LinkConditions, Plan
from pubstorm.host.binaries import offered_load
from pubstorm.quantities import SECOND_NS

BUFFER_BYTES, LINK_BYTES = 64 * 1024, 512 * 1024
"""Bytes that wait in front of a link with a rate, and bytes that a direction holds at most
(`crates/plan/src/model/link.rs`)."""


def links_bytes(plan: Plan) -> float:
    """Returns the bytes in all links at the busiest moment; 0 without links."""
    if not any(population.link for population in plan.populations):
        return 0.0
    return max(
        (sum(_of_populations(plan, phase)) for phase in offered_load(plan).at_peaks), default=0
    )


def _of_populations(plan: Plan, phase: PhaseLoad) -> Iterator[float]:
    sent, received = (dict.fromkeys(range(len(plan.populations)), 0.0) for _ in range(2))
    for flow in phase.flows:
        load = offered_load(plan).populations[flow.population].publications[flow.publication]
        sent[flow.population] += flow.sent_per_s * load.message_bytes
        for receiver, per_s in enumerate(flow.delivered_per_s):
            received[receiver] += per_s * load.message_bytes
    for index, population in enumerate(plan.populations):
        if population.link and population.clients:
            yield population.clients * max(
                sum(_held(each, way[index] / population.clients) for way in (sent, received))
                for each in population.link
            )


def _held(link: LinkConditions, bytes_per_s: float) -> float:
    """Returns the bytes that one direction of one link holds under a load."""
    delay_s = (link.delay_ns + link.jitter_ns) / SECOND_NS
    if link.bits_per_s is None:
        return min(LINK_BYTES, bytes_per_s * delay_s)
    rate_bytes = link.bits_per_s / 8
    room = BUFFER_BYTES + rate_bytes * delay_s
    return room if bytes_per_s > rate_bytes else min(room, bytes_per_s * delay_s)

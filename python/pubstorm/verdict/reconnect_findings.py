"""Connections that a broker ends again and again, soon after it accepted them: the sign of client
ids that two programs share. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantity import count_text, counted, span_text
from pubstorm.result import LimitedBy, Measured
from pubstorm.snapshot import Reason
from pubstorm.verdict.findings import Finding

ENDED_EACH = 3
"""Connections of each client, in the mean, that a broker must have ended."""
SHORT_S = 15.0
"""Mean time between two connections of a client up to which they count as short."""
OTHERWISE = (Reason.KEEP_ALIVE_TIMEOUT, Reason.PROTOCOL_ERROR, Reason.SOCKET_ERROR)
"""Ends of connections that the broker did not ask for."""


def _taken_over(measured: Measured) -> Iterable[Finding]:
    """Populations whose clients were accepted and sent away again and again. Restarts of a broker
    end each connection once; faults explain what they broke."""
    if measured.faults or any(event.kind in {"broker", "restart"} for event in measured.events):
        return
    for name, population in measured.populations.items():
        otherwise = sum(population.outcomes.get(reason, 0) for reason in OTHERWISE)
        ended = population.disconnected_total - otherwise
        if not population.asked or ended < ENDED_EACH * population.asked:
            continue
        between_s = measured.duration_s * population.asked / max(population.connected_total, 1)
        if between_s <= SHORT_S:
            yield Finding(
                f"{name}: the broker accepted {counted(population.connected_total, 'connection')} "
                f"of {counted(population.asked, 'client')} and ended {count_text(ended)} of them, "
                f"each client every {span_text(between_s)}: another program probably uses the same "
                "client ids, or the broker's rules end these sessions; look for a second run and "
                "at the broker's log, or change client_id",
                LimitedBy.BROKER,
            )


RECONNECT_RULES = (_taken_over,)

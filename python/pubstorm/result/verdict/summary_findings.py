"""Findings about stalled subscribers, targets with more than their share, and latencies of which
the generator made too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubstorm.metrics import columns_of
from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import count_text, counted, share_text, span_text
from pubstorm.result import Measured, StalledSubscriber, TargetResult
from pubstorm.result.figures import ROUND_TRIP, evaluate, from_send, from_send_text
from pubstorm.result.verdict.findings import Finding, carrier, with_faults

UNEVEN_FACTOR = 1.1
"""Largest share of a target, by that of the plan."""
NAMED_MAX = 3
"""Stalled subscribers that are named in a finding."""


def _stalls(measured: Measured) -> Iterable[Finding]:
    """Subscribers that stalled. Those that got nothing more count as lost deliveries do: of what
    carries their messages, unless a fault explains them."""
    broken = {stage.name for stage in with_faults(measured)}
    for name, population in measured.populations.items():
        stalls = [stall for stall in measured.stalls if stall.population == name]
        for_good = [stall for stall in stalls if stall.lasted]
        lasting = population.stalled
        if lasting:
            text = (
                f"{name}: {counted(lasting, 'subscriber')} stalled and got nothing more before the "
                f"stage ended{_named(for_good, lasting)}"
            )
            explained = stalls and all(stall.stage in broken for stall in stalls)
            yield Finding(text, None if explained else carrier(population)())
        passing = max(population.stalled_total, len(stalls)) - lasting
        if passing > 0:
            over = [stall for stall in stalls if not stall.lasted]
            text = f"{name}: {counted(passing, 'time')} a subscriber stalled and recovered"
            yield Finding(text + _named(over, passing))


def _named(stalls: Sequence[StalledSubscriber], total: int) -> str:
    """The first of some stalls, each with its time."""
    if not stalls:
        return ""
    shown = [_in_words(stall) for stall in stalls[: min(NAMED_MAX, total)]]
    left = total - len(shown)
    return f": {', '.join(shown)}" + (f" and {count_text(left)} more" if left > 0 else "")


def _in_words(stall: StalledSubscriber) -> str:
    until = "" if stall.until_s is None else f" to {span_text(stall.until_s)}"
    until = " on" if stall.lasted else until
    due = f"{counted(stall.due, 'message')} due"
    return f"{stall.population} {stall.number} (from {span_text(stall.since_s)}{until}, {due})"


def _balance(measured: Measured) -> Iterable[Finding]:
    """The target of each name that is furthest above its share. It is evidence only, since clients
    choose their targets."""
    groups: dict[str, list[TargetResult]] = {}
    for target in measured.balance:
        groups.setdefault(target.group, []).append(target)
    for group, targets in groups.items():
        beyond = [t for t in targets if t.share > UNEVEN_FACTOR * t.planned_share]
        if not beyond:
            continue
        worst = max(beyond, key=lambda target: target.share - target.planned_share)
        connected = sum(target.connected_max for target in targets)
        others = f", and {count_text(len(beyond) - 1)} more had too much" if beyond[1:] else ""
        yield Finding(
            f"{group} was not in balance: {worst.name} had {count_text(worst.connected_max)} of "
            f"{counted(connected, 'connection')}, {share_text(worst.share)}; by the plan "
            f"{share_text(worst.planned_share)}{others}"
        )


def _from_send(measured: Measured) -> Iterable[Finding]:
    """Latencies of populations of which the generator made too much."""
    for name in measured.populations:
        for metric, what in _LATENCIES.items():
            shown = []
            for statistic in ("p50", "p99"):
                asked = Expression(name, metric, statistic)
                found, sent = evaluate(measured, asked), from_send(measured, asked)
                if sent is not None:
                    shown.append(f"{statistic} {found}, {from_send_text(asked, sent)}")
            if shown:
                text = f"{name}: the generator made a part of the {what}: {'; '.join(shown)}"
                bound = " (a bound, by the lateness of all messages)"
                yield Finding(text + (bound if metric == ROUND_TRIP else ""))


_LATENCIES = {
    **{
        metric.name: column.head.replace("p99", "latency")
        for metric, column in columns_of("headline")
    },
    ROUND_TRIP: "round trips",
}
SUMMARY_RULES = (_stalls, _balance, _from_send)

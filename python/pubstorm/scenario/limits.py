"""Limits of thresholds that count clients or bridges: in percent of all of them, or as numbers that
can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, floor

from pubstorm.metrics.thresholds import Threshold
from pubstorm.quantities import ROUNDING_DIGITS, rounded, write_count
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import meant_by, shares_of


def check_limits(scenario: Scenario) -> Iterator[Finding]:
    """Yields limits that cannot be reached, and counts that do not follow the scale."""
    for number, threshold in enumerate(scenario.thresholds):
        path: Path = ("thresholds", number)
        if threshold.expression.unit != "":
            continue
        if threshold.expression.figure.of_a_size:
            yield from _check_size(path, threshold, scenario)
        elif scenario.scale != 1 and _asks_for_some(threshold):
            message = (
                f"found a count in {threshold.source!r}, and a scale, which does not change it"
            )
            hint = "ask for a rate or a share, or leave the scale out"
            yield path, f"{message}, allowed are limits that hold at any size", hint


def with_limits(scenario: Scenario) -> Scenario:
    """The scenario with a number for each limit in percent of clients or bridges."""
    lines = tuple(_in_numbers(threshold, scenario) for threshold in scenario.thresholds)
    changed: dict[str, object] = {"thresholds": lines}
    if scenario.sweep is not None:
        rules = (
            _in_numbers(rule, scenario) if isinstance(rule, Threshold) else rule
            for rule in scenario.sweep.stop_when
        )
        changed["sweep"] = scenario.sweep.model_copy(update={"stop_when": tuple(rules)})
    return scenario.model_copy(update=changed)


def _check_size(path: Path, threshold: Threshold, scenario: Scenario) -> Iterator[Finding]:
    size = _size(scenario, threshold.expression.subject)
    if size is None:
        if threshold.is_part:
            message = f"found a limit in percent in {threshold.source!r}, allowed is a number"
            yield path, message, "only populations and bridges have a number of their own"
        return
    if threshold.is_part or threshold.value == 0:
        return
    name = threshold.expression.subject or "the populations"
    limit, there = write_count(threshold.value), write_count(size)
    if _asks_for_some(threshold) and threshold.value + (threshold.op == ">") > size:
        message = f"found {limit}, but {name} can have {there}, allowed is up to {there}"
        yield path, message, f"write {_share_hint(threshold)}: it follows the size"
    elif scenario.scale != 1:
        message = f"found {limit} of {there}, and a scale, which does not change that number"
        hint = f"write {_share_hint(threshold)}: it follows the scale"
        yield path, f"{message}, allowed with a scale is a limit in percent", hint


def _share_hint(threshold: Threshold) -> str:
    return f"{threshold.expression} {threshold.op} 100%"


def _asks_for_some(threshold: Threshold) -> bool:
    """Returns True if only a count above 0 meets the threshold."""
    figure = threshold.expression.figure
    is_of_clients = figure.of_a_size or (figure.kind == "counter" and "population" in figure.of)
    return is_of_clients and threshold.value > 0 and threshold.op in {"==", ">=", ">"}


def _in_numbers(threshold: Threshold, scenario: Scenario) -> Threshold:
    size = _size(scenario, threshold.expression.subject)
    if not threshold.is_part or size is None:
        return threshold
    exact = round(threshold.value * size, ROUNDING_DIGITS)
    match threshold.op:
        case ">=" | "<":
            value = ceil(exact)
        case "<=" | ">":
            value = floor(exact)
        case _:
            value = rounded(exact)
    source = f"{threshold.expression} {threshold.op} {write_count(value)}"
    return replace(threshold, value=value, source=source, is_part=False)


def _size(scenario: Scenario, subject: str | None) -> int | None:
    """Returns the number of clients or bridges of a name; None if it has none."""
    shares = shares_of(scenario)
    if subject is None:
        return sum(share.clients for share in shares.values())
    bridge = scenario.topology.bridges.get(subject)
    if bridge is not None:
        brokers = scenario.topology.brokers.get(bridge.from_)
        return None if brokers is None else brokers.count
    meant = meant_by(shares, subject)
    return sum(shares[name].clients for name in meant) if meant else None

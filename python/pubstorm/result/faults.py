"""Faults: what was broken on purpose, and how what it hit came back. It judges nothing."""

from __future__ import annotations

from typing import Literal

from pubstorm.value import Value


class Recovery(Value):
    """How many were connected around a fault, and when they were again. Times are seconds after
    the fault was mended; null: not before the end of the stage."""

    before: int
    """Connected when the fault began."""
    lowest: int
    """Connected at the worst moment."""
    first_s: float | None = None
    """Until the first one of those that were lost was back."""
    most_s: float | None = None
    """Until 99 % of those that were there before were there again."""
    all_s: float | None = None
    """Until all of them were."""


class FaultResult(Value):
    """Something that was broken on purpose."""

    stage: str
    """Name of the stage."""
    name: str
    """Name of the phase that begins with it."""
    kind: Literal["stop", "kill", "freeze", "cut", "delay"]
    """What was done."""
    victims: tuple[str, ...]
    """Names of the brokers or bridges that it hit."""
    at_s: float
    """When it began, after the start of the run."""
    mended_at_s: float | None
    """When it was mended: brokers accept connections again, bridges may connect; null: never."""
    clients: Recovery | None = None
    """Clients of the load; null: none was lost."""
    bridges: Recovery | None = None
    """Bridges; null: there are none, or none was lost."""
    backlog_peak: int | None = None
    """Most messages that were due and not yet received or acknowledged; null: nothing was due."""
    drained_s: float | None = None
    """Time from when it was mended until the load was carried again and the backlog was gone; null:
    not before the end of the stage."""
    evidence: tuple[str, ...] = ()
    """The facts, each with its numerators."""

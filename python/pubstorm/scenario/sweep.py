"""Sweep: one scenario played many times, with values that vary. The docstrings are the reference
that users read. It applies no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Duration, SmallCount, Text, one_of

SECOND_NS = 10**9


class Sweep(Part):
    """A series of steps: each is the scenario with some values changed."""

    vary: Mapping[str, Any] = Field(default_factory=dict)
    """Lists of values by path, such as `populations.device.clients: [500, 1000]`; several paths
    make a grid, the last one varying fastest."""
    steps: tuple[Mapping[str, Any], ...] = ()
    """Instead of `vary`: the steps one by one, each with its values by path."""
    repeat: SmallCount = 1
    """How often each step is played."""
    broker: Annotated[Literal["fresh", "same"], BeforeValidator(one_of("fresh", "same"))] = "fresh"
    """Whether each step has brokers of its own, or all use those started for the first."""
    pause: Duration = 2 * SECOND_NS
    """Wait between two steps."""
    stop_when: tuple[Text, ...] = ()
    """What ends the series early: `failed`, `invalid`, or conditions as in thresholds."""
    notes: Mapping[str, Text] = Field(default_factory=dict)
    """Free words for steps, by their label or number, for the table."""

"""Monitors of another host: `pubstorm monitor` serves them there, a run reads them over HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.contract.plan import Plan
from pubstorm.contract.source import Source
from pubstorm.measure.monitors import Monitor
from pubstorm.scenario.monitors import Remote


def monitors_of(source: Source, wanted: Remote, _: Plan) -> Iterable[Monitor]:
    """Returns the monitors of another host, and of a process of it."""
    from pubstorm.measure.monitors.remote.client import remote_monitors

    return remote_monitors(source, wanted)

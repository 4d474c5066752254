"""Memory needs of the steps of a series."""

from __future__ import annotations

from dataclasses import replace

from pubstorm.host.fit import unfit_here
from pubstorm.host.preflight import Host
from pubstorm.scenario import parse_scenario

MILLION = """\
topology: {brokers: {b: {kind: mosquitto, count: 51}}}
populations: {c: {clients: 1M, publications: [{topic: t, rate: 1/h}]}}
"""


def test_a_step_that_needs_more_memory_than_there_is_says_so() -> None:
    scenario, host = parse_scenario(MILLION, "s.yaml"), replace(Host.here(), descriptors=20_000)
    assert unfit_here(scenario, replace(host, memory_bytes=20 * 10**9)) is None
    words = unfit_here(scenario, replace(host, memory_bytes=8 * 10**9))
    assert words == "it needs about 9.79 GB of memory, 8.00 GB are available"

"""Brokers that end during a run: events, restarts, and limits of restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pubstorm.scenario.topology import Restart
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology import BrokerDied, BrokerEvent, BrokerRestarted, Topology, supervision
from pubstorm.topology.supervision import EventReporter
from tests.system.topology.conftest import up

Events = asyncio.Queue[BrokerEvent]


def restart(at_most: int) -> Restart:
    return Restart.model_validate({"at_most": at_most, "within": "1h"})


@asynccontextmanager
async def one_broker(
    folder: Path, policy: Restart | None
) -> AsyncIterator[tuple[Topology, Events]]:
    """One broker, `main-0`; any event that a test does not take is a failure."""
    events = Events()
    broker = {"kind": "embedded", "restart": policy or "never"}
    spec = TopologySpec.model_validate({"brokers": {"main": broker}})
    async with up(Topology(spec, folder, events.put_nowait)) as topology:
        yield topology, events
    assert events.empty()


async def test_one_that_ends_is_started_again_until_it_flaps(tmp_path: Path) -> None:
    async with one_broker(tmp_path, restart(2)) as (topology, events):
        broker, pids = topology.broker("main-0"), set()
        for _ in range(2):
            pids.add(broker.pid)
            broker.send(signal.SIGKILL)
            event = await events.get()
            assert isinstance(event, BrokerRestarted)
            assert f"was started again (pid {broker.pid})" in event.text
        broker.send(signal.SIGKILL)
        event = await events.get()
        assert isinstance(event, BrokerDied)
        assert "was started again 2 times within 1h and stays down" in event.text
        assert broker.gone() and broker.pid not in pids and len(pids) == 2
        [result] = topology.results()
        assert (result.restarts, result.died) == (2, True)


async def test_one_that_cannot_be_started_again_flaps_as_well(tmp_path: Path) -> None:
    async with one_broker(tmp_path, restart(2)) as (topology, events):
        broker = topology.broker("main-0")
        broker._command = ("/bin/false",)
        broker.send(signal.SIGKILL)
        texts = [(await events.get()).text for _ in range(3)]
        assert ["did not come up again" in text for text in texts] == [True, True, False]
        assert "exited with code 1: it flaps" in texts[2]
        assert topology.results()[0].restarts == 0


@pytest.mark.parametrize("policy", [None, restart(1)])
async def test_an_end_that_is_expected_is_neither_reported_nor_repaired(
    policy: Restart | None, tmp_path: Path
) -> None:
    async with one_broker(tmp_path, policy) as (topology, events):
        broker = topology.broker("main-0")
        for _ in range(3):
            topology.expect("main-0", True)
            broker.send(signal.SIGKILL)
            await broker.ending()
            await broker.restart()
            topology.expect("main-0", False)
        [result] = topology.results()
        assert (result.restarts, result.died) == (0, False)
        broker.send(signal.SIGKILL)
        event = await events.get()
        assert isinstance(event, BrokerDied if policy is None else BrokerRestarted)


async def test_many_events_are_reported_in_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "REPORTED_SINGLY", 2)
    monkeypatch.setattr(supervision, "SUM_AFTER_S", 0.0)
    events = Events()
    reporter = EventReporter(events.put_nowait)
    for number in range(1000):
        reporter.report(BrokerRestarted(f"b-{number}", f"b-{number} ended"))
    reporter.report(BrokerDied("b-7", "b-7 flaps"))
    texts = [(await events.get()).text for _ in range(4)]
    more = "998 more brokers were started again, the last: b-999 ended"
    assert texts == ["b-0 ended", "b-1 ended", "b-7 flaps", more]
    assert events.empty()

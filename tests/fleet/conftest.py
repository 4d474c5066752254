"""A fake engine for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.plan import Attachment, HoldAction, Plan, Population, PublishAction, Stage, Target

SlotMaker = Callable[[int], list[LocalSlot]]
PlanMaker = Callable[..., Plan]


@pytest.fixture
def fake_engine(tmp_path: Path) -> Path:
    """The fake agent as a program."""
    engine = tmp_path / "fake-engine"
    agent = Path(__file__).with_name("fake_agent.py")
    engine.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{agent}" "$@"\n')
    engine.chmod(0o755)
    return engine


@pytest.fixture
def slots(fake_engine: Path, tmp_path: Path) -> SlotMaker:
    """Makes slots whose engine is the fake agent."""

    def make(agents: int) -> list[LocalSlot]:
        commands = [engine_command(fake_engine, i, agents) for i in range(agents)]
        return [LocalSlot(command, tmp_path / f"{i}.log") for i, command in enumerate(commands)]

    return make


@pytest.fixture
def plan_named() -> PlanMaker:
    """Makes a plan of 10 clients whose name says how the fake agent behaves."""

    def make(name: str, *actions: PublishAction | HoldAction) -> Plan:
        population = Population(
            name="device",
            clients=10,
            first=0,
            at=Attachment(first=0, count=1),
            client_id="device-{n}",
            username=None,
            password=None,
            tls=None,
            keep_alive_s=60,
            clean_session=True,
            will=None,
            connect_timeout_ns=10**10,
            reconnect=None,
            read_rate_per_s=None,
            subscriptions=(),
            publications=(),
        )
        stages = (Stage(name=a.kind, action=a, populations=(0,)) for a in actions)
        return Plan(
            name=name,
            run_tag=1,
            seed=1,
            targets=(Target(host="127.0.0.1", port=1883),),
            targets_joined=False,
            sources=(),
            snapshot_interval_ns=10**9,
            drain_ns=10**8,
            populations=(population,),
            stages=tuple(stages),
        )

    return make

"""A fake engine as a program, and plans for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm.contract.plan import Action, Plan, PlannedStage
from tests.kit import made

PlanMaker = Callable[..., Plan]


@pytest.fixture
def fake_engine(tmp_path: Path) -> Path:
    """The fake agent as a program."""
    engine = tmp_path / "fake-engine"
    agent = Path(__file__).with_name("fake_agent.py")
    engine.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{agent}" "$@"\n')
    engine.chmod(0o755)
    return engine


def planned(name: str, *actions: Action) -> Plan:
    """A plan of 10 clients whose name says how the fake agent behaves."""
    stages = tuple(PlannedStage(name=a.kind, action=a, populations=(0,)) for a in actions)
    return made.plan(made.clients("device"), name=name, drain_ns=10**8, stages=stages)


@pytest.fixture
def plan_named() -> PlanMaker:
    """Makes plans by name and stages."""
    return planned

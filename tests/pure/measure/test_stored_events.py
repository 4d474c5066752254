"""Events, stages, changes and faults as the run directory stores them."""

from __future__ import annotations

import pytest

from pubstorm.contract.plan import AddClients, ChangeRate
from pubstorm.measure.run_log import (
    AppliedChange,
    AppliedFault,
    StageEntered,
    Stored,
    StoredChange,
    StoredFault,
    stored_event,
)
from pubstorm.plan.stages import Commands, PlannedFault
from pubstorm.result import Event

FAULT = PlannedFault(1, "kill cloud", "kill", 10**9, None, "cloud", (0, 2))


@pytest.mark.parametrize(
    "stored",
    [
        Event(at_s=1.5, kind="change", text="2 × device"),
        StageEntered(at_s=0.1, stage=1),
        StageEntered(at_s=0.1, stage=1, by_user=True),
        StoredChange(change=AppliedChange(1, 10**12, "2 × device", 0, ChangeRate(factor=2))),
        StoredChange(change=AppliedChange(1, 5, "+5 late", 3, AddClients(clients=5, over_ns=9))),
        StoredFault(fault=AppliedFault(FAULT, 7, 9, ["broker cloud-0 did not come up"])),
    ],
    ids=lambda stored: type(stored).__name__,
)
def test_a_stored_line_is_read_again(stored: Stored) -> None:
    assert stored_event(stored.model_dump_json()) == stored


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"kind": "enter"}', b"\xff"])
def test_a_broken_line_is_left_out(line: bytes) -> None:
    assert stored_event(line) is None


def test_no_password_of_a_command_is_stored() -> None:
    commands = Commands("curl http://me:secret@cloud/stop", "start secret", "tcp :1883", 1)
    planned = PlannedFault(1, "outage", "command", 0, 10**9, commands=commands)
    stored = AppliedFault(planned, 1).without_secrets()
    assert stored.planned.commands == Commands("curl http://***@cloud/stop", None, None, 1)
    assert "secret" not in StoredFault(fault=stored).model_dump_json()

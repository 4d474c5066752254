"""Real processes, watched together as one source."""

from __future__ import annotations

from collections.abc import Sequence

import psutil
import pytest

from pubstorm.host.members import LocalProcesses, members_of
from pubstorm.host.proc import HOST_BYTES
from pubstorm.measure.monitors import process
from pubstorm.measure.monitors.process import GroupMonitor, GroupPart
from tests.kit import made
from tests.kit.serving import until
from tests.system.monitors.conftest import BUSY, WAITING, ChildMaker, read


def monitor(pids: Sequence[int]) -> GroupMonitor:
    return GroupMonitor(made.source("boxes"), [GroupPart(LocalProcesses(), lambda: pids)])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MEMBERS_PER_S", 1e9)


def test_the_members_of_a_group_are_added_up(child: ChildMaker) -> None:
    pids = [child(WAITING).pid for _ in range(3)]
    found, [one] = read(monitor(pids)), members_of(pids[:1])
    assert found["processes"] == found["threads"] == 3
    assert found["descriptors"] == sum(psutil.Process(pid).num_fds() for pid in pids)
    memory = [psutil.Process(pid).memory_info() for pid in pids]
    assert found["rss_bytes"] == sum(each.rss for each in memory)
    assert found["private_bytes"] == sum(each.rss - each.shared for each in memory)
    assert found["virtual_bytes"] == sum(each.vms for each in memory)
    assert found["memory"] == pytest.approx(found["rss_bytes"] / HOST_BYTES, abs=1e-5)
    assert 0 < one.memory.private < one.memory.resident < one.memory.virtual


def test_cpu_never_falls_when_members_end_and_others_come(child: ChildMaker) -> None:
    busy, waiting = child(BUSY), child(WAITING)
    pids = [busy.pid, waiting.pid]
    watched = monitor(pids)
    assert "cpu" not in read(watched)
    until(lambda: read(watched)["cpu_user"] > 0)
    busy.kill()
    busy.wait()
    ended = read(watched)
    assert (ended["processes"], ended["cpu"]) == (1, 0)
    pids[0] = child(BUSY).pid
    again = read(watched)
    assert (again["processes"], again["cpu"]) == (2, 0), "nothing is known of it yet"


def test_a_large_group_is_read_less_often(
    child: ChildMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = monitor([child(WAITING).pid])
    monkeypatch.setattr(process, "MEMBERS_PER_S", 1e-3)
    assert read(watched)
    assert read(watched) == {}


def test_a_process_that_is_not_there_uses_nothing(child: ChildMaker) -> None:
    started = child(WAITING)
    started.kill()
    started.wait()
    assert members_of([started.pid]) == []
    assert read(monitor([started.pid]))["processes"] == 0

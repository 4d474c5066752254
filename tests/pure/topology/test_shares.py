"""Shares of a host, without one: where cgroups are looked for, and words where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import TopologyError
from pubstorm.host import shares
from pubstorm.host.shares import Hierarchy, MemoryCgroup, NoCgroupError, remove_cgroup
from pubstorm.play.down import take_down
from pubstorm.report import SCENARIO_FILE
from pubstorm.scenario.topology import ScenarioTopology
from pubstorm.topology.broker import Place
from pubstorm.topology.shares import Shares, check_processors
from pubstorm.topology.started import StartRecord

V1 = "25 20 0:22 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2 = "26 20 0:23 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
INNER = "25 20 0:22 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
LIMIT = 100_000_000


@pytest.mark.parametrize(
    ("groups", "mounts", "folder", "version"),
    [
        ("4:memory:/own\n0::/\n", V1 + V2, "/sys/fs/cgroup/memory/own", 1),
        ("0::/user.slice/me\n", V2, "/sys/fs/cgroup/user.slice/me", 2),
        ("4:memory:/docker/a\n", INNER, "/sys/fs/cgroup/memory", 1),
        ("4:memory:/docker/a/b\n", INNER, "/sys/fs/cgroup/memory/b", 1),
        ("0::/\n", V1 + V2, "/sys/fs/cgroup", 2),
    ],
)
def test_the_cgroup_of_this_process_is_found(
    tmp_path: Path, groups: str, mounts: str, folder: str, version: int
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts)
    assert Hierarchy.here(tmp_path) == Hierarchy(Path(folder), version)


def test_a_host_without_cgroups_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NoCgroupError, match="cannot read"):
        Hierarchy.here(tmp_path)
    (tmp_path / "cgroup").write_text("1:cpu:/\n")
    (tmp_path / "mountinfo").write_text(V1 + V2)
    with pytest.raises(NoCgroupError, match="no cgroup"):
        Hierarchy.here(tmp_path)


def made_up(folder: Path, version: int) -> None:
    """Makes a folder in which a cgroup can be made that has the files of a kernel."""
    folder.mkdir(parents=True)
    if version == 2:
        (folder / "cgroup.subtree_control").touch()


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_is_written_to_the_files_of_its_version(tmp_path: Path, version: int) -> None:
    own, noted = tmp_path / "outer" / "own", list[str]()
    made_up(own, version)
    cgroup = MemoryCgroup.make("main-0", LIMIT, noted.append, Hierarchy(own, version))
    assert noted == [str(cgroup.folder)] and cgroup.folder.parent == own
    assert cgroup.limit_bytes == LIMIT and cgroup.kills == 0
    assert cgroup.prefix[-1] == str(cgroup.folder / "cgroup.procs")
    file = "memory.oom_control" if version == 1 else "memory.events"
    (cgroup.folder / file).write_text("oom 3\noom_kill 2\n")
    assert cgroup.kills == 2


def test_version_2_has_a_cgroup_beside_that_of_the_run(tmp_path: Path) -> None:
    own = tmp_path / "outer" / "own"
    made_up(own.parent, 2)
    own.touch()
    cgroup = MemoryCgroup.make("main-0", LIMIT, lambda _: None, Hierarchy(own, 2))
    assert cgroup.folder.parent == own.parent
    with pytest.raises(NoCgroupError, match="Not a directory"):
        MemoryCgroup.make("main-0", LIMIT, lambda _: None, Hierarchy(own, 1))


def test_only_a_cgroup_of_a_run_is_removed(tmp_path: Path) -> None:
    for name in ("pubstorm-1", "other"):
        (tmp_path / name).mkdir()
    assert not remove_cgroup(tmp_path / "pubstorm-1"), "it is no cgroup"
    (tmp_path / "other" / "cgroup.procs").touch()
    assert not remove_cgroup(tmp_path / "other")
    assert not remove_cgroup(tmp_path / "nowhere")
    assert (tmp_path / "other").is_dir() and (tmp_path / "pubstorm-1").is_dir()


def test_a_broker_without_its_limit_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Hierarchy(tmp_path / "nowhere", 1)
    monkeypatch.setattr(Hierarchy, "here", lambda: nowhere)
    spec = ScenarioTopology.model_validate({"brokers": {"main": {"kind": "nats", "memory": "1GB"}}})
    limits = Shares(spec, lambda _: None)
    place = Place("main-0", tmp_path, group="main")
    assert limits.are_limited and limits.settled(place) is place
    assert limits.limit_bytes("main-0") is None
    (text,) = limits.refused
    assert text.startswith("the memory of broker main-0 has no limit of 1.00 GB: ")
    assert text.endswith("No such file or directory")


def test_absent_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "usable_processors", lambda: {0, 1})
    brokers = {"main": {"kind": "nats", "cpus": [1, 9], "hosts": "there"}}
    spec = ScenarioTopology.model_validate({"brokers": brokers})
    with pytest.raises(TopologyError, match=r"brokers\.main\.cpus: found 9, allowed are") as caught:
        check_processors(spec)
    assert caught.value.exit_code == 2 and caught.value.hint
    check_processors(spec, placed=False)


def test_a_cgroup_that_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    try:
        noted: list[str] = []
        cgroup = MemoryCgroup.make("main-0", LIMIT, noted.append, Hierarchy.here())
    except NoCgroupError as reason:
        pytest.skip(f"this host limits no memory: {reason}")
    run = tmp_path / "run"
    record = StartRecord(run / "topology")
    record.open()
    record.note_cgroup(noted[0])
    record.close()
    (run / SCENARIO_FILE).touch()
    file = run / "topology" / "started.jsonl"
    file.write_text("".join(line for line in file.read_text().splitlines(True)[1:]))
    lines: list[str] = []
    take_down(run, force=False, log=lines.append)
    assert lines[0] == f"removed the cgroup {cgroup.folder}"
    assert not cgroup.folder.exists()

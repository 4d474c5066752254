"""Real processes, watched with their children."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pubstorm.host import members, proc, sockets
from pubstorm.host.counters import datagrams_dropped
from pubstorm.host.members import LocalProcesses
from pubstorm.measure.monitors import MonitorError, process
from pubstorm.measure.monitors.process import ProcessMonitor, find
from pubstorm.scenario.monitors import Process
from tests.kit import made
from tests.kit.serving import until
from tests.system.monitors.conftest import BUSY, WAITING, ChildMaker, read

PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITING!r}], stdin=sys.stdin, stdout=-1)
child.stdout.readline()
{WAITING}
"""
LISTENER = f"""
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
{WAITING}
"""


def monitor(**wanted: object) -> ProcessMonitor:
    return ProcessMonitor(made.source("it"), Process.model_validate(wanted), LocalProcesses())


def test_a_process_is_watched_with_its_children(child: ChildMaker) -> None:
    parent = psutil.Process(child(PARENT).pid)
    family = [parent, *parent.children()]
    both = read(monitor(pid=parent.pid))
    assert both["processes"] == both["threads"] == len(family) == 2
    assert both["rss_bytes"] == sum(each.memory_info().rss for each in family)
    assert both["descriptors"] == sum(each.num_fds() for each in family)


def test_cpu_is_the_share_of_a_core_since_the_last_reading(
    child: ChildMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = child(f"import threading\nthreading.Thread(target=input).start()\n{BUSY}")
    watched = monitor(pid=busy.pid)
    assert "cpu" not in read(watched)
    times = psutil.Process(busy.pid).cpu_times
    before_s = times().user
    # The kernel counts CPU time in hundredths of a second.
    until(lambda: times().user > before_s + 0.5)
    found = read(watched)
    assert found["cpu"] == pytest.approx(found["cpu_user"] + found["cpu_system"], abs=2e-4)
    assert 0 < found["cpu_user"] <= 1.1
    assert found["threads"] == 2
    assert found["thread_cpu_max"] == pytest.approx(found["cpu"], abs=0.1)
    monkeypatch.setattr(members, "THREADS_MAX", 1)
    assert "thread_cpu_max" not in read(watched)


def test_a_thread_that_waits_for_a_processor_has_a_run_delay(child: ChildMaker) -> None:
    one = min(os.sched_getaffinity(0))
    bound = f"import os\nos.sched_setaffinity(0, {{{one}}})\n{BUSY}"
    watched, beside = child(bound), child(bound)
    found = monitor(pid=watched.pid)
    assert "run_delay" not in read(found)
    used = psutil.Process(beside.pid).cpu_times
    before_s = used().user
    until(lambda: used().user > before_s + 0.2)
    readings = read(found)
    assert 0.1 < readings["run_delay"] <= 1
    assert (
        readings["descriptors_max"] == psutil.Process(watched.pid).rlimit(psutil.RLIMIT_NOFILE)[0]
    )


@pytest.mark.parametrize(
    ("line", "folder", "stat"),
    [
        ("0::/broker", "v2", "usage_usec 9\nnr_periods {}\nnr_throttled 1\nthrottled_usec {}\n"),
        ("1:cpu:/broker", "v1", "nr_periods {}\nnr_throttled 1\nthrottled_time {}000\n"),
    ],
)
def test_a_quota_that_holds_a_process_is_seen(
    line: str, folder: str, stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / folder / "broker"
    group.mkdir(parents=True)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"9:pids:/\n{line}\n")
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    roots = {"": (str(tmp_path / "v2"),), "cpu": (str(tmp_path / "v1"),)}
    monkeypatch.setattr(proc, "QUOTA_ROOTS", roots)
    assert proc.throttled_ns(7) is None
    (group / "cpu.stat").write_text(stat.format(0, 0))
    assert proc.throttled_ns(7) is None
    (group / "cpu.stat").write_text(stat.format(40, 1200))
    assert proc.throttled_ns(7) == 1_200_000
    assert proc.throttled_ns(8) is None


def test_disk_traffic_is_a_rate_since_the_last_reading_of_those_that_both_have(
    child: ChildMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = child(WAITING).pid
    (tmp_path / str(pid)).mkdir()
    for name in ("stat", "statm", "fd", "task"):
        (tmp_path / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
    counts = "rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: {}\nwrite_bytes: {}\n"
    io = tmp_path / str(pid) / "io"
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    watched = monitor(pid=pid)
    io.write_text(counts.format(1000, 4096))
    assert "disk_written_bytes_per_s" not in read(watched)
    io.write_text(counts.format(1000, 4096 + 10**9))
    found = read(watched)
    assert found["disk_read_bytes_per_s"] == 0
    assert found["disk_written_bytes_per_s"] > 0
    io.unlink()
    hidden = read(watched)
    assert "disk_written_bytes_per_s" not in hidden
    assert "cpu" in hidden


def test_a_process_is_found_by_the_port_that_it_listens_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        port = int(listener.stdout.readline())
        assert find(Process(port=port)).pid == listener.pid
        listener.communicate()
    with pytest.raises(MonitorError, match=f"no process of this machine .* port {port}"):
        find(Process(port=port))


def test_a_process_is_found_by_its_port_of_udp_where_nothing_listens_on_tcp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert find(Process(port=port)).pid == os.getpid()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", port))
            own = client.getsockname()[1]
            with pytest.raises(MonitorError, match=f"no process of this machine .* port {own}"):
                find(Process(port=own))


def test_datagrams_that_find_a_full_socket_are_counted_at_its_port() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert sockets.datagrams_dropped_at(port) == 0
        before = datagrams_dropped()
        for _ in range(1000):
            client.sendto(bytes(1200), ("127.0.0.1", port))
        server.setblocking(False)
        received = 0
        with contextlib.suppress(BlockingIOError):
            while server.recv(2000):
                received += 1
        assert sockets.datagrams_dropped_at(port) == 1000 - received > 0
        now = datagrams_dropped()
        assert before is not None
        assert now is not None
        assert now - before >= 1000 - received
    assert sockets.datagrams_dropped_at(port) is None


def test_other_descriptors_are_looked_at_only_if_the_first_ones_lack_the_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int | None] = []
    take = sockets.sockets_of

    def noted(pid: int, first: int | None = None) -> set[int]:
        looked.append(first)
        return take(pid, first)

    monkeypatch.setattr(sockets, "sockets_of", noted)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = os.fstat(listener.fileno()).st_ino
        assert sockets.holders({number}, [os.getpid()]) == [os.getpid()]
        assert looked == [sockets.FIRST]
        monkeypatch.setattr(sockets, "FIRST", 1)
        assert sockets.holders({number}, [os.getpid()]) == [os.getpid()]
        assert looked[1:] == [1, None]
    assert sockets.holders({number}, [os.getpid()]) == []


def test_a_process_that_is_started_again_is_found_again(
    child: ChildMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "RETRY_S", (0.0, 0.0))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = LISTENER.replace("0))", f"{port}))")
    watched = monitor(port=port)
    first = child(program)
    assert read(watched)
    first.kill()
    first.wait()
    with pytest.raises(MonitorError, match="has ended"):
        read(watched)
    with pytest.raises(MonitorError, match="no process of this machine"):
        read(watched)
    child(program)
    found = read(watched)
    assert found["processes"] == 1
    assert "cpu" not in found, "nothing is known of it yet"


def test_a_name_must_be_that_of_one_process(tmp_path: Path) -> None:
    program = tmp_path / "oddly-named"
    shutil.copy(str(shutil.which("sleep")), program)
    with pytest.raises(MonitorError, match="no process with the name oddly-named"):
        find(Process(name="oddly-named"))
    first = subprocess.Popen([program, "60"])
    second = None
    try:
        assert find(Process(name="oddly-named")).pid == first.pid
        second = subprocess.Popen([program, "60"])
        with pytest.raises(MonitorError, match="2 processes") as caught:
            find(Process(name="oddly-named"))
        assert f"({first.pid}, {second.pid})" in str(caught.value)
    finally:
        for each in filter(None, (first, second)):
            each.kill()
            each.wait()


@pytest.mark.parametrize("reaped", [True, False])
def test_the_end_of_a_process_is_reported_once(child: ChildMaker, reaped: bool) -> None:
    """A zombie has ended too."""
    started = child(WAITING)
    watched = monitor(pid=started.pid)
    assert read(watched)
    started.kill()
    until(lambda: psutil.Process(started.pid).status() == psutil.STATUS_ZOMBIE)
    if reaped:
        started.wait()
    with pytest.raises(MonitorError, match=f"process {started.pid} has ended"):
        read(watched)
    assert read(watched) == {}


def test_a_process_that_is_followed_goes_on_under_another_id(child: ChildMaker) -> None:
    first = child(BUSY)
    now = {"pid": first.pid}
    watched = ProcessMonitor(made.source("it"), lambda: now["pid"], LocalProcesses())
    read(watched)
    until(lambda: read(watched).get("cpu", 0) > 0)
    first.kill()
    first.wait()
    assert read(watched) == {}, "only the program that started it can report that"
    now["pid"] = child(WAITING).pid
    assert "cpu" not in read(watched), "nothing is known of it yet"
    assert read(watched)["cpu"] >= 0


def test_an_unused_pid_is_a_problem() -> None:
    free = next(pid for pid in range(2**22, 1, -1) if not psutil.pid_exists(pid))
    with pytest.raises(MonitorError, match=f"no process {free}"):
        find(Process(pid=free))


def test_a_process_of_another_user_is_reported_as_far_as_it_can_be_seen(
    child: ChildMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = child(WAITING)

    def refuse(path: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    watched = monitor(pid=started.pid)
    monkeypatch.setattr(Path, "stat", refuse)
    readings = watched.read()
    assert [next(readings).metric for _ in range(6)] == [
        "rss_bytes",
        "private_bytes",
        "virtual_bytes",
        "memory",
        "threads",
        "processes",
    ]
    with pytest.raises(MonitorError, match=r"descriptors of process .* hidden"):
        next(readings)

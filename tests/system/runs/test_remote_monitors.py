"""Whole runs against a broker that is watched by `pubstorm monitor`, a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract import Source
from pubstorm.host.keys.certificates import Authority, CertificateDates
from pubstorm.host.preflight.host import NetworkHost
from pubstorm.scenario.topology import ScenarioNetwork as NetworkSpec
from pubstorm.topology.bridges.network import Network
from tests.kit import program
from tests.kit.runs import MosquittoMaker, Run, RunMaker
from tests.kit.serving import until
from tests.system.runs.underway import (
    check_profile,
    end_stage,
    problems,
    tracks_of,
    until_covered,
    until_profiled,
    until_sampled_after,
    watched,
    whole,
)

pytestmark = pytest.mark.xdist_group("networks")

TOKEN = "0123456789abcdef"
RARELY_S = 2
"""Interval of readings at which a busy host misses few that are due."""
CONDITIONS = """
thresholds: [cloud.cpu < 200%, host-cloud.memory_used.max > 1MB]
profile: {broker: cloud, after: 100ms, for: 1h, frequency: 499}
"""


@dataclass
class Monitor:
    """`pubstorm monitor` as a process of the test."""

    process: subprocess.Popen[str]
    url: str

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


MonitorMaker = Callable[..., Monitor]


@pytest.fixture(scope="module")
def monitor() -> Iterator[MonitorMaker]:
    """Starts `pubstorm monitor`; all are gone after the tests."""
    with contextlib.ExitStack() as started:

        def start(
            *options: str, prefix: Sequence[str] = (), listen: str = "127.0.0.1:0"
        ) -> Monitor:
            words = ("monitor", "--listen", listen, *options)
            process = program.popen(words, prefix=prefix, stderr=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stderr is not None
            line = process.stderr.readline()
            assert " at " in line, line + process.stderr.read()
            return Monitor(process, line.split(" at ")[1].split(",")[0])

        yield start


@pytest.fixture(scope="module")
def played(
    shared_start: RunMaker,
    shared_mosquitto: MosquittoMaker,
    monitor: MonitorMaker,
    shared_folder: Path,
) -> tuple[Run, dict[str, Any]]:
    """A run that is watched by three monitors: one that profiles too, one whose token the run does
    not have, and one that is killed. It ends once another has been read after that."""
    (shared_folder / "token").write_text(f"{TOKEN}\n")
    (shared_folder / "wrong").write_text(f"{TOKEN[::-1]}\n")
    # A broker that lets no message go, however late its subscriber reads.
    broker = shared_mosquitto(max_queued_messages=0)
    served, killed = monitor(), monitor()
    guarded = monitor("--token-file", str(shared_folder / "token"))
    process = {"port": broker.port}
    sources: dict[str, object] = {
        "cloud": {"remote": {"url": served.url, "process": process}},
        "killed": {"remote": {"url": killed.url, "process": process}},
        "refused": {"remote": {"url": guarded.url, "token": "${file:wrong}", "process": process}},
    }
    run = shared_start(
        watched(f"target: {broker.url}\n{CONDITIONS}", sources, interval=f"{RARELY_S}s")
    )
    run.wait_for("publish")
    until_sampled_after(run.directory, "killed", "cpu")
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    run.wait_for("killed: ")
    until_sampled_after(run.directory, "cloud", "cpu")
    until_covered(run.directory, "cloud", "cpu", RARELY_S)
    assert broker.process is not None
    until_profiled(served.process.pid, broker.process.pid)
    end_stage(run.directory)
    run.finish()
    assert served.end(signal.SIGTERM) == 0
    return run, run.result()


def test_a_broker_is_watched_and_profiled_as_if_it_were_local(
    played: tuple[Run, dict[str, Any]],
) -> None:
    run, result = played
    assert unmet(result) == []
    # The process is that of `broker-0`, a target of this machine, which is watched by default.
    for metric in ("processes", "threads"):
        assert whole(result, "cloud", metric)["max"] == whole(result, "broker-0", metric)["max"]
    there, here = (whole(result, source, "rss_bytes") for source in ("cloud", "broker-0"))
    assert there["min"] <= here["max"] and here["min"] <= there["max"]
    assert whole(result, "broker-0", "$SYS/messages/dropped")["max"] == 0
    assert whole(result, "cloud", "cpu")["max"] > 0
    assert whole(result, "host-cloud", "processors")["max"] == os.cpu_count()
    assert whole(result, "host-cloud", "cpu")["max"] > 0
    tracks = tracks_of(run.directory)
    at_s = list(tracks[Source.single("process", "cloud"), "rss_bytes"].at_s)
    assert at_s == sorted(at_s)
    assert 0 <= at_s[0] <= at_s[-1]
    assert min(tracks[Source.single("process", "cloud"), "clock_bound_us"].values) > 0
    check_profile(result, run.directory, "cloud")


def test_monitors_that_refuse_or_are_killed_are_reported_and_the_run_continues(
    played: tuple[Run, dict[str, Any]],
) -> None:
    run, result = played
    found = problems(result)
    # On a busy host, the third monitor may answer late, and is read again.
    late = {"cloud", "host-cloud"}
    assert found.keys() - late == {"killed", "host-killed", "refused", "host-refused"}
    assert "(401)" in found["refused"]
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert backend["received_total"] == device["sent_total"] > 0
    tracks = tracks_of(run.directory)
    assert (
        tracks[Source.single("process", "cloud"), "cpu"].at_s[-1]
        > tracks[Source.single("process", "killed"), "cpu"].at_s[-1]
    )
    stored = [path for path in run.directory.rglob("*") if path.is_file()]
    assert not [path for path in stored if TOKEN[::-1].encode() in path.read_bytes()]


@pytest.mark.skipif(
    not NetworkHost.here(()).makes_namespaces,
    reason="this host or user makes no network namespaces",
)
def test_a_broker_of_another_network_is_watched_with_tls_and_token(
    start: RunMaker, monitor: MonitorMaker, tmp_path: Path
) -> None:
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    network = Network("away", NetworkSpec())
    asyncio.run(network.start())
    with contextlib.ExitStack() as left:
        left.callback(lambda: asyncio.run(network.stop()))
        options = keys_in(tmp_path, network.host)
        config = tmp_path / "mosquitto.conf"
        config.write_text(f"listener 1883 {network.host}\nallow_anonymous true\nuser root\n")
        broker = left.enter_context(
            subprocess.Popen(
                [*network.prefix, binary, "-c", str(config)], stderr=subprocess.DEVNULL
            )
        )
        left.callback(broker.kill)
        until(lambda: accepts(network.host, 1883))
        served = monitor(*options, prefix=network.prefix, listen=f"{network.host}:9700")
        assert served.url == f"https://{network.host}:9700"
        remote = {"url": served.url, "token": "${file:token}", "ca": "keys/ca.crt"}
        # By this name, it is the broker of the target.
        sources: dict[str, object] = {"broker-0": {"remote": {**remote, "process": {"port": 1883}}}}
        conditions = "thresholds: [broker.cpu < 200%, broker-0.rss > 100kB]"
        where = f"target: mqtt://{network.host}:1883\n{conditions}"
        text = watched(where, sources, interval=f"{RARELY_S}s")
        run = start(text)
        until_sampled_after(run.directory, "broker-0", "cpu")
        until_covered(run.directory, "broker-0", "cpu", RARELY_S)
        end_stage(run.directory)
        run.finish()
        result = run.result()
        assert unmet(result) == []
        assert result["monitor_problems"] == []
        assert whole(result, "broker-0", "processes")["max"] == 1
        assert whole(result, "broker-0", "cpu")["count"] > 0
        assert "broker-0" in {model["subject"] for model in result["memory"]}
        # The network of the namespace, without the loopback of this machine.
        assert whole(result, "host-broker-0", "net_received_bytes_per_s")["max"] > 0
        assert served.end(signal.SIGINT) == 0


def unmet(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The thresholds of the scenario that are not met, with what they found."""
    own = [each for each in result["verdict"]["thresholds"] if not each["default"]]
    return [each for each in own if not each["passed"]]


def accepts(host: str, port: int) -> bool:
    """True if a broker accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def keys_in(folder: Path, name: str) -> tuple[str, ...]:
    """Makes token and keys in a folder; the options of `pubstorm monitor`."""
    validity = CertificateDates.of_days(1)
    authority = Authority.new("test", validity)
    made = authority.server([name], validity)
    (folder / "keys").mkdir()
    (folder / "token").write_text(TOKEN)
    (folder / "keys" / "ca.crt").write_bytes(authority.credential.certificate)
    (folder / "keys" / "server.crt").write_bytes(made.certificate)
    (folder / "keys" / "server.key").write_bytes(made.key)
    return (
        *("--token-file", str(folder / "token")),
        *("--cert", str(folder / "keys" / "server.crt")),
        *("--key", str(folder / "keys" / "server.key")),
    )

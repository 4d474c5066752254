"""Whole runs against a broker that is watched by `pubstorm monitor`, a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.keys.authority import Authority, Validity
from pubstorm.host.preflight.network import NetworkHost
from pubstorm.result.samples import read_samples
from pubstorm.scenario.topology import Network as NetworkSpec
from pubstorm.topology.bridges.network import Network

Play = Callable[..., tuple[int, dict[str, Any]]]
RunMaker = Callable[..., Any]
MosquittoMaker = Callable[..., Any]

TOKEN = "0123456789abcdef"
SCENARIO = """
target: {target}
populations:
  device:
    clients: 20
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
  backend:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 3s, disconnect]
monitors:
  interval: 250ms
  sources: {{{name}: {{remote: {remote}}}}}
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


@pytest.fixture
def monitor() -> Iterator[MonitorMaker]:
    """Starts `pubstorm monitor`; all are gone after the test."""
    with contextlib.ExitStack() as started:

        def start(
            *options: str, prefix: Sequence[str] = (), listen: str = "127.0.0.1:0"
        ) -> Monitor:
            command = [sys.executable, "-m", "pubstorm", "monitor", "--listen", listen, *options]
            process = subprocess.Popen([*prefix, *command], stderr=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stderr is not None
            line = process.stderr.readline()
            assert " at " in line, line + process.stderr.read()
            return Monitor(process, line.split(" at ")[1].split(",")[0])

        yield start


def scenario(target: str, remote: str) -> str:
    return SCENARIO.format(target=target, remote=remote, name="cloud")


def asked(url: str, **keys: object) -> str:
    return json.dumps({"url": url, **keys})


def whole(result: dict[str, Any], source: str, metric: str) -> dict[str, Any]:
    """The statistics of one monitored figure over the run."""
    found = [w for w in result["monitors"] if (w["source"], w["metric"]) == (source, metric)]
    assert len(found) == 1, (source, metric, result["monitor_problems"])
    return dict(found[0]["whole"])


def problems(result: dict[str, Any]) -> dict[str, str]:
    return {problem["source"]: problem["text"] for problem in result["monitor_problems"]}


def test_a_broker_is_watched_and_profiled_as_if_it_were_local(
    run: Play, mosquitto: MosquittoMaker, monitor: MonitorMaker, tmp_path: Path
) -> None:
    broker = mosquitto()
    served = monitor()
    remote = asked(served.url, process={"port": broker.port})
    conditions = "thresholds: [cloud.cpu < 200%, host-cloud.memory_used.max > 1MB]\n"
    profile = "profile: {broker: cloud, after: 100ms, for: 2500ms, frequency: 499}\n"
    text = scenario(broker.url, remote) + conditions + profile
    code, result = run(text)
    assert code == 0, result["verdict"]
    assert result["monitor_problems"] == []
    assert all(outcome["passed"] for outcome in result["verdict"]["thresholds"])
    # The process is that of `broker-0`, which this run watches by itself.
    for metric in ("processes", "threads"):
        assert whole(result, "cloud", metric)["max"] == whole(result, "broker-0", metric)["max"]
    assert whole(result, "cloud", "rss_bytes")["max"] == pytest.approx(
        whole(result, "broker-0", "rss_bytes")["max"], rel=0.2
    )
    assert whole(result, "cloud", "cpu")["max"] > 0
    assert whole(result, "host-cloud", "processors")["max"] == os.cpu_count()
    assert whole(result, "host-cloud", "cpu")["max"] > 0
    tracks = read_samples(tmp_path / "run-0" / "samples.csv")
    at_s = list(tracks["cloud", "rss_bytes"].at_s)
    assert at_s == sorted(at_s)
    assert 0 <= at_s[0] <= at_s[-1] <= result["duration_s"] + 3
    assert max(tracks["cloud", "clock_bound_us"].values) < 5e6
    recorded = result["profile"]
    if shutil.which("perf") is not None and "not allowed" not in recorded["text"]:
        assert (recorded["broker"], recorded["status"]) == ("cloud", "recorded"), recorded["text"]
        assert any(symbol["command"] == "mosquitto" for symbol in recorded["symbols"])
        folded = (tmp_path / "run-0" / recorded["folded_file"]).read_text()
        assert folded.startswith("mosquitto;")
    assert served.end(signal.SIGTERM) == 0


def test_a_wrong_token_is_reported_and_the_run_continues(
    run: Play, mosquitto: MosquittoMaker, monitor: MonitorMaker, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "wrong").write_text(f"{TOKEN[::-1]}\n")
    broker = mosquitto()
    served = monitor("--token-file", str(tmp_path / "token"))
    remote = asked(served.url, token="${file:wrong}", process={"port": broker.port})
    code, result = run(scenario(broker.url, remote))
    assert code == 0, result["verdict"]
    found = problems(result)
    assert found.keys() == {"cloud", "host-cloud"}
    assert "refuses the token (401): compare it with the --token-file" in found["cloud"]
    stored = [path for path in (tmp_path / "run-0").rglob("*") if path.is_file()]
    assert not [path for path in stored if TOKEN[::-1].encode() in path.read_bytes()]


def test_a_monitor_that_is_killed_ends_nothing(
    start: RunMaker, mosquitto: MosquittoMaker, monitor: MonitorMaker
) -> None:
    broker, served = mosquitto(), monitor()
    remote = asked(served.url, process={"port": broker.port})
    played = start(
        scenario(broker.url, remote),
        *("--set", "stages=[connect, publish: 4s, disconnect]"),
    )
    played.wait_for_stage("publish", percent=30)
    assert served.end(signal.SIGKILL) == -signal.SIGKILL
    assert played.finish() == 0, played.stderr
    result = played.result()
    found = problems(result)
    assert found.keys() == {"cloud", "host-cloud"}
    assert "cannot be reached (Connection refused): start pubstorm monitor" in found["cloud"]
    assert whole(result, "cloud", "cpu")["count"] > 0
    assert whole(result, "broker-0", "cpu")["count"] > whole(result, "cloud", "cpu")["count"]


@pytest.mark.xdist_group("heavy")
@pytest.mark.skipif(
    not NetworkHost.here(()).makes_namespaces,
    reason="this host or user makes no network namespaces",
)
def test_a_broker_of_another_network_is_watched_with_tls_and_token(
    run: Play, monitor: MonitorMaker, tmp_path: Path
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
        ready(network.host, 1883)
        served = monitor(*options, prefix=network.prefix, listen=f"{network.host}:9700")
        assert served.url == f"https://{network.host}:9700"
        remote = asked(served.url, token="${file:token}", ca="keys/ca.crt", process={"port": 1883})
        target = f"mqtt://{network.host}:1883"
        # By this name, it is the broker of the target.
        text = SCENARIO.format(target=target, remote=remote, name="broker-0")
        code, result = run(f"{text}thresholds: [broker.cpu < 200%, broker-0.rss > 100kB]\n")
        assert code == 0, result["verdict"]
        assert result["monitor_problems"] == []
        assert whole(result, "broker-0", "processes")["max"] == 1
        assert whole(result, "broker-0", "cpu")["count"] > 0
        assert "broker-0" in {model["subject"] for model in result["memory"]}
        # The network of the namespace, without the loopback of this machine.
        assert whole(result, "host-broker-0", "net_received_bytes_per_s")["max"] > 0
        assert served.end(signal.SIGINT) == 0


def ready(host: str, port: int) -> None:
    """Waits until a broker accepts connections."""
    deadline_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline_s, "the broker does not start"


def keys_in(folder: Path, name: str) -> tuple[str, ...]:
    """Makes token and keys in a folder; the options of `pubstorm monitor`."""
    validity = Validity.of_days(1)
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

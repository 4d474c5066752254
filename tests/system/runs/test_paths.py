"""Runs over paths that are slow, far or lossy, with a quiet mosquitto at their end. The evidence
names the path; a busy host of the tests may be named by the verdict."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from pubstorm.host.preflight.host import NetworkHost
from pubstorm.result.verdict.network_findings import STANDING_BYTES
from tests.kit.ports import free_port
from tests.kit.relay import relaying
from tests.kit.runs import MosquittoMaker, RunMaker
from tests.kit.starved import is_busy
from tests.system.runs.underway import end_stage, until_seen, values

pytestmark = [
    pytest.mark.xdist_group("paths"),
    pytest.mark.slow("queues on a path grow for some seconds"),
]

SCENARIO = """
target: mqtt://{address}
populations:
  device:
    clients: {clients}
    publications: [{{topic: "t/{{n}}", rate: 20/s, qos: 1, size: 200B}}]
  backend: {{clients: 1, subscriptions: [{{topic: "t/#", qos: 1}}]}}
stages:
  - connect
  - publish: {time}
drain: 1s
monitors: {{interval: 500ms{sources}}}
thresholds: [ack_latency.max < 1ms]
"""

Facts = Callable[..., list[str]]


@pytest.fixture
def facts(start: RunMaker) -> Facts:
    """Plays the load at an address; the evidence about the path. A host without a free processor
    is the limit instead, and the path stays in the evidence."""

    def play(
        address: str, publish: str = "6s", *, clients: int = 50, pid: int | None = None
    ) -> list[str]:
        sources = "" if pid is None else f", sources: {{broker-0: {{process: {{pid: {pid}}}}}}}"
        words = {"address": address, "time": publish, "clients": clients, "sources": sources}
        run = start(SCENARIO.format_map(words))
        assert run.finish() != 0
        result: dict[str, Any] = run.result()
        verdict = result["verdict"]
        is_starved = verdict["limited_by"] == "host" and is_busy(result)
        assert is_starved or verdict["limited_by"] == "network", verdict
        return [fact for fact in verdict["evidence"] if "broker-0" in fact]

    return play


def about(words: str, found: list[str]) -> bool:
    return any(re.search(words, fact) for fact in found)


def test_a_relay_of_150_kb_a_second_is_the_path(mosquitto: MosquittoMaker, facts: Facts) -> None:
    broker, port = mosquitto(), free_port()
    with relaying(port, broker.port, rate=150_000):
        found = facts(f"127.0.0.1:{port}")
    assert about("broker-0 is a proxy: it passes .* had not read", found), found


def test_a_relay_of_150_ms_is_the_path(mosquitto: MosquittoMaker, facts: Facts) -> None:
    broker, port = mosquitto(), free_port()
    # Few clients: on a busy host, a relay with much to do would be later than its delay. Most
    # messages are outside any stall of the host.
    with relaying(port, broker.port, delay_s=0.15):
        found = facts(f"127.0.0.1:{port}", "8s", clients=5)
    assert about("behind broker-0, a proxy, answered after .*: the path between", found), found


def test_a_broker_that_does_not_read_is_the_broker(
    mosquitto: MosquittoMaker, start: RunMaker
) -> None:
    broker = mosquitto()
    words = {"address": f"127.0.0.1:{broker.port}", "time": "10min", "clients": 50, "sources": ""}
    run = start(SCENARIO.format_map(words))
    run.wait_for("publish")
    broker.signal(signal.SIGSTOP)
    until_seen(run, lambda: unread_mean(run.directory) >= 2 * STANDING_BYTES)
    end_stage(run.directory)
    assert run.finish() != 0
    verdict = run.result()["verdict"]
    assert verdict["limited_by"] == "broker", verdict
    assert about("broker-0 had .* unread", verdict["evidence"]), verdict


def unread_mean(directory: Path) -> float:
    """Returns the mean of what a broker had not read, over all readings."""
    found = values(directory, "broker-0", "tcp_unread_bytes")
    return sum(found) / max(len(found), 1)


HOST = NetworkHost.here(("tbf",))
needs_namespaces = pytest.mark.skipif(
    not HOST.makes_namespaces or find("mosquitto") is None,
    reason="this host or user makes no network namespaces, or mosquitto is not installed",
)
OUTER, INNER = "10.213.77.1", "10.213.77.2"
"""Addresses of the two ends of the link, which no other network has."""


def made(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@pytest.fixture
def distant(tmp_path: Path) -> Iterator[tuple[str, str, int]]:
    """A mosquitto in a network namespace of its own: the namespace, the address, the process."""
    port = free_port()
    # The kernel takes its time to remove a namespace with its link: each has names of its own.
    name = f"path-{port}"
    settings = f"listener {port} {INNER}\nallow_anonymous true\nuser root\n"
    (tmp_path / "mosquitto.conf").write_text(f"{settings}set_tcp_nodelay true\n")
    made(f"ip netns add {name}")
    with contextlib.ExitStack() as ending:
        ending.callback(made, f"ip netns delete {name}")
        made(f"ip link add {name} type veth peer name inner netns {name}")
        made(f"ip address add {OUTER}/30 dev {name}")
        made(f"ip link set {name} up")
        made(f"ip -n {name} address add {INNER}/30 dev inner")
        made(f"ip -n {name} link set inner up")
        command = ["ip", "netns", "exec", name, str(find("mosquitto")), "-c", "mosquitto.conf"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        ending.callback(process.wait)
        ending.callback(process.kill)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection((INNER, port), 1).close()
                break
            time.sleep(0.01)
        yield name, f"{INNER}:{port}", process.pid


@needs_namespaces
@pytest.mark.skipif("tbf" not in (HOST.disciplines or ()), reason="this kernel has no tbf")
def test_a_link_of_150_kb_a_second_is_the_path(distant: tuple[str, str, int], facts: Facts) -> None:
    name, address, pid = distant
    made(f"tc -n {name} qdisc add dev inner root tbf rate 1200kbit burst 5kb limit 30kb")
    found = facts(address, pid=pid)
    assert about("the network took no more|queued in the network|the network lost", found), found


@needs_namespaces
@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
def test_a_loss_of_1_percent_is_the_path(distant: tuple[str, str, int], facts: Facts) -> None:
    name, address, pid = distant
    # The sender must not see the drop, so it lies at this end, for this link alone.
    with contextlib.ExitStack() as ending:
        made(f"nft add table inet {name}")
        ending.callback(made, f"nft delete table inet {name}")
        made(f"nft add chain inet {name} in {{ type filter hook input priority 0 ; }}")
        made(f"nft add rule inet {name} in iifname {name} numgen random mod 100 == 0 drop")
        found = facts(address, pid=pid)
    assert about("TCP of broker-0 sent .* of its segments again: the network", found), found

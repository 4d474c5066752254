"""Situations that are provoked on purpose, each with a run, and the limit that its verdict has to
name. `test_situations.py` plays them, quiet and beside two busy loops."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.host.children import find
from pubstorm.host.preflight.host import NetworkHost
from tests.kit import program
from tests.kit.ports import free_port
from tests.kit.relay import relaying
from tests.kit.runs import Mosquitto, MosquittoMaker, Run, RunMaker
from tests.kit.serving import until
from tests.kit.small_broker import Faults, small_broker
from tests.system.runs.underway import change, end_stage

STRICT = ("--set", "validity.lateness_p99=10ms", "--set", "validity.busy=90%")
"""The rules of invalid runs as users have them."""
COUNTS = ("--set", "validity.lateness_p99=100ms", "--set", "validity.busy=90%")
"""The rules of users who look at counts on a busy host."""
HOST = NetworkHost.here(("tbf",))
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
OUTER, INNER = "10.213.78.1", "10.213.78.2"
"""Addresses of the two ends of the link, which no other network has."""


def load(**changes: Any) -> dict[str, Any]:
    """Returns a scenario: 50 devices send 1,000 messages a second to a backend. `device`, `backend`
    and `publish` change a part, others replace a key."""
    device = {
        "clients": 50,
        "publications": [{"topic": "t/{n}", "rate": "20/s", "qos": 1, "size": "200B"}],
    }
    backend = {"clients": 1, "subscriptions": [{"topic": "t/#", "qos": 1}]}
    stage = {"for": "8s", **changes.pop("publish", {})}
    populations = {
        "device": {**device, **changes.pop("device", {})},
        "backend": {**backend, **changes.pop("backend", {})},
    }
    rest = {"drain": "1s", "snapshot_interval": "500ms", "monitors": {"interval": "500ms"}}
    return {
        "populations": populations,
        "stages": ["connect", {"publish": stage}],
        **rest,
        **changes,
    }


@dataclass
class Place:
    """The place of a situation. All that it starts is gone at its end."""

    folder: Path
    mosquitto: MosquittoMaker
    runs: RunMaker
    ending: contextlib.ExitStack
    rules: tuple[str, ...] = STRICT
    """The rules of invalid runs."""

    def run(self, scenario: Mapping[str, Any], *words: str, **options: Any) -> Run:
        """Starts a run."""
        return self.runs(json.dumps(scenario), *self.rules, *words, **options)

    def at(
        self, broker: Mosquitto, *words: str, options: Mapping[str, Any] = {}, **changes: Any
    ) -> Run:
        """Starts a run against a broker."""
        return self.run(load(target=broker.url, **changes), *words, **options)

    def through(
        self, way: Callable[..., contextlib.AbstractContextManager[None]], **how: Any
    ) -> str:
        """Returns the address of a way to a broker, such as a relay."""
        port = free_port()
        self.ending.enter_context(way(port, self.mosquitto().port, **how))
        return f"mqtt://127.0.0.1:{port}"

    def small(self, **faults: Any) -> dict[str, Any]:
        """Returns a scenario against a small broker with faults."""
        port = free_port()
        self.ending.enter_context(small_broker(port, Faults(**faults)))
        backend = {"subscriptions": [{"topic": "t/#", "qos": 0}]}
        return load(target=f"mqtt://127.0.0.1:{port}", backend=backend)

    def group(self, quota: float) -> Path:
        """Makes a group of processes that gets this share of a processor."""
        group = CPU_GROUPS / f"pubstorm-{free_port()}"
        try:
            group.mkdir()
            (group / "cpu.cfs_quota_us").write_text(f"{round(quota * 100_000)}")
        except OSError:
            pytest.skip("quotas of processors need root and the cpu controller of cgroup v1")
        self.ending.callback(group.rmdir)
        return group

    def loops(self, count: int) -> None:
        """Starts busy loops."""
        for _ in range(count):
            self.ending.enter_context(busy_loop())


@contextlib.contextmanager
def busy_loop() -> Iterator[None]:
    """A process that takes what it gets of a processor."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


@dataclass(frozen=True)
class Situation:
    """One row of the table."""

    name: str
    expected: frozenset[str]
    """Statuses with limits that are right, such as `fail, broker`."""
    play: Callable[[Place], Run]
    says: str
    """Words of the headline or of the evidence."""


SITUATIONS: list[Situation] = []


def situation(name: str, *expected: str, says: str = "") -> Callable[..., Any]:
    """Adds a function that starts the run of a situation."""

    def add(play: Callable[[Place], Run]) -> Callable[[Place], Run]:
        SITUATIONS.append(Situation(name, frozenset(expected), play, says))
        return play

    return add


@situation("a load that the broker carries", "pass, none", says="nothing was lost")
def carried(place: Place) -> Run:
    return place.at(place.mosquitto())


# Brokers


@situation("a broker that works 5 ms at each message", "fail, broker", says="unread")
def slow_broker(place: Place) -> Run:
    return place.run(place.small(work_s=0.005))


@situation("a broker that stands still for 3 s", "fail, broker", says="nothing was received for")
def frozen_broker(place: Place) -> Run:
    broker = place.mosquitto()
    run = place.at(broker)
    run.wait_for_stage("publish", 25)
    broker.signal(signal.SIGSTOP)
    time.sleep(3)
    broker.signal(signal.SIGCONT)
    return run


@situation("a broker with 1 % of a processor by a quota", "fail, broker", says="quota")
def throttled_broker(place: Place) -> Run:
    group, broker = place.group(0.01), place.mosquitto()
    place.ending.callback(broker.kill)
    assert broker.process is not None
    (group / "tasks").write_text(str(broker.process.pid))
    return place.at(broker)


@situation("a broker of least priority beside eight busy loops", "fail, host", says="no processor")
def starved_broker(place: Place) -> Run:
    broker = place.mosquitto()
    assert broker.process is not None
    os.setpriority(os.PRIO_PROCESS, broker.process.pid, 19)
    place.loops(8)
    return place.at(broker)


@situation("a broker out of files", "fail, broker", says="open files")
def out_of_files(place: Place) -> Run:
    broker = place.mosquitto()
    assert broker.process is not None
    subprocess.run(["prlimit", f"--pid={broker.process.pid}", "--nofile=40"], check=True)
    return place.at(broker)


@situation("a broker out of memory", "fail, broker")
def out_of_memory(place: Place) -> Run:
    return place.at(place.mosquitto(memory_limit=60_000))


@situation("a broker that drops what it cannot queue", "fail, broker", says="dropped")
def dropping_broker(place: Place) -> Run:
    broker = place.mosquitto(max_inflight_messages=1, max_queued_messages=5)
    publication = {"topic": "t/{n}", "rate": "4/s", "qos": 1, "size": "200B", "phase": "aligned"}
    return place.at(broker, device={"publications": [publication]})


@situation("a broker that loses each fourth message", "fail, broker", says="were lost")
def losing_broker(place: Place) -> Run:
    return place.run(place.small(lose=4))


@situation("a broker that sends each fourth message twice", "pass, none", says="duplicates")
def repeating_broker(place: Place) -> Run:
    return place.run(place.small(repeat=4))


@situation("a broker that acknowledges nothing", "fail, broker", says="not acknowledged")
def silent_broker(place: Place) -> Run:
    return place.run(place.small(acknowledges=False))


@situation("a broker that holds each delivery for 300 ms", "fail, broker", says="latency")
def late_deliveries(place: Place) -> Run:
    return place.run({**place.small(hold_s=0.3), "thresholds": ["latency.p99 < 200ms"]})


@situation("a broker that is killed", "fail, broker")
def killed_broker(place: Place) -> Run:
    broker = place.mosquitto()
    run = place.at(broker)
    run.wait_for_stage("publish", 25)
    broker.kill()
    return run


@situation("a broker that publishes no will", "fail, broker", says="of them wills")
def lost_wills(place: Place) -> Run:
    rights = place.folder / "acl"
    rights.write_text("topic readwrite t/#\ntopic read gone/#\n")
    device = {"will": {"topic": "gone/{n}", "payload": "gone"}, "end": "abort"}
    backend = {"subscriptions": [{"topic": "t/#", "qos": 1}, {"topic": "gone/#"}]}
    stages = ["connect", {"publish": "3s"}, {"disconnect": {"populations": ["device"]}}]
    broker = place.mosquitto(acl_file=rights)
    return place.at(broker, device=device, backend=backend, stages=stages)


@situation("a broker whose rights forbid what is published", "fail, broker", says="were lost")
def forbidden_topics(place: Place) -> Run:
    rights = place.folder / "acl"
    rights.write_text("topic read t/#\n")
    return place.at(place.mosquitto(acl_file=rights))


# The way to it


@situation("no broker at the target", "invalid, target", says="refused")
def no_broker(place: Place) -> Run:
    return place.run(load(target=f"mqtt://127.0.0.1:{free_port()}", publish={"for": "2s"}))


@situation("a broker that accepts no user", "invalid, target", says="not authorized")
def no_user(place: Place) -> Run:
    return place.at(place.mosquitto(allow_anonymous="false"), publish={"for": "2s"})


@situation("a proxy that passes 150 kB/s", "fail, network", says="proxy")
def slow_proxy(place: Place) -> Run:
    return place.run(load(target=place.through(relaying, rate=150_000)))


@situation("a network of 50 ms each way", "fail, network", says="the path between")
def far_network(place: Place) -> Run:
    target = place.through(relaying, delay_s=0.05)
    return place.run(load(target=target, thresholds=["ack_latency.p99 < 20ms"]))


def namespace(place: Place) -> tuple[str, tuple[str, ...]]:
    """Makes a network namespace: its name, and the prefix of commands in it."""
    if not HOST.makes_namespaces:
        pytest.skip("this host or user makes no network namespaces")
    name = f"verdict-{free_port()}"
    made(f"ip netns add {name}")
    place.ending.callback(made, f"ip netns delete {name}")
    return name, ("ip", "netns", "exec", name)


def link(place: Place) -> tuple[str, str, int]:
    """Starts a mosquitto behind a link: the namespace, its address, its process."""
    if "tbf" not in (HOST.disciplines or ()):
        pytest.skip("this kernel has no tbf")
    if find("mosquitto") is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    port = free_port()
    name, prefix = namespace(place)
    made(f"ip link add {name} type veth peer name inner netns {name}")
    made(f"ip address add {OUTER}/30 dev {name}")
    made(f"ip link set {name} up")
    made(f"ip -n {name} address add {INNER}/30 dev inner")
    made(f"ip -n {name} link set inner up")
    config = place.folder / "distant.conf"
    settings = f"listener {port} {INNER}\nallow_anonymous true\nuser root\n"
    config.write_text(f"{settings}set_tcp_nodelay true\n")
    command = [*prefix, str(find("mosquitto")), "-c", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    place.ending.callback(process.wait)
    place.ending.callback(process.kill)
    until(lambda: accepts(INNER, port))
    return name, f"mqtt://{INNER}:{port}", process.pid


def made(command: str) -> None:
    """Runs a command."""
    subprocess.run(command.split(), check=True, capture_output=True)


def accepts(host: str, port: int) -> bool:
    """Returns True if a broker accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def over(place: Place, address: str, pid: int, latency: str = "latency.p99") -> Run:
    """Starts a run over a link, whose broker is watched too."""
    limit = f"{latency} < 20ms"
    sources = {"broker-0": {"process": {"pid": pid}}}
    monitors = {"interval": "500ms", "sources": sources}
    return place.run(load(target=address, monitors=monitors, thresholds=[limit]))


@situation("a link of 150 kB/s", "fail, network", says="network")
def slow_link(place: Place) -> Run:
    name, address, pid = link(place)
    made(f"tc -n {name} qdisc add dev inner root tbf rate 1200kbit burst 5kb limit 30kb")
    return over(place, address, pid)


@situation("a link that loses 1 % of the packets", "fail, network", says="segments again")
def lossy_link(place: Place) -> Run:
    if shutil.which("nft") is None:
        pytest.skip("nft is not installed")
    name, address, pid = link(place)
    # The sender must not see the drop, so it lies at this end, for this link alone.
    made(f"nft add table inet {name}")
    place.ending.callback(made, f"nft delete table inet {name}")
    made(f"nft add chain inet {name} in {{ type filter hook input priority 0 ; }}")
    made(f"nft add rule inet {name} in iifname {name} numgen random mod 100 == 0 drop")
    # Of 1 % of the packets, a p99 can be on either side. After a lost delivery others follow, so
    # that it is soon sent again; after a lost acknowledgement none follows.
    return over(place, address, pid, "ack_latency.p999")


# The scenario


@situation("subscribers that read slowly on purpose", "fail, scenario", says="slowly on purpose")
def slow_by_scenario(place: Place) -> Run:
    backend = {"read_rate": "50/s"}
    return place.at(place.mosquitto(), backend=backend, thresholds=["latency.p99 < 200ms"])


@situation("a window of one message at 100 ms a round trip", "fail, window", says="window")
def small_window(place: Place) -> Run:
    publication = {"topic": "t/{n}", "rate": "20/s", "qos": 1, "size": "200B", "window": 1}
    device = {"publications": [publication]}
    return place.run(load(target=place.through(relaying, delay_s=0.05), device=device))


@situation("packets above the largest that clients take", "fail, scenario", says="max_packet")
def large_packets(place: Place) -> Run:
    publication = {"topic": "t/{n}", "rate": "20/s", "qos": 1, "size": "2kB"}
    device = {"publications": [publication]}
    return place.at(place.mosquitto(), device=device, max_packet="1024B")


@situation("topics that no filter matches", "fail, unknown", says="no publication matches")
def other_topics(place: Place) -> Run:
    backend = {"subscriptions": ["x/#"]}
    return place.at(place.mosquitto(), backend=backend, thresholds=["backend.lost == 0"])


@situation("client ids that another program uses", "fail, broker", says="another program")
def shared_ids(place: Place) -> Run:
    broker = place.mosquitto()
    device = {"client_id": "same-{n}"}
    place.at(broker, device=device, options={"out": place.folder / "other"})
    return place.at(broker, device=device)


# The load generator and its host


# The host limits an agent that shares all its processors with the broker.
@situation("one agent for a million messages a second", "invalid, generator", "invalid, host")
def too_few_agents(place: Place) -> Run:
    publication = {"topic": "x/{n}", "rate": "1000/s", "qos": 0, "size": "32B"}
    device = {"clients": 1000, "publications": [publication]}
    return place.at(place.mosquitto(), device=device, publish={"for": "5s"}, fleet={"agents": 1})


@situation("an agent with 2 % of a processor by a quota", "invalid, host")
def throttled_agent(place: Place) -> Run:
    group = place.group(0.02)
    run = place.at(place.mosquitto())
    place.ending.callback(run.process.wait)
    run.wait_for_stage("publish")
    for pid in agents_of(run):
        (group / "cgroup.procs").write_text(str(pid))
    return run


@situation("an agent that is killed", "invalid, generator", says="agent 0")
def killed_agent(place: Place) -> Run:
    run = place.at(place.mosquitto())
    run.wait_for_stage("publish", 25)
    for pid in agents_of(run):
        os.kill(pid, signal.SIGKILL)
    return run


def agents_of(run: Run) -> list[int]:
    """Returns the process ids of the agents of a run."""
    children = psutil.Process(run.process.pid).children(recursive=True)
    return [each.pid for each in children if "pubstorm-engine" in each.name()]


@situation("a full host, which carries the load", "pass, none")
def busy_host(place: Place) -> Run:
    place.loops(4)
    return place.at(place.mosquitto())


@situation("a host without ports", "invalid, host", says="ports")
def no_ports(place: Place) -> Run:
    _, prefix = namespace(place)
    ports = "net.ipv4.ip_local_port_range=40000 40019"
    subprocess.run([*prefix, "sysctl", "-qw", ports], check=True)
    subprocess.run([*prefix, "ip", "link", "set", "lo", "up"], check=True)
    broker = {"topology": {"brokers": {"mq": "embedded"}}}
    return place.run({**load(publish={"for": "2s"}), **broker}, prefix=prefix)


# The watchers


@situation("a monitor that dies, and a threshold about it", "fail, unknown", says="not read")
def dead_monitor(place: Place) -> Run:
    words = ("monitor", "--listen", "127.0.0.1:0")
    monitor = program.popen(words, stderr=subprocess.PIPE, text=True)
    place.ending.enter_context(monitor)
    place.ending.callback(monitor.kill)
    assert monitor.stderr is not None
    url = monitor.stderr.readline().split(" at ")[1].split(",")[0]
    broker = place.mosquitto()
    sources = {"cloud": {"remote": {"url": url, "process": {"port": broker.port}}}}
    monitors = {"interval": "500ms", "sources": sources}
    run = place.at(broker, monitors=monitors, thresholds=["cloud.cpu < 200%"])
    run.wait_for_stage("publish", 25)
    monitor.kill()
    return run


@situation("a controller that stands still for 3 s", "pass, none", says="no monitor was read")
def frozen_controller(place: Place) -> Run:
    run = place.at(place.mosquitto(), options={"prefix": program.NEW_PROCESS})
    run.wait_for_stage("publish", 25)
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    run.process.send_signal(signal.SIGCONT)
    return run


# Users


@situation("a pause by hand", "pass, none", says="changed by hand")
def paused(place: Place) -> Run:
    run = place.at(place.mosquitto())
    run.wait_for_stage("publish", 25)
    change(run.directory, "pause")
    time.sleep(1)
    change(run.directory, "pause")
    return run


@situation("a stage that is ended by hand", "pass, none", says="changed by hand")
def ended(place: Place) -> Run:
    run = place.at(place.mosquitto())
    run.wait_for_stage("publish", 50)
    end_stage(run.directory)
    return run


@situation("a run that is ended by hand", "pass, none", says="by the user after")
def ended_run(place: Place) -> Run:
    run = place.at(place.mosquitto())
    run.wait_for_stage("publish", 25)
    run.process.send_signal(signal.SIGINT)
    return run


@situation("a run that is interrupted", "invalid, unknown", says="interrupted")
def interrupted(place: Place) -> Run:
    run = place.at(place.mosquitto())
    run.wait_for_stage("publish", 25)
    run.process.send_signal(signal.SIGTERM)
    return run

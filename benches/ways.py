"""Compares ways to play the same load: `python -m benches.ways [TABLE ...]`. QUIC is beside TLS 1.3
over TCP, resumed sessions of TLS beside full handshakes, and links beside none.

Each figure is a difference of two runs of `pubstorm run`, of which the second has more clients, or
lasts longer. What both have in common is in neither figure: the start of the agent, its timers and
its snapshots. CPU is that of the agent, in user and kernel mode; memory is resident memory. QUIC
and links are played against the embedded broker, TLS against mosquitto, because the embedded broker
has no listener for TLS. The brokers are not in the figures, and run on the same processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches import machine

EMBEDDED = {"kind": "embedded"}
TLS = {"kind": "mosquitto", "tls": "server"}
ROUNDS = 3
NEARLY_ALL = 0.99
"""Part of a load that has to be played in its way: a broker may refuse a session now and then."""
FEW, MANY = 200, 1000
SHORT_S, LONG_S = 5, 15
RUN_TIMEOUT_S = 300
Count = Callable[[Mapping[str, Any]], float]


@dataclass(frozen=True)
class Played:
    """Figures of a run's one agent."""

    cpu_us: float
    memory: float
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """A load in two sizes, and the figure of their difference."""

    name: str
    unit: str
    few: Mapping[str, object]
    many: Mapping[str, object]
    amount: Count
    """By which the difference is divided."""
    is_memory: bool = False


@dataclass(frozen=True)
class Way:
    """A way to play loads."""

    broker: Mapping[str, object]
    keys: Mapping[str, object] = field(default_factory=dict)
    """Keys of the population whose clients are compared."""
    counter: str | None = None
    """Counter that has nearly all of the amount: the load was played in this way; None: no
    check."""


@dataclass(frozen=True)
class Table:
    """Ways, and the loads that are played in each."""

    ways: Mapping[str, Way]
    cases: Sequence[Compared]


def clients(number: int, **keys: object) -> dict[str, object]:
    """Returns a population of clients that send no keep-alive in a run."""
    return {"clients": number, "keep_alive": "10min", "connect_timeout": "30s", **keys}


def idle(number: int, seconds: int, **keys: object) -> dict[str, object]:
    """Returns a scenario of idle clients."""
    stages = [{"connect": {"rate": "100/s"}}, {"hold": f"{seconds}s"}, "disconnect"]
    return {"populations": {"client": clients(number, **keys)}, "stages": stages}


def sending(seconds: int) -> dict[str, object]:
    """Returns a scenario of publishers without subscribers."""
    flow = {"topic": "t/{n}", "rate": "20/s", "size": "64B"}
    return published(seconds, client=clients(100, publications=[flow]))


def receiving(seconds: int) -> dict[str, object]:
    """Returns a scenario of 100 subscribers to one publisher."""
    flow = {"topic": "all", "rate": "20/s", "size": "64B"}
    subscriber = clients(100, subscriptions=[{"topic": "all"}])
    return published(seconds, client=subscriber, source=clients(1, publications=[flow]))


def published(seconds: int, **populations: object) -> dict[str, object]:
    """Returns a scenario with a publish stage."""
    stages = ["connect", {"publish": f"{seconds}s"}, "disconnect"]
    return {"populations": populations, "stages": stages}


def total(name: str) -> Count:
    """Returns the sum of a counter over the populations of a result."""
    return lambda result: sum(each[name] for each in result["populations"].values())


def returning(seconds: int) -> dict[str, object]:
    """Returns a scenario of clients that connect again and again."""
    lifetime = {"from": "400ms", "to": "400ms", "offline": "100ms"}
    source = clients(1, publications=[{"topic": "all", "rate": "1/s", "size": "64B"}])
    return published(seconds, client=clients(100, lifetime=lifetime), source=source)


CONNECT = (
    Compared("connect", "µs", idle(FEW, 1), idle(MANY, 1), total("connected_total")),
    Compared("idle client", "B", idle(FEW, 1), idle(MANY, 1), total("connected_total"), True),
)
PING = (
    Compared(
        "ping and its answer",
        "µs",
        idle(FEW, SHORT_S, keep_alive="1s"),
        idle(FEW, LONG_S, keep_alive="1s"),
        lambda result: FEW * (SHORT_S if result["name"] == "few" else LONG_S),
    ),
)
MESSAGES = (
    Compared("message sent", "µs", sending(SHORT_S), sending(LONG_S), total("sent_total")),
    Compared(
        "message received", "µs", receiving(SHORT_S), receiving(LONG_S), total("received_total")
    ),
)


RETURNS = Compared(
    "connection of a client that returns",
    "µs",
    returning(SHORT_S),
    returning(LONG_S),
    total("connected_total"),
)
TABLES = {
    "quic": Table(
        {"QUIC": Way({**EMBEDDED, "transport": "quic"}), "TLS over TCP": Way(TLS)},
        (*CONNECT, *PING, *MESSAGES),
    ),
    "resumption": Table(
        {
            "without TLS": Way({"kind": "mosquitto"}),
            "full handshake": Way(TLS, counter="tls_full_total"),
            "resumed session": Way(TLS, {"tls": {"resume": "100%"}}, "tls_resumed_total"),
        },
        (RETURNS,),
    ),
    "links": Table(
        {
            "without a link": Way(EMBEDDED),
            "with a delay": Way(EMBEDDED, {"link": {"delay": "5ms"}}),
            "with delay, rate and loss": Way(
                EMBEDDED, {"link": {"delay": "5ms", "rate": "1Mbit/s", "loss": "1%"}}
            ),
        },
        (*CONNECT, *MESSAGES),
    ),
}


def main() -> int:
    """Prints a line for each figure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="ways", description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="default: all")
    names = parser.parse_args().tables or [*TABLES]
    print(machine.describe())
    other_work = machine.OtherWork()
    print(f"median (least–most) of {ROUNDS} rounds, in turn")
    for table in map(TABLES.__getitem__, names):
        print(f"\n| | unit | {' | '.join(table.ways)} |\n| - | - |{' -: |' * len(table.ways)}")
        for case in table.cases:
            rounds = [[_figure(case, way) for way in table.ways.values()] for _ in range(ROUNDS)]
            cells = " | ".join(
                f"{statistics.median(each):,.0f} ({min(each):,.0f}–{max(each):,.0f})"
                for each in zip(*rounds, strict=True)
            )
            print(f"| {case.name} | {case.unit} | {cells} |", flush=True)
    print(f"\nother work took {other_work.share():.0%} of the machine meanwhile")
    return 0


def _figure(case: Compared, way: Way) -> float:
    few, many = (_play(case, size, way) for size in ("few", "many"))
    more = case.amount(many.result) - case.amount(few.result)
    if way.counter is not None:
        counted = (total(way.counter)(each.result) for each in (many, few))
        if (of_way := next(counted) - next(counted)) < NEARLY_ALL * more:
            raise SystemExit(f"{case.name}: {of_way:g} of {more:g} are {way.counter}")
    difference = many.memory - few.memory if case.is_memory else many.cpu_us - few.cpu_us
    return difference / more


def _play(case: Compared, size: str, way: Way) -> Played:
    load = getattr(case, size)
    populations = {**load["populations"]}
    populations["client"] = {**populations["client"], **way.keys}
    scenario = {
        **load,
        "populations": populations,
        "topology": {"brokers": {"broker": way.broker}},
        "fleet": {"agents": 1},
        "defaults": "off",
    }
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / f"{size}.json", Path(folder) / "run"
        path.write_text(json.dumps(scenario))
        command = [sys.executable, "-m", "pubstorm", "run", str(path), "--out", str(out)]
        played = subprocess.run(
            [*command, "--no-report"], capture_output=True, text=True, timeout=RUN_TIMEOUT_S
        )
        if not (out / "result.json").exists():
            raise SystemExit(played.stderr)
        result = json.loads((out / "result.json").read_text())
    lost = total("lost_total")(result) + total("connect_failed_total")(result)
    if lost or result["name"] != size:
        raise SystemExit(f"{case.name}: {lost:g} messages or connections were lost")
    (agent,) = result["fleet"]["agents"]
    return Played(agent["cpu_s"] * 1e6, agent["rss_max_bytes"], result)


if __name__ == "__main__":
    sys.exit(main())

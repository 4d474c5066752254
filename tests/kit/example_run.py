"""Makes run directories without a run: a broker that carries 3000 clients and not 4000, watched at
1 Hz, with a thousand bridged brokers behind it of which fifty are killed. How long it is and how
much is watched can be chosen, for what a report costs."""

from __future__ import annotations

import functools
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pubstorm.contract import Sample
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.report.stored import load_tracks
from pubstorm.result import (
    AgentResult,
    BridgeResult,
    BrokerResult,
    BrokerVersion,
    Cell,
    Environment,
    Event,
    FaultResult,
    FleetResult,
    FlowResult,
    HistogramPair,
    Latency,
    LimitedBy,
    Measured,
    MonitorProblem,
    ObserverTraffic,
    Phase,
    PhaseStatus,
    PopulationResult,
    ProfiledSymbol,
    ProfileResult,
    Rates,
    Recovery,
    RunResult,
    StagePopulation,
    StageResult,
    StaleState,
    Statistics,
    Status,
    ThresholdOutcome,
    ValidityLimits,
    Verdict,
    Watched,
)
from pubstorm.result.samples import HEADER, csv_lines
from tests.kit import made
from tests.kit.made import START_NS
from tests.kit.measured import ENVIRONMENT

SCENARIO = """\
description: 3000 devices, then 4000, then 3000 again
populations:
  device-0: {clients: 3k, publications: [{topic: "t/{n}", rate: 0.166/s, qos: 1, size: 500B}]}
"""
SYSTEM_COUNTERS = {
    "$SYS/messages/received": 1.0,
    "$SYS/messages/sent": 1.5,
    "$SYS/publish/messages/received": 1.0,
    "$SYS/publish/messages/sent": 0.5,
    "$SYS/bytes/received": 530.0,
    "$SYS/bytes/sent": 540.0,
}
STARTED_UNIX_NS = 1_795_262_400 * 10**9
"""Start of the first stage: 2026-11-21 12:00:00 UTC."""
BOXES = 1000
"""Small brokers, each with a bridge to the broker."""
KILLED = 50
"""Number of small brokers that are killed."""
FAULT = (0.15, 0.05)
"""Instants of their deaths, and times until they return: shares of the run."""
SCALES_NS = (300_000.0, 220_000.0)
"""Scales of the latencies from the scheduled instant and from the instant of sending."""
FUNCTIONS = ("mux_poll__handle", "packet__read", "handle__publish", "sub__messages_queue")


@dataclass(frozen=True)
class Shape:
    """Size of a run."""

    duration_s: int = 300
    populations: int = 2
    clients: int = 3000
    other_series: int = 6
    """Tracks of a monitor source that no plot of its own is for."""
    carries: bool = True
    """True if the broker carries the load."""
    seed: int = 1


def write_run(folder: Path, shape: Shape | None = None, **changes: object) -> RunResult:
    """Makes a run directory; `changes` are fields of its result."""
    files, result = _made(shape or Shape())
    result = result.model_copy(update={"run_directory": str(folder), **changes})
    for name, text in {**files, "result.json": result.to_json()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return result


@functools.lru_cache(maxsize=8)
def _made(shape: Shape) -> tuple[dict[str, str], RunResult]:
    """The files of a run by their names, and its result."""
    samples = "".join((",".join(HEADER), "\n", *csv_lines(_samples(shape))))
    files = {
        "samples.csv": samples,
        "scenario.yaml": SCENARIO,
        "profile/folded.txt": "".join(_stacks(random.Random(shape.seed))),
        SNAPSHOTS_FILE: "".join(f"{each.model_dump_json()}\n" for each in _snapshots(shape)),
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "samples.csv").write_text(samples, encoding="utf-8")
        return files, _result(Path(folder), shape)


def _names(shape: Shape) -> list[str]:
    return [*(f"device-{number}" for number in range(shape.populations - 1)), "backend"]


def _spans(shape: Shape) -> dict[str, tuple[float, float]]:
    """Start and end of each phase of the load."""
    marks = [0.04, 0.35, 0.65, 0.96]
    at_s = [mark * shape.duration_s for mark in marks]
    return {"steady": (at_s[0], at_s[1]), "more": (at_s[1], at_s[2]), "less": (at_s[2], at_s[3])}


def _strain(shape: Shape, at_s: float) -> float:
    """Overload of the broker at an instant, as a share of its load."""
    start_s, end_s = _spans(shape)["more"]
    return 0.0 if shape.carries or not start_s <= at_s < end_s else (at_s - start_s) / end_s


def _samples(shape: Shape) -> Iterator[Sample]:
    chance = random.Random(shape.seed)
    counted = dict.fromkeys((*SYSTEM_COUNTERS, "$SYS/publish/messages/dropped"), 0.0)
    load_start_s, load_end_s = _spans(shape)["steady"][0], _spans(shape)["less"][1]
    more_start_s, more_end_s = _spans(shape)["more"]
    for second in range(shape.duration_s):
        at_s = second + 0.01 * chance.random()
        loaded = load_start_s <= at_s < load_end_s
        more = 4 / 3 if more_start_s <= at_s < more_end_s else 1.0
        due = shape.clients * 0.166 * more if loaded else 0.0
        strain = _strain(shape, at_s)
        for source in _names(shape):
            for metric, value in _of_population(source, due, strain, chance):
                yield Sample(made.source(source), metric, at_s, value)
        away = KILLED if FAULT[0] <= at_s / shape.duration_s < sum(FAULT) else 0
        machine = _of_machine(due / 650, strain, second, chance)
        for metric, value in (*machine, *_of_boxes(due / 650, away, chance)):
            source, _, name = metric.partition(" ")
            yield Sample(made.source(source), name, at_s, value)
        for topic, factor in SYSTEM_COUNTERS.items():
            counted[topic] += due * factor
            yield Sample(made.source("broker-0"), topic, at_s, counted[topic])
        counted["$SYS/publish/messages/dropped"] += due * strain * 0.4
        dropped = counted["$SYS/publish/messages/dropped"]
        topic = "$SYS/publish/messages/dropped"
        yield Sample(made.source("broker-0"), topic, at_s, dropped)
        for number in range(shape.other_series):
            value = 100 * number + 50 * math.sin(second / 30 + number) + chance.random()
            yield Sample(made.source("redis"), f'commands{{kind="{number}"}}', at_s, value)


def _of_population(
    source: str, due: float, strain: float, chance: random.Random
) -> Iterator[tuple[str, float]]:
    noise = 1 + 0.02 * (chance.random() - 0.5)
    carried = due * (1 - 0.5 * strain) * noise
    yield "connected", 1 if source == "backend" else 3000
    yield "ready", 1 if source == "backend" else 3000
    yield "missing", round(4000 * strain**2)
    if source == "backend":
        yield "received_per_s", carried
    else:
        yield "due_per_s", due
        yield "sent_per_s", due * noise
        yield "acked_per_s", carried
        yield "in_flight", round(20 * chance.random() + 8000 * strain)
        yield "backlog", round(3000 * max(strain - 0.2, 0))
        yield "skipped_per_s", 0
    if due:
        median_us = 300 * (1 + 0.3 * chance.random()) * 10 ** (5 * strain)
        yield "latency_p50_us", median_us
        yield "latency_p99_us", median_us * (3 + chance.random())
        yield "latency_max_us", median_us * (6 + 20 * chance.random() ** 4)


def _of_machine(
    share: float, strain: float, second: int, chance: random.Random
) -> Iterator[tuple[str, float]]:
    cpu = min(share * 0.75 + strain + 0.03 * chance.random(), 0.99)
    yield "broker-0 cpu", cpu
    yield "broker-0 cpu_user", 0.6 * cpu
    yield "broker-0 cpu_system", 0.4 * cpu
    yield "broker-0 rss_bytes", 6e6 + 4e3 * second + 2e7 * strain
    yield "broker-0 $SYS/clients/connected", 3001
    yield "broker-0 $SYS/messages/stored", 40 + round(5000 * strain)
    yield "broker-0 $SYS/heap/current", 5e6 + 3e3 * second
    yield "host cpu", 0.1 + cpu / 4
    yield "host cpu_user", 0.06 + cpu / 8
    yield "host cpu_system", 0.04 + cpu / 8
    yield "host memory_used_bytes", 2.1e9
    yield "host memory_available_bytes", 21e9
    yield "host net_sent_bytes_per_s", 5e5 * share
    yield "host net_received_bytes_per_s", 5e5 * share
    yield "host tcp_retransmits", second // 20
    yield "agent-0 cpu", 0.05 + 0.2 * share
    yield "agent-0 busy", 0.04 + 0.2 * share
    yield "agent-0 rss_bytes", 4e6
    yield "agent-0 lateness_p99_us", 90 + 60 * chance.random()


def _of_boxes(share: float, away: int, chance: random.Random) -> Iterator[tuple[str, float]]:
    cpu = 0.04 + 0.3 * share + 0.01 * chance.random()
    yield "boxes cpu", cpu
    yield "boxes cpu_user", 0.4 * cpu
    yield "boxes cpu_system", 0.6 * cpu
    yield "boxes rss_bytes", 5.4e6 * (BOXES - away)
    yield "boxes private_bytes", 0.9e6 * (BOXES - away)
    yield "boxes processes", BOXES - away
    yield "boxes threads", BOXES - away
    yield "uplink connected", BOXES - away


def _stacks(chance: random.Random) -> Iterator[str]:
    base = "mosquitto;__libc_start_main;main;mosquitto_main_loop"
    for number in range(400):
        depth = chance.randint(1, 4)
        stack = ";".join((base, *FUNCTIONS[:depth], f"step_{number % 12}"))
        yield f"{stack} {chance.randint(1, 60)}\n"
        yield f"{base};mux_poll__handle;epoll_wait;do_syscall_64_[k];ep_poll_[k] {number % 9 + 1}\n"


def _watched(folder: Path) -> tuple[Watched, ...]:
    """Statistics of the samples."""
    found = []
    for (source, metric), track in load_tracks(folder)[0].items():
        if source.kind == "population":
            continue
        values = track.values
        whole = Statistics(
            count=len(values),
            first=values[0],
            last=values[-1],
            min=min(values),
            mean=sum(values) / len(values),
            max=max(values),
        )
        found.append(
            Watched(
                source=source.name,
                kind=source.kind,
                group=source.group,
                metric=metric,
                whole=whole,
                load=whole,
            )
        )
    return tuple(found)


def _durations_ns(shape: Shape, scale_ns: float) -> list[int]:
    chance = random.Random(shape.seed)
    slow = 1 if shape.carries else 300
    return [
        round(scale_ns * chance.lognormvariate(0, 0.5) * (slow if chance.random() < 0.03 else 1))
        for _ in range(20_000)
    ]


def _snapshots(shape: Shape) -> Iterator[Snapshot]:
    """Yields snapshots, one a second, whose histograms add up to those of the result."""
    intended, actual = (_durations_ns(shape, scale_ns) for scale_ns in SCALES_NS)
    names = _names(shape)
    for second in range(shape.duration_s):
        part = slice(second, None, shape.duration_s)
        pair = Histogram.of(intended[part]), Histogram.of(actual[part])
        acks = [made.population(acks=pair[0], acks_actual=pair[1]) for _ in names[:-1]]
        yield made.snapshot(
            *acks,
            made.population(),
            from_ns=START_NS + second * made.SECOND_NS,
            sequence=second,
            flows=tuple(made.flow(source, len(acks), *pair) for source in range(len(acks))),
        )


def _result(folder: Path, shape: Shape) -> RunResult:
    intended, actual = (Histogram.of(_durations_ns(shape, scale_ns)) for scale_ns in SCALES_NS)
    pair = HistogramPair(intended=intended, actual=actual)
    lost = 0 if shape.carries else 412
    sent = 20_000
    populations = {name: _population(name, shape, pair, lost) for name in _names(shape)}
    flows = tuple(
        FlowResult(
            source=name,
            to="backend",
            expected_total=sent,
            received_total=sent - lost,
            lost_total=lost,
            surplus_total=0,
            latency_us=pair.latency_us(),
            histogram_ns=pair,
        )
        for name in _names(shape)[:-1]
    )
    measured = Measured(
        name=f"{shape.clients} clients at a fixed rate",
        run_directory=str(folder),
        targets=("127.0.0.1:18830",),
        started="2026-11-21T12:00:00+00:00",
        started_unix_ns=STARTED_UNIX_NS,
        started_monotonic_ns=START_NS,
        ended="2026-11-21T12:05:00+00:00",
        duration_s=float(shape.duration_s),
        populations=populations,
        flows=flows,
        stages=_stages(shape, populations),
        fleet=_fleet(shape),
        brokers=tuple(_brokers()),
        bridges=(_bridges(),),
        faults=(_fault(shape),),
        phases=tuple(_phases(shape, pair.latency_us().intended)),
        monitors=_watched(folder),
        observers=_observers(),
        monitor_problems=(
            MonitorProblem(source="redis", at_s=12.0, text="no answer within 1 s: is it running?"),
        ),
        profile=_profile(),
        stale_state=_stale_state(),
        table={
            "clients": Cell(value=shape.clients),
            "CPU of the broker": Cell(value=0.71, unit="share"),
            "msg/s": Cell(value=498, unit="per_s"),
        },
        command="pubstorm run fixed-rate.yaml --set populations.device-0.clients=3k",
        events=_events(shape),
        validity=ValidityLimits(lateness_p99_us=10_000, busy=0.9),
        environment=_environment(),
    )
    return RunResult.of(measured, _verdict(shape, lost))


def _verdict(shape: Shape, lost: int) -> Verdict:
    thresholds = (
        ThresholdOutcome(
            expression="backend.lost == 0", found=lost, passed=lost == 0, text=f"found {lost}"
        ),
        ThresholdOutcome(
            expression="broker.cpu < 95%",
            found=0.71,
            unit="share",
            passed=True,
            text="found 71.0 %",
        ),
    )
    if shape.carries:
        return Verdict(
            status=Status.PASS, limited_by=LimitedBy.NONE, evidence=(), thresholds=thresholds
        )
    return Verdict(
        status=Status.FAIL,
        limited_by=LimitedBy.BROKER,
        evidence=(
            "broker-0 used 98.9 % of one core in phase more: it is at its end",
            f"{lost} of 20 000 deliveries expected at backend were lost",
        ),
        thresholds=thresholds,
    )


def _population(name: str, shape: Shape, pair: HistogramPair, lost: int) -> PopulationResult:
    times = Latency(count=3000, mean=400, min=90, p50=350, p90=700, p99=1200, p999=2000, max=2400)
    if name == "backend":
        return PopulationResult(
            clients=1,
            connected_max=1,
            ready_max=1,
            expected_total=20_000,
            received_total=20_000 - lost,
            lost_total=lost,
            rates=Rates(received_per_s=0.166 * shape.clients),
            latency_us=pair.latency_us(),
            connect_time_us=times,
        )
    return PopulationResult(
        clients=shape.clients,
        connected_max=shape.clients,
        ready_max=shape.clients,
        sent_total=20_000,
        acked_total=20_000 - lost,
        rates=Rates(sent_per_s=0.166 * shape.clients, acked_per_s=0.165 * shape.clients),
        ack_latency_us=pair.latency_us(),
        ack_histogram_ns=pair,
        connect_time_us=times,
    )


def _stages(shape: Shape, populations: dict[str, PopulationResult]) -> tuple[StageResult, ...]:
    load_start_s, load_end_s = _spans(shape)["steady"][0], _spans(shape)["less"][1]
    spans = {
        "connect": (0.2, load_start_s - 0.2),
        "publish": (load_start_s, load_end_s - load_start_s),
        "disconnect": (load_end_s, shape.duration_s - load_end_s),
    }
    return tuple(
        StageResult(
            name="load" if kind == "publish" else kind,
            kind=kind,  # type: ignore[arg-type]
            start_s=start_s,
            duration_s=duration_s,
            steady_s=duration_s if kind == "publish" else 0.0,
            settled=True,
            populations={
                name: StagePopulation(
                    connected_total=p.clients if kind == "connect" else 0,
                    connect_failed_total=0,
                    disconnected_total=0,
                    sent_total=p.sent_total if kind == "publish" else 0,
                    acked_total=p.acked_total if kind == "publish" else 0,
                    skipped_total=0,
                    received_total=p.received_total if kind == "publish" else 0,
                    expected_total=p.expected_total if kind == "publish" else 0,
                    sent_per_s=p.rates.sent_per_s if kind == "publish" else 0.0,
                    received_per_s=p.rates.received_per_s if kind == "publish" else 0.0,
                )
                for name, p in populations.items()
            },
        )
        for kind, (start_s, duration_s) in spans.items()
    )


def _phases(shape: Shape, latency: Latency) -> Iterator[Phase]:
    for name, (start_s, end_s) in _spans(shape).items():
        collapsed = name == "more" and not shape.carries
        recovered = name == "less" and not shape.carries
        status = PhaseStatus.COLLAPSED if collapsed else PhaseStatus.HELD
        clients = shape.clients * (4 if name == "more" else 3) // 3
        yield Phase(
            stage="load",
            name=name,
            start_s=start_s,
            duration_s=end_s - start_s,
            clients=clients,
            due_per_s=clients * 0.166,
            sent_per_s=clients * 0.166,
            acked_per_s=clients * (0.121 if collapsed else 0.166),
            received_per_s=clients * (0.121 if collapsed else 0.166),
            queue_growth_per_s=38.0 if collapsed else 0.0,
            dropped_total=4120 if collapsed else 0,
            latency_us=latency,
            status=PhaseStatus.RECOVERED if recovered else status,
            collapsed_at_s=start_s + 12 if collapsed else None,
            recovered_after_s=9.0 if recovered else None,
        )


def _events(shape: Shape) -> tuple[Event, ...]:
    spans = _spans(shape)
    at_s = FAULT[0] * shape.duration_s
    return (
        Event(at_s=at_s, kind="fault", text=f"kill {KILLED} boxes"),
        Event(at_s=spans["more"][0], kind="change", text="+1000 clients of device-0"),
        Event(at_s=spans["less"][0], kind="change", text="-1000 clients of device-0"),
    )


def _fleet(shape: Shape) -> FleetResult:
    agent = AgentResult(
        agent=0,
        version="0.1.0",
        pid=4711,
        descriptors=20_000,
        clients=shape.clients + 1,
        snapshots=shape.duration_s,
        cpu_s=0.09 * shape.duration_s,
        rss_max_bytes=4_000_000,
        busy_share=0.19,
        ending="bye",
    )
    late = Latency(count=20_000, mean=40, min=1, p50=38, p90=80, p99=140, p999=900, max=1800)
    return FleetResult(agents=(agent,), lateness_us=late, load_intervals_total=shape.duration_s)


def _brokers() -> Iterator[BrokerResult]:
    for group, number, port in (
        ("broker", 0, 18830),
        *(("boxes", number, 20_000 + number) for number in range(BOXES)),
    ):
        yield BrokerResult(
            name=f"{group}-{number}",
            group=group,
            kind="mosquitto",
            version="2.0.11",
            host="127.0.0.1",
            port=port,
            pid=port,
            died=False,
        )


def _bridges() -> BridgeResult:
    return BridgeResult(
        name="uplink", main="broker", small="boxes", bridges=BOXES, up=BOXES, up_after_s=31.4
    )


def _fault(shape: Shape) -> FaultResult:
    at_s = FAULT[0] * shape.duration_s
    repaired_at_s = at_s + FAULT[1] * shape.duration_s
    lost = BOXES - KILLED
    return FaultResult(
        stage="load",
        name=f"kill {KILLED} boxes",
        kind="kill",
        victims=tuple(f"boxes-{number}" for number in range(KILLED)),
        at_s=at_s,
        repaired_at_s=repaired_at_s,
        bridges=Recovery(before=BOXES, lowest=lost, first_s=1.2, most_s=5.6, all_s=6.1),
        backlog_peak=310,
        drained_s=2.5,
        evidence=(f"{KILLED} of {BOXES} bridges were lost",),
    )


def _observers() -> tuple[ObserverTraffic, ...]:
    return (
        ObserverTraffic(
            name="broker-0",
            target="127.0.0.1:18830",
            topics=("$SYS/#",),
            received_total=1830,
            received_bytes=9100,
        ),
    )


def _profile() -> ProfileResult:
    shares = zip((0.31, 0.22, 0.17, 0.08), FUNCTIONS, strict=True)
    return ProfileResult(
        broker="broker-0",
        stage="load",
        status="recorded",
        text="perf recorded 99 samples a second for 30 s.",
        samples_total=2900,
        symbols=tuple(
            ProfiledSymbol(share=share, command="mosquitto", module="mosquitto", symbol=name)
            for share, name in shares
        ),
        folded_file="profile/folded.txt",
    )


def _stale_state() -> tuple[StaleState, ...]:
    text = "3 retained messages below t/, such as t/1"
    return (
        StaleState(target="127.0.0.1:18830", when="before", what="retained", total=3, text=text),
        StaleState(
            target="127.0.0.1:18830", when="after", what="retained", total=0, text="none left"
        ),
    )


def _environment() -> Environment:
    sysctls = {"net.core.somaxconn": "4096", "fs.file-max": "9223372036854775807"}
    brokers = (BrokerVersion(kind="mosquitto", version="2.0.11"),)
    return ENVIRONMENT.model_copy(
        update={"cores": 4, "sysctls": sysctls, "git_commit": "a1b2c3d", "brokers": brokers}
    )

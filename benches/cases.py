"""Measures cases: each case runs a reference and the engine under the same load and checks that
every message arrived where it should.

A cost is CPU seconds of the process per million messages or connections, or bytes per client. The
checks compare the counts of the engine with the counts of the sink.
"""

import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benches import plans
from benches.programs import (
    Child,
    EngineRun,
    Programs,
    Sink,
    feed,
    own_core,
    run_baseline,
    run_engine,
    sink,
)

DRAIN_S = 0.5
CPU_ACCOUNT_SLACK_NS = 50_000_000
DESCRIPTORS_SPARE = 500
ENOUGH = 2
"""Rounds of a case of memory, which hardly varies."""
TLS_HANDSHAKES = 1000
TLS_FEW, TLS_MANY = 500, 5000
FRAME_BYTES = 34
"""Of a message of ZeroMQ that is one frame with a stamp."""


@dataclass
class Sample:
    """One run of one side."""

    cost: float
    """In the case's unit."""
    wrong: list[str] = field(default_factory=list)
    """Counts that do not agree."""
    lateness_us: float | None = None
    """Lateness of the engine, 99th percentile, in microseconds; None if it follows no schedule."""


@dataclass(frozen=True)
class Scale:
    """Duration and size of the cases; `--quick` reduces both."""

    seconds: float
    blast_messages: int
    blast_seconds: float


@dataclass(frozen=True)
class Load:
    """Publishers that are alike."""

    clients: int
    rate_per_s: float | None
    """Messages a second of each; `None` is as fast as possible."""
    qos: int = 0
    tls: str | None = None
    """TLS mode of their connections, as the baseline names it; None: no TLS."""
    variant: plans.Variant = plans.unchanged
    """Change of the plan."""
    shares: int = 1
    """Populations that they are divided into."""
    text: plans.Text | None = None
    """Templates of their topics and payloads; None: numbers and plain bytes."""


@dataclass(frozen=True)
class Target:
    """Limit of the cost."""

    limit: float
    relative: bool
    """Times the reference, else in the case's unit."""

    def __str__(self) -> str:
        """As in the table."""
        return f"≤ {self.limit:g}" + (" ×" if self.relative else "")


Measure = Callable[[Programs, Scale], Sample]


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    unit: str
    load: str
    target: Target
    engine: Measure
    reference: Measure | None = None
    reference_name: str = "baseline"
    rounds_max: int | None = None
    """Rounds that are enough, where the figure hardly varies."""


CPU = "CPU-s per million"
NANOSECONDS = "CPU-ns per message"
BYTES = "bytes per client"


def idle_clients() -> int:
    """19 000, or what the descriptor limit of one process leaves."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(19_000, descriptors - DESCRIPTORS_SPARE)


def baseline_send(programs: Programs, scale: Scale) -> Sample:
    """1000 connections, 20 messages a second each."""
    with sink(programs) as peer:
        counts = run_baseline(
            programs, peer.port, "send", connections=1000, rate_per_s=20, seconds=scale.seconds
        )
    offered = round(1000 * 20 * scale.seconds)
    return _baseline_sample(counts["cpu_ns"], offered, peer, messages=offered, connections=1000)


def engine_send(programs: Programs, scale: Scale) -> Sample:
    """1000 clients, 20 messages a second each, QoS 0."""
    return engine_publishing(programs, Load(clients=1000, rate_per_s=20), scale.seconds)


def engine_send_shares(programs: Programs, scale: Scale) -> Sample:
    """The same clients in ten shares, with topics made of rows and a choice."""
    load = Load(clients=1000, rate_per_s=20, shares=10, text=plans.Text(json=False))
    return engine_publishing(programs, load, scale.seconds)


def engine_send_json(programs: Programs, scale: Scale) -> Sample:
    """The same clients with payloads of JSON: a value of a row, a random number and a stamp."""
    load = Load(clients=1000, rate_per_s=20, text=plans.Text(json=True))
    return engine_publishing(programs, load, scale.seconds)


def baseline_blast(programs: Programs, scale: Scale) -> Sample:
    """100 connections that write as fast as the sink reads."""
    messages = scale.blast_messages
    with sink(programs) as peer:
        counts = run_baseline(programs, peer.port, "blast", connections=100, messages=messages)
    return _baseline_sample(counts["cpu_ns"], messages, peer, messages=messages, connections=100)


def engine_blast(programs: Programs, scale: Scale) -> Sample:
    """100 clients that publish as fast as the sink reads."""
    return engine_publishing(programs, Load(clients=100, rate_per_s=None), scale.blast_seconds)


def baseline_connect(programs: Programs, _: Scale) -> Sample:
    """5000 connections: few enough that the search for a free port costs nothing."""
    with sink(programs) as peer:
        counts = run_baseline(
            programs, peer.port, "connect", connections=5000, parallelism=plans.PARALLELISM
        )
    return _baseline_sample(counts["cpu_ns"], 5000, peer, messages=0, connections=5000)


def engine_connect(programs: Programs, _: Scale) -> Sample:
    """5000 clients."""
    return connecting(programs)


def connecting(programs: Programs, variant: plans.Variant = plans.unchanged) -> Sample:
    """5000 clients that connect."""
    with sink(programs) as peer:
        run = run_engine(programs, variant(_idle_plan(5000, peer.port)))
    wrong = _engine_wrong(run, peer, clients=5000)
    return Sample(per_million(run.cpu_ns[0], run.counters["connected_total"]), wrong)


def engine_qos0(programs: Programs, scale: Scale) -> Sample:
    """100 clients, 500 messages a second each, QoS 0."""
    return engine_publishing(programs, Load(clients=100, rate_per_s=500), scale.seconds)


def engine_qos1(programs: Programs, scale: Scale) -> Sample:
    """The same at QoS 1."""
    return engine_publishing(programs, Load(clients=100, rate_per_s=500, qos=1), scale.seconds)


def baseline_receive(programs: Programs, scale: Scale) -> Sample:
    """500 connections that read 100 messages a second each."""
    with sink(programs) as peer:
        counts = run_baseline(
            programs, peer.port, "receive", connections=500, rate_per_s=100, seconds=scale.seconds
        )
    published = round(100 * scale.seconds)
    sample = _baseline_sample(
        counts["cpu_ns"], counts["messages"], peer, messages=published, connections=501
    )
    expect(sample.wrong, "messages received", counts["messages"], published * 500)
    return sample


def engine_receive(programs: Programs, scale: Scale) -> Sample:
    """500 subscribers and one publisher of 100 messages a second."""
    return receiving(programs, scale)


def engine_receive_delayed(programs: Programs, scale: Scale) -> Sample:
    """The same, with acknowledgements of TCP that are delayed."""
    return receiving(programs, scale, delayed_acks=True)


def receiving(
    programs: Programs,
    scale: Scale,
    *,
    delayed_acks: bool = False,
    variant: plans.Variant = plans.unchanged,
) -> Sample:
    """500 subscribers, and one publisher of 100 messages a second."""
    topic = plans.TOPIC.replace("{n}", str(plans.FIRST_CLIENT + 500))
    populations = [
        {**plans.population(500, filters=[topic]), "delayed_acks": delayed_acks},
        plans.population(1, first=plans.FIRST_CLIENT + 500, publications=[plans.publication(100)]),
    ]
    stages = [plans.connect(2), plans.publish(2, scale.seconds), plans.hold(2, DRAIN_S)]
    with sink(programs) as peer:
        plan = plans.plan(populations, stages, peer.port)
        run = run_engine(programs, variant(plan))
    wrong = _engine_wrong(run, peer, clients=501)
    expected = round(100 * scale.seconds) * 500
    expect(wrong, "expected deliveries", run.flows["expected_total"], expected)
    expect(wrong, "deliveries seen", run.flows["received_total"], expected)
    expect(wrong, "deliveries of the sink", peer.counts["deliveries"], expected)
    for name in ("duplicate_total", "reordered_total", "stale_total", "missing_total"):
        expect(wrong, name, run.flows[name], 0)
    cost = per_million(run.cpu_ns[1] + run.cpu_ns[2], expected)
    return Sample(cost, wrong, run.lateness_us(0.99))


def baseline_subscribe(subscribers: int) -> Measure:
    """So many raw readers of a publisher of ZeroMQ."""

    def measure(programs: Programs, scale: Scale) -> Sample:
        each = 4 * scale.blast_messages // subscribers
        with (
            feed(programs, subscribers, each) as publisher,
            Child(programs.baseline, "drain", *publisher.options(), cores=own_core()) as readers,
        ):
            readers.read("ready")
            publisher.send()
            counts = readers.read("counts")
            readers.wait()
        wrong: list[str] = []
        expect(wrong, "messages read", counts["messages"], each * subscribers)
        return Sample(counts["cpu_ns"] / (each * subscribers), wrong)

    return measure


def engine_subscribe(subscribers: int) -> Measure:
    """So many simulated subscribers of the same publisher."""

    def measure(programs: Programs, scale: Scale) -> Sample:
        each = 4 * scale.blast_messages // subscribers
        stages = [plans.connect(2), plans.publish(1, 0.001), plans.hold(2, DRAIN_S)]
        with feed(programs, subscribers, each) as publisher:
            sockets = plans.sockets(subscribers)
            run = run_engine(
                programs, plans.plan(sockets, stages, publisher.port), close=publisher.close_command
            )
        wrong = [f"{count} times {reason}" for reason, count in run.outcomes.items()]
        for name in ("expected_total", "received_total"):
            expect(wrong, name, run.flows[name], each * subscribers)
        for name in ("duplicate_total", "reordered_total", "stale_total", "missing_total"):
            expect(wrong, name, run.flows[name], 0)
        received = run.counters["bytes_received_total"]
        if received < each * subscribers * FRAME_BYTES:
            wrong.append(f"bytes read: found {received}, which is less than the messages have")
        return Sample((run.cpu_ns[1] + run.cpu_ns[2]) / (each * subscribers), wrong)

    return measure


def engine_resident(programs: Programs, _: Scale) -> Sample:
    """Resident memory of the engine, shared pages included, divided by its idle clients."""
    clients = idle_clients()
    run, wrong = _idle(programs, clients)
    return Sample(run.rss_bytes[1] / clients, wrong)


def engine_state(programs: Programs, _: Scale) -> Sample:
    """Memory that the engine allocates for each further client."""
    return client_state(programs)


def client_state(programs: Programs, *, variant: plans.Variant = plans.unchanged) -> Sample:
    """Memory that the engine allocates for each further client."""
    few, many = 1000, idle_clients()
    small, wrong = _idle(programs, few, variant=variant)
    large, more_wrong = _idle(programs, many, variant=variant)
    added = large.anonymous_bytes[1] - small.anonymous_bytes[1]
    return Sample(added / (many - few), wrong + more_wrong)


def baseline_tls_connect(tls: str) -> Measure:
    """1000 connections with a handshake each."""

    def measure(programs: Programs, _: Scale) -> Sample:
        counts, wrong = _baseline_idle(programs, TLS_HANDSHAKES, tls)
        return Sample(per_million(counts["cpu_ns"], TLS_HANDSHAKES), wrong)

    return measure


def engine_tls_connect(tls: str) -> Measure:
    """1000 clients with a handshake each."""

    def measure(programs: Programs, _: Scale) -> Sample:
        run, wrong = _idle(programs, TLS_HANDSHAKES, tls=tls)
        return Sample(per_million(run.cpu_ns[0], run.counters["connected_total"]), wrong)

    return measure


def baseline_tls_state(tls: str) -> Measure:
    """Memory that the baseline allocates for each further connection under TLS."""

    def measure(programs: Programs, _: Scale) -> Sample:
        small, wrong = _baseline_idle(programs, TLS_FEW, tls)
        large, more_wrong = _baseline_idle(programs, TLS_MANY, tls)
        added = large["anonymous_bytes"] - small["anonymous_bytes"]
        return Sample(added / (TLS_MANY - TLS_FEW), wrong + more_wrong)

    return measure


def engine_tls_state(tls: str) -> Measure:
    """Memory that the engine allocates for each further client under TLS."""

    def measure(programs: Programs, _: Scale) -> Sample:
        small, wrong = _idle(programs, TLS_FEW, tls=tls)
        large, more_wrong = _idle(programs, TLS_MANY, tls=tls)
        added = large.anonymous_bytes[1] - small.anonymous_bytes[1]
        return Sample(added / (TLS_MANY - TLS_FEW), wrong + more_wrong)

    return measure


def engine_tls_send(programs: Programs, scale: Scale) -> Sample:
    """1000 clients under TLS, 20 messages a second each, QoS 0."""
    return engine_publishing(
        programs, Load(clients=1000, rate_per_s=20, tls="psk-1.3"), scale.seconds
    )


def _baseline_idle(programs: Programs, clients: int, tls: str) -> tuple[plans.Json, list[str]]:
    with sink(programs, tls=tls) as peer:
        counts = run_baseline(
            programs, peer.port, "connect", connections=clients, tls=tls, pem=str(peer.pem)
        )
    return counts, _baseline_sample(0, 1, peer, messages=0, connections=clients).wrong


def _idle(
    programs: Programs,
    clients: int,
    *,
    tls: str | None = None,
    variant: plans.Variant = plans.unchanged,
) -> tuple[EngineRun, list[str]]:
    with sink(programs, tls=tls) as peer:
        plan = _idle_plan(clients, peer.port)
        plan = variant(plan)
        # More source addresses, so that ports are found soon whatever range the host gives.
        plan["sources"] = [f"127.0.0.{last}" for last in range(2, 6)]
        run = _run(programs, plan, peer)
    return run, _engine_wrong(run, peer, clients=clients)


def _run(programs: Programs, plan: plans.Json, peer: Sink) -> EngineRun:
    """Plays a plan as the sink speaks: plain or under TLS."""
    if peer.tls is not None:
        plan = plans.under_tls(plan, peer.tls, peer.pem, peer.pem.with_name("keys.psk"))
    return run_engine(programs, plan)


def _idle_plan(clients: int, port: int) -> plans.Json:
    stages = [plans.connect(1), plans.hold(1, 1.5)]
    return plans.plan([plans.population(clients)], stages, port)


def engine_publishing(programs: Programs, load: Load, seconds: float) -> Sample:
    """Has the engine publish for a time to the sink."""
    clients, rate_per_s, qos = load.clients, load.rate_per_s, load.qos
    publication = plans.publication(rate_per_s, qos=qos)
    each = clients // load.shares
    firsts = range(plans.FIRST_CLIENT, plans.FIRST_CLIENT + clients, each)
    populations = [plans.population(each, first=n, publications=[publication]) for n in firsts]
    count = len(populations)
    stages = [plans.connect(count), plans.publish(count, seconds), plans.hold(count, DRAIN_S)]
    with sink(programs, tls=load.tls) as peer, tempfile.TemporaryDirectory() as folder:
        if load.text is not None:
            populations = plans.with_text(populations, load.text, Path(folder) / "rows.csv")
        plan = plans.plan(populations, stages, peer.port)
        run = _run(programs, load.variant(plan), peer)
    sent = run.counters["sent_total"]
    wrong = _engine_wrong(run, peer, clients=clients)
    expect(wrong, f"messages of QoS {qos} at the sink", peer.counts[f"messages_qos{qos}"], sent)
    expect(wrong, "messages acknowledged", run.counters["acked_total"], sent if qos else 0)
    if rate_per_s is not None:
        expect(wrong, "messages sent", sent, round(clients * rate_per_s * seconds))
    cost = per_million(run.cpu_ns[1] + run.cpu_ns[2], sent)
    return Sample(cost, wrong, None if rate_per_s is None else run.lateness_us(0.99))


def _baseline_sample(
    cpu_ns: int, units: int, peer: Sink, *, messages: int, connections: int
) -> Sample:
    wrong: list[str] = []
    expect(wrong, "connections at the sink", peer.counts["connections"], connections)
    expect(wrong, "messages at the sink", _messages(peer), messages)
    return Sample(per_million(cpu_ns, units), wrong)


def _engine_wrong(run: EngineRun, peer: Sink, *, clients: int) -> list[str]:
    """Returns differences between the engine's counts and those of sink, kernel and plan."""
    wrong: list[str] = []
    expect(wrong, "clients connected", run.counters["connected_total"], clients)
    expect(wrong, "clients connected at the end", run.connected, clients)
    expect(wrong, "connections at the sink", peer.counts["connections"], clients)
    expect(wrong, "messages at the sink", _messages(peer), run.counters["sent_total"])
    expect(wrong, "bytes at the sink", peer.counts["bytes"], run.counters["bytes_sent_total"])
    for name in ("skipped_total", "abandoned_total", "resent_total"):
        expect(wrong, name, run.counters[name], 0)
    wrong += [f"{count} times {reason}" for reason, count in run.outcomes.items()]
    said_ns = run.cpu_ns.total()
    if abs(run.kernel_cpu_ns - said_ns) > CPU_ACCOUNT_SLACK_NS + run.kernel_cpu_ns // 20:
        wrong.append(f"CPU time: the kernel says {run.kernel_cpu_ns} ns, the engine {said_ns} ns")
    return wrong


def _messages(peer: Sink) -> int:
    return sum(int(peer.counts[f"messages_qos{qos}"]) for qos in range(3))


def expect(wrong: list[str], what: str, found: int, expected: int) -> None:
    """Adds a line to `wrong` if two counts differ."""
    if found != expected:
        wrong.append(f"{what}: found {found}, expected {expected}")


def per_million(cpu_ns: int, units: int) -> float:
    """CPU seconds for a million units."""
    return cpu_ns / 1e3 / max(units, 1)


CASES = (
    Case(
        name="send",
        unit=CPU,
        load="1000 clients × 20 msg/s, QoS 0",
        target=Target(1.15, relative=True),
        reference=baseline_send,
        engine=engine_send,
    ),
    Case(
        name="shares",
        unit=CPU,
        load="the same in 10 shares, rows and a choice in topics",
        target=Target(1.1, relative=True),
        reference=engine_send,
        reference_name="engine send",
        engine=engine_send_shares,
    ),
    Case(
        name="json",
        unit=CPU,
        load="the same with JSON: row, random number, stamp",
        target=Target(1.3, relative=True),
        reference=engine_send,
        reference_name="engine send",
        engine=engine_send_json,
    ),
    Case(
        name="blast",
        unit=CPU,
        load="100 publishers, as fast as possible",
        target=Target(0.5, relative=False),
        reference=baseline_blast,
        engine=engine_blast,
    ),
    Case(
        name="resident",
        unit=BYTES,
        load=f"{idle_clients()} idle clients, all in",
        target=Target(600, relative=False),
        engine=engine_resident,
        rounds_max=ENOUGH,
    ),
    Case(
        name="state",
        unit=BYTES,
        load=f"{idle_clients()} idle clients, user state",
        target=Target(256, relative=False),
        engine=engine_state,
        rounds_max=ENOUGH,
    ),
    Case(
        name="connect",
        unit=CPU,
        load="5000 connections, 500 under way",
        target=Target(1.5, relative=True),
        reference=baseline_connect,
        engine=engine_connect,
    ),
    Case(
        name="qos1",
        unit=CPU,
        load="100 publishers, 50 000 msg/s, QoS 1",
        target=Target(2.0, relative=True),
        reference=engine_qos0,
        reference_name="engine QoS 0",
        engine=engine_qos1,
    ),
    Case(
        name="receive",
        unit=CPU,
        load="1 → 500, 50 000 deliveries/s",
        target=Target(1.15, relative=True),
        reference=baseline_receive,
        engine=engine_receive,
    ),
    Case(
        name="delayed-acks",
        unit=CPU,
        load="the same with tcp_acks: delayed",
        target=Target(1.0, relative=True),
        reference=engine_receive,
        reference_name="engine receive",
        engine=engine_receive_delayed,
    ),
    *(
        Case(
            name=f"subscribe-{subscribers}",
            unit=NANOSECONDS,
            load=f"ZeroMQ, 1 → {subscribers}, 32 bytes, as fast as possible",
            target=Target(1.4, relative=True),
            reference=baseline_subscribe(subscribers),
            engine=engine_subscribe(subscribers),
        )
        for subscribers in (30, 960)
    ),
    Case(
        name="tls-state",
        unit=BYTES,
        load=f"{TLS_MANY} idle clients, PSK, TLS 1.3",
        target=Target(1.3, relative=True),
        reference=baseline_tls_state("psk-1.3"),
        engine=engine_tls_state("psk-1.3"),
        rounds_max=ENOUGH,
    ),
    *(
        Case(
            name=f"tls-{word}",
            unit=CPU,
            load=f"{TLS_HANDSHAKES} handshakes, {what}",
            target=Target(1.3, relative=True),
            reference=baseline_tls_connect(word),
            engine=engine_tls_connect(word),
        )
        for word, what in (
            ("psk-1.2", "PSK, TLS 1.2"),
            ("psk-1.3", "PSK, TLS 1.3"),
            ("certificate", "certificate verified, TLS 1.3"),
        )
    ),
    Case(
        name="tls-send",
        unit=CPU,
        load="1000 clients × 20 msg/s, QoS 0, PSK",
        target=Target(2.0, relative=True),
        reference=engine_send,
        reference_name="engine plain",
        engine=engine_tls_send,
    ),
)

"""The tables and facts of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, get_args

from pubstorm.contract.histogram import REST
from pubstorm.metrics.counters import RECEIVES
from pubstorm.quantities import (
    NOTHING,
    bytes_text,
    count_text,
    counted,
    duration_text,
    share_text,
    span_text,
)
from pubstorm.report.document import Fact
from pubstorm.report.layout import (
    Cells,
    Columns,
    Layout,
    RunTable,
    Table,
    Value,
    Written,
    columns,
    fields,
    listed,
    names,
    populations_in,
    words,
)
from pubstorm.report.summary import (
    ADDRESSES,
    BALANCE,
    EVERY_STALL,
    EXPLANATIONS,
    PROBLEMS,
    SAMPLERS,
    STALLS,
    balance_text,
    memory_layout,
)
from pubstorm.report.watched import (
    AGENTS_MAX,
    BRIDGES,
    BROKER_COUNTERS,
    BROKERS,
    BY_STAGE,
    EVERY_TRACK,
    MONITOR_PROBLEMS,
    OBSERVERS,
    PROCESSES,
    PUBLISHERS,
    STALE_STATE,
    SUBSCRIBERS,
    SYMBOLS,
    cpu_by_span,
)
from pubstorm.result import (
    AgentResult,
    ClockResult,
    Event,
    FailureResult,
    FaultResult,
    FlowResult,
    Latency,
    LatencyPair,
    LatencyParts,
    Phase,
    PopulationResult,
    Recovery,
    RunResult,
    StageFlow,
    StageResult,
)

TARGETS_MAX = 4
"""Targets that are named one by one."""
HERE = "this host"
"""Name of a host without an address."""
OWN_COLUMNS_MAX = 8
"""Columns that a table of the scenario's own may have beside each other."""
PARTS_MAX = 24
"""Percentiles whose parts are shown for all populations."""
BAR_WIDTH = 20
"""Characters of a whole latency."""
BAR_REST = "·"
"""Character of the rest in a bar. Other parts have their first letter."""
PART_HEADS = {
    "generator": "generator",
    "window": "own window",
    "socket": "own socket",
    "connection": "own connection",
    REST: "after send",
}
"""Column of each part of a latency."""
PARTS_NOTE = (
    "Parts are means of the messages near the percentile. Before the send: G generator, W own "
    "window, S own socket, C own connection. After the send: network, broker and receivers. Agents "
    "waited for a processor in at most the share of the host, within generator and after send."
)


def tables(result: RunResult) -> list[Table]:
    """Returns every table that has a row, the scenario's own first."""
    made = (own_table(result), *(layout.table(result) for layout in LAYOUTS))
    return [table for table in made if table.rows]


def detail_tables(result: RunResult) -> list[Table]:
    """Returns the tables for those who look closer that have a row."""
    return [table for layout in DETAILS if (table := layout.table(result)).rows]


def own_table(result: RunResult) -> Table:
    """Returns the scenario's own table: one row, or a row for each figure of many."""
    title, found = "The scenario's own table", result.table
    if len(found) > OWN_COLUMNS_MAX:
        heads = (*columns("word", "figure"), *columns("count", "found"))
        return Table(title, heads, [*found.items()], part="happened")
    rows = [tuple(found.values())] * bool(found)
    return Table(title, columns("count", *found), rows, part="happened")


def _in_flight(p: PopulationResult) -> int | None:
    return p.to_come_total if any(getattr(p, counter) for counter in RECEIVES) else None


CONNECTIONS = RunTable[PopulationResult]("Connections", "load", populations_in("connections")).of(
    names("population"), listed("connections")
)
MESSAGES = RunTable[PopulationResult]("Messages", "load", populations_in("messages")).of(
    names("population"),
    listed("messages"),
    Cells("in flight", "count", _in_flight, "any"),
    listed("order"),
)
"""The ledger of each population. Deliveries are in flight only if the run ended early."""


class _Latencies(NamedTuple):
    """Latencies of the messages to a population, or of the acknowledgements to it."""

    population: str
    latency: str
    latency_us: LatencyPair

    @property
    def negative(self) -> int:
        """Negative latencies."""
        return self.latency_us.intended.negative_total + self.latency_us.actual.negative_total


def _latencies(result: RunResult) -> Iterator[_Latencies]:
    for name, p in result.populations.items():
        found = [("delivery", p.latency_us), ("ack", p.ack_latency_us)]
        if p.queued_latency_us.count:
            apart = (("live", p.live_latency_us), ("queued", p.queued_latency_us))
            found[1:1] = [(kind, LatencyPair(intended=of)) for kind, of in apart]
        for kind, pair in found:
            row = _Latencies(name, kind, pair)
            if pair.intended.count or row.negative:
                yield row


LATENCIES = RunTable[_Latencies]("Latency", "latency", _latencies).of(
    words("population", "latency"),
    fields("latency_us.intended.count"),
    listed("latency"),
    fields("negative", when="any"),
    bound_us=lambda row: row.latency_us.intended.bound_us,
)
_Percentile = Literal["p50", "p99"]


class _Divided(NamedTuple):
    """A percentile of a latency in a stage, and its parts."""

    stage: str
    population: str
    latency: str
    percentile: _Percentile
    pair: LatencyPair
    of: LatencyParts

    @property
    def intended_us(self) -> float:
        """The percentile from the intended send."""
        return float(getattr(self.pair.intended, self.percentile))

    @property
    def actual_us(self) -> float | None:
        """The percentile from the actual send; None if it is not known."""
        actual = self.pair.actual
        return float(getattr(actual, self.percentile)) if actual.count else None

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of the percentile, in microseconds."""
        found = getattr(self.of, self.percentile)
        return {part: getattr(found, part) for part in PART_HEADS}

    @property
    def host_share(self) -> float | None:
        """Most that the host can have taken; None if that is not known, or may be everything."""
        most = getattr(self.of, self.percentile).host_most
        whole = sum(self.parts.values())
        return most / whole if most is not None and most < whole else None

    def share(self, part: str) -> float | None:
        """Returns the share of a part; None for a latency of 0."""
        parts = self.parts
        return parts[part] / sum(parts.values()) if any(parts.values()) else None

    @property
    def bar(self) -> str:
        """Parts from left to right, each as wide as its share."""
        sums = [0.0, *accumulate(self.share(part) or 0.0 for part in self.parts)]
        edges = [round(each * BAR_WIDTH) for each in sums]
        widths = (high - low for low, high in pairwise(edges))
        marks = (BAR_REST if part == REST else part[0].upper() for part in self.parts)
        return "".join(mark * width for mark, width in zip(marks, widths, strict=True))


def _divided(result: RunResult) -> list[_Divided]:
    """Returns percentiles of each stage with known parts, of the slowest populations if many."""
    every = [*_every_divided(result)]
    if len(every) <= PARTS_MAX:
        return every
    slowest: dict[tuple[str, str, str], _Divided] = {}
    for row in every:
        key = row.stage, row.latency, row.percentile
        slowest[key] = max(slowest.get(key, row), row, key=lambda each: each.pair.intended.p99)
    return [*slowest.values()]


def _every_divided(result: RunResult) -> Iterator[_Divided]:
    for stage in result.stages:
        for name, p in stage.populations.items():
            trips = LatencyPair(intended=p.round_trip_us, parts=p.round_trip_parts)
            found = (("delivery", p.latency_us), ("ack", p.ack_latency_us), ("round trip", trips))
            for latency, pair in found:
                if pair.parts is not None:
                    for percentile in get_args(_Percentile):
                        yield _Divided(stage.name, name, latency, percentile, pair, pair.parts)


def _part(head: str, part: str) -> Cells[_Divided]:
    return Cells(head, "share", lambda row: row.share(part), "any")


PARTS = RunTable[_Divided]("Where the time went", "latency", _divided).of(
    words("stage", "population", "latency", "percentile"),
    fields("intended_us as time"),
    Cells("bar", "bar", lambda row: row.bar),
    *(_part(head, part) for part, head in PART_HEADS.items()),
    fields("host_share as host at most", when="known"),
    fields("actual_us as from send"),
    note=PARTS_NOTE,
)
CONNECTING, *LISTED = (
    RunTable[PopulationResult](t, "latency", populations_in(of)).of(names("population"), listed(of))
    for t, of in (
        ("Phases of connecting", "connecting"),
        ("TLS handshakes and their connect times", "tls"),
        ("Migrations of connections over QUIC", "migrations"),
        ("Waits for Receive Maximum", "receive maximum"),
        ("Links of clients", "links"),
        ("Flapping subscriptions", "flapping"),
        ("Sparkplug B", "sparkplug"),
        ("Round trips", "round trips"),
    )
)
WILLS = RunTable[PopulationResult]("Wills", "latency", populations_in("wills")).of(
    names("population"),
    listed("wills"),
    fields("will_latency_us.count as timed"),
    listed("will latency"),
)
FLOWS = RunTable[FlowResult](
    "Flows", "load", lambda result: result.flows if len(result.flows) > 1 else ()
).of(
    Cells("from → to", "word", lambda flow: f"{flow.source} → {flow.to}"),
    listed("ledger"),
    fields("in_flight_total", when="any"),
    listed("disorder"),
    listed("flows"),
    bound_us=lambda flow: flow.latency_us.intended.bound_us,
)
"""The ledger by publisher and receiver, if there are several flows."""


def _foreign_per_s(stage: StageResult) -> float:
    """Returns the messages of other programs a second that clients received."""
    foreign = sum(population.foreign_total for population in stage.populations.values())
    return foreign / stage.duration_s if stage.duration_s else 0.0


STAGES = RunTable[StageResult]("Stages", "load", lambda result: result.stages).of(
    words("name as stage", "kind"),
    fields("start_s", "duration_s as took", "connected"),
    Cells("clients/s", "signed rate", lambda s: s.connects_per_s - s.disconnects_per_s or None),
    fields("steady_s", without_zero=True),
    Cells("sent/s", "rate", lambda s: sum(p.sent_per_s for p in s.populations.values())),
    Cells("received/s", "rate", lambda s: sum(p.received_per_s for p in s.populations.values())),
    Cells("foreign/s", "rate", _foreign_per_s, when="any"),
)


def _acked(result: RunResult) -> list[Cells[Phase]]:
    are_acked = any(population.acknowledged for population in result.populations.values())
    return listed("phase acks", given=lambda _: are_acked)


def _cpu(name: str, spans: Mapping[str, float]) -> Cells[Phase]:
    return Cells(f"{name} CPU", "share", lambda phase: spans.get(phase.name))


def _processors(result: RunResult) -> list[Cells[Phase]]:
    """Returns the mean CPU of each broker and of the host."""
    played = {phase.name for phase in result.phases}
    return [_cpu(*each) for each in cpu_by_span(result).items() if played & each[1].keys()]


PHASES = RunTable[Phase]("Phases", "happened", lambda result: result.phases).of(
    words("name as phase"),
    fields("start_s", "clients", "due_per_s as load/s"),
    _acked,
    listed("phases"),
    Cells("queue/s", "signed rate", lambda phase: phase.queue_growth_per_s),
    listed("phase latency"),
    fields("dropped_total", when="known"),
    _processors,
    Cells("status", "word", lambda phase: f"{phase.status}{phase.times(', carried again')}"),
    bound_us=lambda phase: phase.latency_us.bound_us,
)
"""The phases of publish stages. Only some brokers report how many messages they dropped."""


class _Fault(NamedTuple):
    """A fault, and the clients or bridges that it disconnected. Bridges have a row of their own."""

    fault: FaultResult
    who: str
    recovery: Recovery | None
    is_first: bool = True


def _faults(result: RunResult) -> Iterator[_Fault]:
    for fault in result.faults:
        has_clients = fault.clients is not None or fault.bridges is None
        if has_clients:
            yield _Fault(fault, "clients", fault.clients)
        if fault.bridges is not None:
            yield _Fault(fault, "bridges", fault.bridges, not has_clients)


def _once(head: str, unit: Written, read: Callable[[FaultResult], Value]) -> Cells[_Fault]:
    """Returns a column of the fault, with a cell in its first row."""
    return Cells(head, unit, lambda row: read(row.fault) if row.is_first else "")


def _lost_text(row: _Fault) -> str:
    found = row.recovery
    if found is None:
        return "0"
    return f"{count_text(found.before - found.lowest)} of {count_text(found.before)}"


FAULTS = RunTable[_Fault]("Faults", "happened", _faults).of(
    _once("fault", "word", lambda fault: fault.name),
    _once("at", "s", lambda fault: fault.at_s),
    _once("lasted", "s", lambda f: None if f.repaired_at_s is None else f.repaired_at_s - f.at_s),
    words("who"),
    Cells("lost", "s", _lost_text),
    fields("recovery.first_s as first back", "recovery.most_s as 99 %", "recovery.all_s as all"),
    _once("waiting", "count", lambda fault: fault.backlog_peak),
    _once("drained", "s", lambda fault: fault.drained_s),
)


def _flows_of_faults(result: RunResult) -> Iterator[tuple[str, StageFlow]]:
    """Yields the flows of stages with a fault, each with the name of its stage."""
    for stage in result.stages:
        if any(stage.holds(fault.at_s) for fault in result.faults):
            yield from ((stage.name, flow) for flow in stage.flows)


FAULT_LEDGER = RunTable[StageFlow](
    "Deliveries of stages with faults", "happened", _flows_of_faults
).of(
    names("stage"),
    Cells("from → to", "word", lambda flow: f"{flow.source} → {flow.to}"),
    Cells("QoS", "count", lambda flow: ", ".join(map(str, flow.qos)) or None),
    listed("ledger"),
    listed("disorder"),
)

_Agents = list[AgentResult]
"""Agents that share a row."""


def _each_agent(result: RunResult) -> list[tuple[str, _Agents]]:
    return [(str(agent.agent), [agent]) for agent in result.fleet.agents]


def _by_ending(result: RunResult) -> list[tuple[str, _Agents]]:
    """Returns each agent, or many agents by their endings."""
    if len(result.fleet.agents) <= AGENTS_MAX:
        return _each_agent(result)
    groups: dict[str, _Agents] = {}
    for agent in result.fleet.agents:
        groups.setdefault(agent.ending, []).append(agent)
    return [(counted(len(group), "agent"), group) for group in groups.values()]


def _hosts(result: RunResult) -> list[Cells[_Agents]]:
    """Returns a column of hosts if there are some beside that of the controller."""
    are_several = any(agent.host for agent in result.fleet.agents)
    return [Cells("host", "word", _hosts_text)] if are_several else []


def _hosts_text(agents: _Agents) -> str:
    found = {agent.host or HERE for agent in agents}
    return counted(len(found), "host") if len(found) > 1 else min(found)


_AGENT: tuple[Columns[_Agents, RunResult], ...] = (
    names("agent"),
    _hosts,
    listed("agents"),
    Cells("busy", "share", lambda agents: max(agent.busy_share for agent in agents)),
    Cells("CPU", "s", lambda agents: f"{sum(agent.cpu_s for agent in agents):.1f} s"),
    Cells("memory max", "bytes", lambda agents: max(agent.rss_max_bytes for agent in agents)),
    Cells("ending", "word", lambda agents: agents[0].ending),
)
SUMS_NOTE = (
    "Expected are deliveries of the messages that the agent's clients sent, received are "
    "deliveries to them: loss shows only in the sums over all agents."
)
AGENTS = RunTable[_Agents]("Agents", "generator", _by_ending).of(
    *_AGENT,
    note=lambda result: SUMS_NOTE if len(_by_ending(result)) > 1 else "",
)
"""The load generator. Many agents have a row for each ending: sums, and the largest of the rest."""
EVERY_AGENT = RunTable[_Agents](
    "Every agent",
    "details",
    lambda result: _each_agent(result) if len(result.fleet.agents) > AGENTS_MAX else (),
).of(*_AGENT, note=SUMS_NOTE)


FAILURES = RunTable[FailureResult](
    "Agent failures", "generator", lambda result: result.fleet.failures
).of(
    Cells("agent", "word", lambda failure: str(failure.agent)),
    fields("at_s", "clients"),
    Cells("rejoin after", "us", lambda f: None if (s := f.rejoined_after_s) is None else 1e6 * s),
    Cells("on", "word", lambda f: None if f.replaced_on is None else f.replaced_on or HERE),
    words("text as what"),
)


class _Clock(NamedTuple):
    """The clock of an agent or a publisher."""

    agent: str
    host: str
    clock: ClockResult


def _every_clock(result: RunResult) -> list[_Clock]:
    agents = [(str(a.agent), a.host, a.clock) for a in result.fleet.agents]
    agents += [(p.name, p.host, p.clock) for p in result.publishers]
    return [_Clock(name, host, clock) for name, host, clock in agents if clock is not None]


def _clocks(result: RunResult) -> list[_Clock]:
    """Returns the clocks of a few agents: those with the largest errors."""
    every = _every_clock(result)
    worst = sorted(every, key=lambda each: -each.clock.bound_us)[:AGENTS_MAX]
    return [each for each in every if each in worst]


def _clocks_note(result: RunResult) -> str:
    known, shown = len(_every_clock(result)), len(_clocks(result))
    least = f"Shown are the {shown} least sure of {count_text(known)}. " if known > shown else ""
    return (
        f"{least}Offset and drift are those of the reference clock against the clock of the host."
    )


CLOCKS = RunTable[_Clock]("Clocks", "details", _clocks).of(
    words("agent"),
    words("host", when="known", without_empty=True),
    fields("clock.offset_us"),
    Cells("drift", "us", lambda row: f"{row.clock.drift_ppm:+.3f} ppm"),
    fields("clock.round_trip_us"),
    Cells("off by at most", "us", lambda row: f"± {duration_text(row.clock.bound_us)}"),
    fields("clock.exchanges_total"),
    note=_clocks_note,
)
EVENTS = RunTable[Event]("Events", "details", lambda result: result.events).of(
    fields("at_s"),
    words("kind", "text as what"),
)


def environment(result: RunResult) -> tuple[Fact, ...]:
    """Returns what is known about machine and programs."""
    found = result.environment
    pairs = [
        ("host", found.host),
        ("processor", f"{found.cores} × {found.cpu_model}, {found.machine}"),
        ("memory", bytes_text(found.memory_bytes)),
        ("kernel", found.kernel),
        ("open descriptors", f"{found.descriptors_soft} soft, {found.descriptors_hard} hard"),
        ("Pubstorm", found.pubstorm),
        ("engine", found.engine or NOTHING),
        ("Python", found.python),
        ("Git commit", found.git_commit or NOTHING),
        *(("broker", f"{broker.kind} {broker.version}") for broker in found.brokers),
        *(("publisher", f"{each.kind}, {each.library}") for each in result.publishers),
        *found.sysctls.items(),
    ]
    return tuple(Fact(name, value) for name, value in pairs)


def facts(result: RunResult) -> tuple[Fact, ...]:
    """Returns the facts about the whole run."""
    return tuple(_facts(result))


def _facts(result: RunResult) -> Iterator[Fact]:
    headroom, environment, late = result.headroom, result.environment, result.fleet.lateness_us
    programs = [f"{b.kind} {b.version}".strip() for b in environment.brokers]
    programs += dict.fromkeys(each.library or each.kind for each in result.publishers)
    yield Fact("targets", _targets(result) + (f" ({', '.join(programs)})" if programs else ""))
    if limits := _limits(result):
        yield Fact("broker limits", limits)
    yield Fact("started", f"{result.started}, took {span_text(result.duration_s)}")
    if shares := balance_text(result):
        yield Fact("balance", shares)
    if result.command:
        yield Fact("command", result.command, is_code=True)
    if late.count or not result.publishers:
        yield Fact("agents late", f"p50 {_time(late, late.p50)}, p99 {_time(late, late.p99)}")
    if headroom is not None:
        rate, clients = (share_text(round(each, 2)) for each in (headroom.rate, headroom.clients))
        used = f"{rate} of the calibrated ceiling, {clients} of the calibrated clients"
        yield Fact("agents load", used)
    if result.fleet.clock_bound_us:
        bound = duration_text(result.fleet.clock_bound_us)
        yield Fact("clocks", f"delivery times between hosts are off by {bound} at most")
    memory_text = bytes_text(environment.memory_bytes)
    processor = f"{environment.cores} × {environment.cpu_model}"
    yield Fact("host", f"{processor}, {memory_text}, {environment.kernel}")


def _limits(result: RunResult) -> str:
    """Returns the shares of their hosts that brokers may use; empty if they may use all."""
    texts: dict[str, None] = {}
    for broker in result.brokers:
        words = []
        if broker.cpus:
            noun = "processor" if len(broker.cpus) == 1 else "processors"
            words.append(f"{noun} {', '.join(map(str, broker.cpus))}")
        if broker.memory_limit_bytes is not None:
            words.append(f"{bytes_text(broker.memory_limit_bytes)} of memory")
        if words:
            texts[f"{broker.group or broker.name}: {' and '.join(words)}"] = None
    return "; ".join(texts)


def _targets(result: RunResult) -> str:
    if len(result.targets) <= TARGETS_MAX:
        return ", ".join(result.shown_targets)
    shown = result.shown_targets[: TARGETS_MAX - 1]
    return f"{', '.join(shown)} and {count_text(len(result.targets) - len(shown))} more"


def _time(latency: Latency, duration_us: float) -> str:
    return duration_text(duration_us) if latency.count else NOTHING


LAYOUTS: tuple[Layout[Any, Any], ...] = (
    *(FAULTS, FAULT_LEDGER, PHASES, PUBLISHERS, SUBSCRIBERS, SAMPLERS, PROBLEMS),
    *(EXPLANATIONS, STALLS, CONNECTIONS, MESSAGES, LATENCIES, PARTS, CONNECTING),
    *LISTED,
    *(WILLS, FLOWS, STAGES, BALANCE, ADDRESSES, BROKERS, BRIDGES, PROCESSES, BY_STAGE),
    memory_layout("readings"),
    *(BROKER_COUNTERS, OBSERVERS, MONITOR_PROBLEMS, STALE_STATE, SYMBOLS, AGENTS, FAILURES, EVENTS),
)
"""The tables of a run in their order, after the scenario's own."""
DETAILS = (EVERY_AGENT, CLOCKS, EVERY_STALL, EVERY_TRACK)
"""Tables for those who look closer."""

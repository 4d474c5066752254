"""The tables of a report, built from a stored result: titles, columns and cells as text. Terminal
and Markdown show the same ones. It knows no format."""

from __future__ import annotations

from collections.abc import Sequence

from pubstorm.quantity import (
    NOTHING,
    bytes_text,
    count_text,
    counted,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.brokers import bridges, brokers
from pubstorm.report.faults import fault_ledger, faults
from pubstorm.report.publishers import publishers, subscribers
from pubstorm.report.summary import (
    STALLS_SHOWN,
    balance,
    balance_text,
    by_stage,
    every_stall,
    memory,
    problems,
    samplers,
    stalls,
)
from pubstorm.report.table import Column, Table
from pubstorm.report.watched import (
    ENGINES_MAX,
    broker_counters,
    every_track,
    monitor_problems,
    observers,
    processes,
    residue,
    symbols,
)
from pubstorm.result import (
    AgentResult,
    FlowResult,
    Latency,
    LatencyPair,
    Phase,
    PhaseStatus,
    PopulationResult,
    Result,
    StageResult,
)

TARGETS_MAX = 4
"""Targets that are named one by one."""
HERE = "this host"
"""What a host without an address is called."""
COMMAND = "command"
"""Name of the command line among the facts of a run."""
OWN_COLUMNS_MAX = 8
"""Columns that a table of the scenario's own may have beside each other."""


def tables(result: Result) -> list[Table]:
    """Every table that has a row, the scenario's own first."""
    built = [
        own_table(result),
        faults(result),
        fault_ledger(result),
        phases(result),
        publishers(result),
        subscribers(result),
        samplers(result),
        problems(result),
        stalls(result),
        connections(result),
        deliveries(result),
        latencies(result),
        flows(result),
        stages(result),
        balance(result),
        brokers(result),
        bridges(result),
        processes(result),
        by_stage(result),
        memory(result),
        broker_counters(result),
        observers(result),
        monitor_problems(result),
        residue(result),
        symbols(result),
        agents(result),
        losses(result),
        events(result),
    ]
    return [table for table in built if table.rows]


def own_table(result: Result) -> Table:
    """The table that the scenario asks for: one row, or a row for each figure where that would be
    too wide."""
    title = "The scenario's own table"
    found = {heading: cell.text for heading, cell in result.table.items()}
    if len(found) > OWN_COLUMNS_MAX:
        return Table(title, (Column("figure", right=False), Column("found")), tuple(found.items()))
    return Table(title, tuple(map(Column, found)), (tuple(found.values()),) * bool(found))


def connections(result: Result) -> Table:
    """Who was connected."""
    rows = [
        (
            name,
            count_text(p.clients),
            count_text(p.connected_max),
            count_text(p.connect_failed_total),
            count_text(p.disconnected_total),
            _time(p.connect_time_us.p50, p.connect_time_us.count),
            _time(p.connect_time_us.p99, p.connect_time_us.count),
            _time(p.connect_time_us.max, p.connect_time_us.count),
        )
        for name, p in result.populations.items()
    ]
    names = ("clients", "connected max", "connect failed", "disconnected", "p50", "p99", "max")
    return _table("Connections", "population", names, rows)


def deliveries(result: Result) -> Table:
    """The ledger of each population. Deliveries in flight have a column only where an early end
    of the run left any."""
    with_in_flight = any(p.to_come_total for p in result.populations.values())
    rows = [
        (
            name,
            count_text(p.sent_total),
            _of_senders(p, p.acked_total),
            _of_receivers(p, p.received_total),
            _of_receivers(p, p.lost_total),
            *((_of_receivers(p, p.to_come_total),) if with_in_flight else ()),
            _of_receivers(p, p.duplicate_total),
            _of_receivers(p, p.reordered_total),
            rate_text(p.rates.sent_per_s) if p.sent_total else NOTHING,
            rate_text(p.rates.received_per_s) if p.received_total else NOTHING,
        )
        for name, p in result.populations.items()
    ]
    in_flight = ("in flight",) if with_in_flight else ()
    rates = ("sent/s", "received/s")
    names = ("sent", "acked", "received", "lost", *in_flight, "dup", "reordered", *rates)
    return _table("Messages", "population", names, rows)


def latencies(result: Result) -> Table:
    """Both latencies of each population: of what it received, and of what was acknowledged.
    Negative ones have a column only where there are any."""
    pairs = [
        (name, what, pair)
        for name, p in result.populations.items()
        for what, pair in (("delivery", p.latency_us), ("ack", p.ack_latency_us))
        if pair.intended.count or _negative(pair)
    ]
    with_negative = any(_negative(pair) for _, _, pair in pairs)
    rows = [(name, what, *_latency_cells(pair, with_negative)) for name, what, pair in pairs]
    columns = (Column("population", right=False), Column("latency", right=False))
    names = ("count", "p50", "p99", "p99.9", "max", "p99 from send", "negative")
    shown = names if with_negative else names[:-1]
    table = Table("Latency", columns + tuple(map(Column, shown)), tuple(rows))
    return table.with_bounds([pair.intended.bound_us for _, _, pair in pairs])


def flows(result: Result) -> Table:
    """The ledger by publisher and receiver, where that says more than the populations do."""
    several = result.flows if len(result.flows) > 1 else ()
    with_in_flight = any(flow.in_flight_total for flow in several)
    in_flight = ("in flight",) if with_in_flight else ()
    times = ("p50", "p99", "max")
    names = ("expected", "received", "lost", *in_flight, "dup", "reordered", *times)
    rows = [_flow_cells(flow, with_in_flight) for flow in several]
    table = _table("Flows", "from → to", names, rows)
    return table.with_bounds([flow.latency_us.intended.bound_us for flow in several])


def stages(result: Result) -> Table:
    """The stages as they were played, with the clients that were connected after each."""
    rows = [
        (
            stage.name,
            stage.kind,
            span_text(stage.start_s),
            span_text(stage.duration_s),
            count_text(stage.connected),
            _clients_per_s(stage),
            span_text(stage.steady_s) if stage.steady_s else NOTHING,
            rate_text(sum(p.sent_per_s for p in stage.populations.values())),
            rate_text(sum(p.received_per_s for p in stage.populations.values())),
        )
        for stage in result.stages
    ]
    columns = (Column("stage", right=False), Column("kind", right=False))
    names = ("start", "took", "connected", "clients/s", "steady", "sent/s", "received/s")
    return Table("Stages", columns + tuple(map(Column, names)), tuple(rows))


def phases(result: Result) -> Table:
    """The phases of publish stages, each with its verdict. What the broker dropped has a column
    only where it tells."""
    with_dropped = any(phase.dropped_total is not None for phase in result.phases)
    with_acks = any(population.acknowledged for population in result.populations.values())
    rows = [_phase_cells(phase, with_acks, with_dropped) for phase in result.phases]
    names = ["start", "clients", "due/s", "acked/s", "received/s", "queue/s", "p99"]
    names += ["dropped"] if with_dropped else []
    table = _table("Phases", "phase", names, rows)
    table = Table(table.title, (*table.columns, Column("status", right=False)), table.rows)
    return table.with_bounds([phase.latency_us.bound_us for phase in result.phases])


def agents(result: Result) -> Table:
    """The generator itself. Many engines are one row for each way they ended: clients and CPU added
    up, of the others the largest. Where they are on several hosts, it names these."""
    many = len(result.fleet.agents) > ENGINES_MAX
    hosts = any(agent.host for agent in result.fleet.agents)
    groups: dict[str, list[AgentResult]] = {}
    for agent in result.fleet.agents:
        groups.setdefault(agent.ending if many else str(agent.agent), []).append(agent)
    rows = [
        (
            counted(len(group), "engine") if many else name,
            *([_hosts_text(group)] if hosts else []),
            count_text(sum(agent.clients for agent in group)),
            share_text(max(agent.busy_share for agent in group)),
            f"{sum(agent.cpu_s for agent in group):.1f} s",
            bytes_text(max(agent.rss_max_bytes for agent in group)),
            group[0].ending,
        )
        for name, group in groups.items()
    ]
    texts = [Column("agent", right=False), *([Column("host", right=False)] if hosts else [])]
    figures = map(Column, ("clients", "busy", "CPU", "memory max"))
    return Table("Engines", (*texts, *figures, Column("ending", right=False)), tuple(rows))


def losses(result: Result) -> Table:
    """Engines that were lost while the run went on."""
    rows = [
        (
            str(loss.agent),
            span_text(loss.at_s),
            count_text(loss.clients),
            NOTHING if loss.back_after_s is None else duration_text(1e6 * loss.back_after_s),
            NOTHING if loss.replaced_on is None else loss.replaced_on or HERE,
            loss.text,
        )
        for loss in result.fleet.losses
    ]
    figures = map(Column, ("at", "clients", "back after"))
    texts = (Column("on", right=False), Column("what", right=False))
    return Table("Lost engines", (Column("agent", right=False), *figures, *texts), tuple(rows))


def _hosts_text(agents: Sequence[AgentResult]) -> str:
    """The host of some agents, or how many they have."""
    found = {agent.host or HERE for agent in agents}
    return counted(len(found), "host") if len(found) > 1 else min(found)


def clocks(result: Result) -> Table:
    """How well the engines on other hosts knew the reference clock; of many the least sure."""
    told = [(agent, agent.clock) for agent in result.fleet.agents if agent.clock is not None]
    worst = sorted(told, key=lambda each: -each[1].bound_us)[:ENGINES_MAX]
    shown = [each for each in told if each in worst]
    rows = [
        (
            str(agent.agent),
            agent.host or NOTHING,
            duration_text(clock.offset_us),
            f"{clock.drift_ppm:+.3f} ppm",
            duration_text(clock.round_trip_us),
            f"± {duration_text(clock.bound_us)}",
            count_text(clock.exchanges_total),
        )
        for agent, clock in shown
    ]
    columns = (Column("agent", right=False), Column("host", right=False))
    names = ("offset", "drift", "round trip", "off by at most", "exchanges")
    note = "Offset and drift are those of the reference clock against the clock of the host."
    if len(told) > len(rows):
        note = f"Shown are the {len(rows)} least sure of {count_text(len(told))}. {note}"
    table = Table("Clocks", (*columns, *map(Column, names)), tuple(rows), note)
    return table.without_empty_columns()


def events(result: Result) -> Table:
    """What happened to the run, otherwise than its stages."""
    rows = [(span_text(event.at_s), event.kind, event.text) for event in result.events]
    columns = (Column("at"), Column("kind", right=False), Column("what", right=False))
    return Table("Events", columns, tuple(rows))


def detail_tables(result: Result) -> list[Table]:
    """Tables for those who look closer, only where there is a row."""
    every = every_stall(result)
    more = every if len(every.rows) > STALLS_SHOWN else None
    found = (clocks(result), more, every_track(result))
    return [table for table in found if table is not None and table.rows]


def environment(result: Result) -> list[tuple[str, str]]:
    """Name and value of everything known about machine and programs."""
    found = result.environment
    return [
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


def facts(result: Result) -> list[tuple[str, str]]:
    """Name and value of what belongs to the whole run."""
    headroom = result.headroom
    used = (
        ""
        if headroom is None
        else (
            f"{share_text(round(headroom.rate, 2))} of the calibrated ceiling, "
            f"{share_text(round(headroom.clients, 2))} of the calibrated clients"
        )
    )
    environment, late = result.environment, result.fleet.lateness_us
    programs = [f"{b.kind} {b.version}".strip() for b in environment.brokers]
    programs += dict.fromkeys(each.library or each.kind for each in result.publishers)
    return [
        ("targets", _targets(result) + (f" ({', '.join(programs)})" if programs else "")),
        ("started", f"{result.started}, took {span_text(result.duration_s)}"),
        *([("balance", shares)] if (shares := balance_text(result)) else []),
        *([(COMMAND, result.command)] if result.command else []),
        *([] if result.publishers and not late.count else [("engine late", _late_text(late))]),
        *([("engine load", used)] if used else []),
        *([("clocks", _clocks_text(result))] if result.fleet.clock_bound_us else []),
        (
            "host",
            f"{environment.cores} × {environment.cpu_model}, "
            f"{bytes_text(environment.memory_bytes)}, {environment.kernel}",
        ),
    ]


def _late_text(late: Latency) -> str:
    return f"p50 {_time(late.p50, late.count)}, p99 {_time(late.p99, late.count)}"


def _clocks_text(result: Result) -> str:
    bound = duration_text(result.fleet.clock_bound_us)
    return f"delivery times between hosts are off by {bound} at most"


def _targets(result: Result) -> str:
    if len(result.targets) <= TARGETS_MAX:
        return ", ".join(result.targets)
    shown = result.targets[: TARGETS_MAX - 1]
    return f"{', '.join(shown)} and {count_text(len(result.targets) - len(shown))} more"


def _table(title: str, first: str, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    columns = (Column(first, right=False), *map(Column, names))
    return Table(title, columns, tuple(rows))


def _flow_cells(flow: FlowResult, with_in_flight: bool) -> tuple[str, ...]:
    latency = flow.latency_us.intended
    return (
        f"{flow.source} → {flow.to}",
        count_text(flow.expected_total),
        count_text(flow.received_total),
        count_text(flow.lost_total),
        *((count_text(flow.in_flight_total),) if with_in_flight else ()),
        count_text(flow.duplicate_total),
        count_text(flow.reordered_total),
        _time(latency.p50, latency.count),
        _time(latency.p99, latency.count),
        _time(latency.max, latency.count),
    )


def _negative(pair: LatencyPair) -> int:
    return pair.intended.negative_total + pair.actual.negative_total


def _latency_cells(pair: LatencyPair, with_negative: bool) -> tuple[str, ...]:
    intended, actual = pair.intended, pair.actual
    cells = (
        count_text(intended.count),
        _time(intended.p50, intended.count),
        _time(intended.p99, intended.count),
        _time(intended.p999, intended.count),
        _time(intended.max, intended.count),
        _time(actual.p99, actual.count),
    )
    return (*cells, count_text(_negative(pair))) if with_negative else cells


def _of_senders(population: PopulationResult, count: int) -> str:
    return count_text(count) if population.sent_total and population.acknowledged else NOTHING


def _of_receivers(population: PopulationResult, count: int) -> str:
    return count_text(count) if population.expected_total or population.received_total else NOTHING


def _time(duration_us: float, count: int) -> str:
    return duration_text(duration_us) if count else NOTHING


def _clients_per_s(stage: StageResult) -> str:
    """Clients that came or went a second."""
    rate_per_s = stage.connects_per_s - stage.disconnects_per_s
    return _signed(rate_per_s) if rate_per_s else NOTHING


def _signed(rate_per_s: float) -> str:
    return f"{'+' if rate_per_s > 0 else ''}{rate_text(rate_per_s)}"


def _phase_cells(phase: Phase, with_acks: bool, with_dropped: bool) -> tuple[str, ...]:
    cells = (
        phase.name,
        span_text(phase.start_s),
        count_text(phase.clients),
        rate_text(phase.due_per_s),
        rate_text(phase.acked_per_s) if with_acks else NOTHING,
        rate_text(phase.received_per_s) if phase.received_per_s else NOTHING,
        _signed(phase.queue_growth_per_s),
        _time(phase.latency_us.p99, phase.latency_us.count),
    )
    dropped = NOTHING if phase.dropped_total is None else count_text(phase.dropped_total)
    return (*cells, *((dropped,) if with_dropped else ()), _phase_status(phase))


def _phase_status(phase: Phase) -> str:
    """The status, with when it collapsed and what its recovery took."""
    text = str(phase.status)
    if phase.collapsed_at_s is not None:
        text += f" at {span_text(phase.collapsed_at_s)}"
    if phase.recovered_after_s is not None:
        again = ", carried again" if phase.status is PhaseStatus.COLLAPSED else ""
        text += f"{again} after {span_text(phase.recovered_after_s)}"
    if phase.status is PhaseStatus.NEVER_RECOVERED:
        text += f" in {span_text(phase.duration_s)}"
    return text

"""The tables and facts of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pubstorm.quantities import (
    NOTHING,
    bytes_text,
    count_text,
    counted,
    duration_text,
    share_text,
    span_text,
)
from pubstorm.report.brokers import bridges, brokers
from pubstorm.report.document import Fact, Table, Value, columns
from pubstorm.report.faults import fault_ledger, faults
from pubstorm.report.plot import Part
from pubstorm.report.publishers import publishers, subscribers
from pubstorm.report.summary import (
    STALLS_SHOWN,
    balance,
    balance_text,
    by_stage,
    every_stall,
    explanations,
    memory,
    problems,
    samplers,
    stalls,
)
from pubstorm.report.watched import (
    ENGINES_MAX,
    broker_counters,
    cpu_by_span,
    every_track,
    monitor_problems,
    observers,
    processes,
    stale_state,
    symbols,
)
from pubstorm.result import (
    AgentResult,
    Latency,
    LatencyPair,
    Phase,
    PopulationResult,
    Result,
)

TARGETS_MAX = 4
"""Targets that are named one by one."""
HERE = "this host"
"""Name of a host without an address."""
IN_FLIGHT, NEGATIVE = "in flight", "negative"
"""Columns that a table has only if a cell is not empty."""
TOTALS_OF_AGENTS = {
    "clients": "clients",
    "failed connects": "connect_failed_total",
    "sent": "sent_total",
    "acked": "acked_total",
    "given up": "abandoned_total",
    "skipped": "skipped_total",
    "expected": "expected_total",
    "received": "received_total",
}
"""Columns that add up over agents, with their counters."""
TROUBLE_OF_AGENTS = ("failed connects", "given up", "skipped")
"""Columns among them that a table has only if a cell is not zero."""
OWN_COLUMNS_MAX = 8
"""Columns that a table of the scenario's own may have beside each other."""


def tables(result: Result) -> list[Table]:
    """Every table that has a row, the scenario's own first."""
    found = ((part, build(result)) for part, build in BUILDERS)
    return [replace(table, part=part) for part, table in found if table.rows]


def own_table(result: Result) -> Table:
    """Returns the scenario's own table: one row, or a row for each figure of many."""
    title, found = "The scenario's own table", result.table
    if len(found) > OWN_COLUMNS_MAX:
        return Table(
            title, (*columns("word", "figure"), *columns("count", "found")), list(found.items())
        )
    return Table(title, columns("count", *found), [tuple(found.values())] * bool(found))


def connections(result: Result) -> Table:
    """Returns connections and connect times of each population."""
    rows = [
        (
            name,
            p.clients,
            p.connected_max,
            p.connect_failed_total,
            p.disconnected_total,
            *_times(p.connect_time_us, "p50", "p99", "max"),
        )
        for name, p in result.populations.items()
    ]
    heads = (
        *columns("word", "population"),
        *columns("count", "clients", "connected max", "connect failed", "disconnected"),
        *columns("us", "p50", "p99", "max"),
    )
    return Table("Connections", heads, rows)


def deliveries(result: Result) -> Table:
    """Returns the ledger of each population. Deliveries in flight have a column only if the run
    ended early."""
    with_in_flight = any(p.to_come_total for p in result.populations.values())
    rows = [
        (
            name,
            p.sent_total,
            p.acked_total if p.sent_total and p.acknowledged else None,
            *_of_receivers(
                p,
                p.received_total,
                p.lost_total,
                p.to_come_total if with_in_flight else None,
                p.duplicate_total,
                p.reordered_total,
                p.expired_total or None,
            ),
            p.rates.sent_per_s if p.sent_total else None,
            p.rates.received_per_s if p.received_total else None,
        )
        for name, p in result.populations.items()
    ]
    names = ("sent", "acked", "received", "lost", IN_FLIGHT, "dup", "reordered", "expired")
    heads = (
        *columns("word", "population"),
        *columns("count", *names),
        *columns("rate", "sent/s", "received/s"),
    )
    return Table("Messages", heads, rows).without_empty(IN_FLIGHT, "expired")


def latencies(result: Result) -> Table:
    """Returns the latencies of each population: of deliveries and of acknowledgements. Negative
    latencies have a column only if there are any."""
    pairs = [
        (name, what, pair)
        for name, p in result.populations.items()
        for what, pair in (("delivery", p.latency_us), ("ack", p.ack_latency_us))
        if pair.intended.count or _negative(pair)
    ]
    with_negative = any(_negative(pair) for _, _, pair in pairs)
    rows = [
        (
            name,
            what,
            pair.intended.count,
            *_times(pair.intended, "p50", "p99", "p999", "max"),
            pair.actual.p99 if pair.intended.count else None,
            _negative(pair) if with_negative else None,
        )
        for name, what, pair in pairs
    ]
    heads = (
        *columns("word", "population", "latency"),
        *columns("count", "count"),
        *columns("us", "p50", "p99", "p99.9", "max", "p99 from send"),
        *columns("count", NEGATIVE),
    )
    table = Table("Latency", heads, rows).without_empty(NEGATIVE)
    return table.with_bounds([pair.intended.bound_us for _, _, pair in pairs])


def receive_maximum(result: Result) -> Table:
    """Returns the waits for the Receive Maximum of brokers, of populations that waited."""
    rows = [
        (
            name,
            p.receive_maximum_waits_total,
            p.sent_total,
            *_times(p.receive_maximum_wait_us, "mean", "p50", "p99", "max"),
        )
        for name, p in result.populations.items()
        if p.receive_maximum_waits_total
    ]
    heads = (
        *columns("word", "population"),
        *columns("count", "waits", "sent"),
        *columns("us", "mean", "p50", "p99", "max"),
    )
    return Table("Waits for Receive Maximum", heads, rows)


def flapping(result: Result) -> Table:
    """Returns the times of SUBSCRIBE and UNSUBSCRIBE of populations that flap."""
    statistics = ("p50", "p99", "max")
    rows = [
        (name, p.unsubscribed_total, p.unsubscribe_failed_total, *unsuback, *suback)
        for name, p in result.populations.items()
        for unsuback in (_times(p.unsubscribe_time_us, *statistics),)
        for suback in (_times(p.subscribe_time_us, *statistics),)
        if p.unsubscribe_time_us.count
    ]
    heads = (
        *columns("word", "population"),
        *columns("count", "unsubscribed", "refused"),
        *columns("us", *(f"{ack} {name}" for ack in ("UNSUBACK", "SUBACK") for name in statistics)),
    )
    return Table("Flapping subscriptions", heads, rows)


def round_trips(result: Result) -> Table:
    """Returns the requests and answers of each population that has any."""
    rows = [
        (
            name,
            p.requests_total or None,
            *((p.answered_total, p.unanswered_total) if p.requests_total else (None, None)),
            p.answers_duplicate_total or None,
            p.answers_late_total or None,
            p.answers_of_others_total or None,
            p.answers_total or None,
            p.answers_dropped_total or None,
            *_times(p.round_trip_us, "p50", "p99", "p999", "max"),
        )
        for name, p in result.populations.items()
        if p.requests_total or p.answers_total or p.answers_dropped_total
    ]
    optional = ("dup", "late", "of others", "answers", "not sent")
    heads = (
        *columns("word", "population"),
        *columns("count", "requests", "answered", "unanswered", *optional),
        *columns("us", "p50", "p99", "p99.9", "max"),
    )
    return Table("Round trips", heads, rows).without_empty(*optional)


def wills(result: Result) -> Table:
    """Returns the deliveries of wills to each population, and their latencies."""
    rows = [
        (
            name,
            p.wills_expected_total,
            p.wills_received_total,
            p.wills_lost_total,
            p.will_latency_us.count,
            *_times(p.will_latency_us, "p50", "p99", "max"),
        )
        for name, p in result.populations.items()
        if p.wills_expected_total or p.wills_received_total
    ]
    heads = (
        *columns("word", "population"),
        *columns("count", "expected", "received", "lost", "timed"),
        *columns("us", "p50", "p99", "max"),
    )
    return Table("Wills", heads, rows)


def flows(result: Result) -> Table:
    """Returns the ledger by publisher and receiver. Empty if there is only one flow."""
    several = result.flows if len(result.flows) > 1 else ()
    with_in_flight = any(flow.in_flight_total for flow in several)
    rows = [
        (
            f"{flow.source} → {flow.to}",
            flow.expected_total,
            flow.received_total,
            flow.lost_total,
            flow.in_flight_total if with_in_flight else None,
            flow.duplicate_total,
            flow.reordered_total,
            *_times(flow.latency_us.intended, "p50", "p99", "max"),
        )
        for flow in several
    ]
    names = ("expected", "received", "lost", IN_FLIGHT, "dup", "reordered")
    heads = (
        *columns("word", "from → to"),
        *columns("count", *names),
        *columns("us", "p50", "p99", "max"),
    )
    table = Table("Flows", heads, rows).without_empty(IN_FLIGHT)
    return table.with_bounds([flow.latency_us.intended.bound_us for flow in several])


def stages(result: Result) -> Table:
    """Returns the stages in the order played, with the clients connected after each."""
    rows = [
        (
            stage.name,
            stage.kind,
            stage.start_s,
            stage.duration_s,
            stage.connected,
            (stage.connects_per_s - stage.disconnects_per_s) or None,
            stage.steady_s or None,
            sum(p.sent_per_s for p in stage.populations.values()),
            sum(p.received_per_s for p in stage.populations.values()),
        )
        for stage in result.stages
    ]
    heads = (
        *columns("word", "stage", "kind"),
        *columns("s", "start", "took"),
        *columns("count", "connected"),
        *columns("signed rate", "clients/s"),
        *columns("s", "steady"),
        *columns("rate", "sent/s", "received/s"),
    )
    return Table("Stages", heads, rows)


def phases(result: Result) -> Table:
    """Returns the phases of publish stages, each with its verdict and the mean CPU of brokers and
    of the host. Messages that the broker dropped have a column only if the broker reports them."""
    played = {phase.name for phase in result.phases}
    processors = {name: by for name, by in cpu_by_span(result).items() if played & by.keys()}
    with_acks = any(population.acknowledged for population in result.populations.values())
    rows = [
        (
            phase.name,
            phase.start_s,
            phase.clients,
            phase.due_per_s,
            phase.acked_per_s if with_acks else None,
            phase.received_per_s or None,
            phase.queue_growth_per_s,
            *_times(phase.latency_us, "p99"),
            phase.dropped_total,
            *(by_span.get(phase.name) for by_span in processors.values()),
            _phase_status(phase),
        )
        for phase in result.phases
    ]
    heads = (
        *columns("word", "phase"),
        *columns("s", "start"),
        *columns("count", "clients"),
        *columns("rate", "load/s", "acked/s", "received/s"),
        *columns("signed rate", "queue/s"),
        *columns("us", "p99"),
        *columns("count", "dropped"),
        *columns("share", *(f"{name} CPU" for name in processors)),
        *columns("word", "status"),
    )
    table = Table("Phases", heads, rows).without_empty("dropped")
    return table.with_bounds([phase.latency_us.bound_us for phase in result.phases])


def agents(result: Result) -> Table:
    """Returns the load generator. Many agents have a row for each ending: the sums of clients,
    messages and CPU, and the largest of the rest. Agents on several hosts have a column of
    hosts."""
    many = len(result.fleet.agents) > ENGINES_MAX
    groups: dict[str, list[AgentResult]] = {}
    for agent in result.fleet.agents:
        groups.setdefault(agent.ending if many else str(agent.agent), []).append(agent)
    names = [counted(len(group), "agent") if many else name for name, group in groups.items()]
    return _agents("Agents", dict(zip(names, groups.values(), strict=True)))


def every_agent(result: Result) -> Table | None:
    """Returns a row for each agent; None if the table of agents has them."""
    agents = result.fleet.agents
    if len(agents) <= ENGINES_MAX:
        return None
    return _agents("Every agent", {str(agent.agent): [agent] for agent in agents})


def _agents(title: str, groups: Mapping[str, Sequence[AgentResult]]) -> Table:
    hosts = any(agent.host for group in groups.values() for agent in group)
    rows = [
        (
            name,
            _hosts_text(group) if hosts else None,
            *_totals(group),
            max(agent.busy_share for agent in group),
            f"{sum(agent.cpu_s for agent in group):.1f} s",
            max(agent.rss_max_bytes for agent in group),
            group[0].ending,
        )
        for name, group in groups.items()
    ]
    heads = (
        *columns("word", "agent", "host"),
        *columns("count", *TOTALS_OF_AGENTS),
        *columns("share", "busy"),
        *columns("s", "CPU"),
        *columns("bytes", "memory max"),
        *columns("word", "ending"),
    )
    note = (
        "Expected are deliveries of the messages that the agent's clients sent, received are "
        "deliveries to them: loss shows only in the sums over all agents."
    )
    shown = note if len(groups) > 1 and len(rows) else ""
    return Table(title, heads, rows, shown).without_empty("host", *TROUBLE_OF_AGENTS)


def _totals(agents: Sequence[AgentResult]) -> Iterator[int | None]:
    """Yields the sums of some agents; no zeros of what should not happen."""
    for name, total in TOTALS_OF_AGENTS.items():
        count = sum(getattr(agent, total) for agent in agents)
        yield None if name in TROUBLE_OF_AGENTS and not count else count


def failures(result: Result) -> Table:
    """Returns the agents that failed while the run continued."""
    rows = [
        (
            str(each.agent),
            each.at_s,
            each.clients,
            None if each.rejoined_after_s is None else 1e6 * each.rejoined_after_s,
            None if each.replaced_on is None else each.replaced_on or HERE,
            each.text,
        )
        for each in result.fleet.failures
    ]
    heads = (
        *columns("word", "agent"),
        *columns("s", "at"),
        *columns("count", "clients"),
        *columns("us", "rejoin after"),
        *columns("word", "on", "what"),
    )
    return Table("Agent failures", heads, rows)


def _hosts_text(agents: Sequence[AgentResult]) -> str:
    """The host of some agents, or how many they have."""
    found = {agent.host or HERE for agent in agents}
    return counted(len(found), "host") if len(found) > 1 else min(found)


def clocks(result: Result) -> Table:
    """Returns the error of the agents' clocks on other hosts; of many agents the largest errors."""
    agents = [(str(a.agent), a.host, a.clock) for a in result.fleet.agents]
    agents += [(p.name, p.host, p.clock) for p in result.publishers]
    known = [(name, host, clock) for name, host, clock in agents if clock is not None]
    worst = sorted(known, key=lambda each: -each[2].bound_us)[:ENGINES_MAX]
    shown = [each for each in known if each in worst]
    rows = [
        (
            name,
            host or None,
            clock.offset_us,
            f"{clock.drift_ppm:+.3f} ppm",
            clock.round_trip_us,
            f"± {duration_text(clock.bound_us)}",
            clock.exchanges_total,
        )
        for name, host, clock in shown
    ]
    heads = (
        *columns("word", "agent", "host"),
        *columns("us", "offset", "drift", "round trip", "off by at most"),
        *columns("count", "exchanges"),
    )
    note = "Offset and drift are those of the reference clock against the clock of the host."
    if len(known) > len(rows):
        note = f"Shown are the {len(rows)} least sure of {count_text(len(known))}. {note}"
    return Table("Clocks", heads, rows, note).without_empty()


def events(result: Result) -> Table:
    """Returns the events of the run, except its stages."""
    rows = [(event.at_s, event.kind, event.text) for event in result.events]
    return Table("Events", (*columns("s", "at"), *columns("word", "kind", "what")), rows)


def detail_tables(result: Result) -> list[Table]:
    """Tables for those who look closer, only where there is a row."""
    every = every_stall(result)
    more = every if len(every.rows) > STALLS_SHOWN else None
    found = (every_agent(result), clocks(result), more, every_track(result))
    return [table for table in found if table is not None and table.rows]


def environment(result: Result) -> tuple[Fact, ...]:
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


def facts(result: Result) -> tuple[Fact, ...]:
    """Returns the facts about the whole run."""
    return tuple(_facts(result))


def _facts(result: Result) -> Iterator[Fact]:
    headroom, environment, late = result.headroom, result.environment, result.fleet.lateness_us
    programs = [f"{b.kind} {b.version}".strip() for b in environment.brokers]
    programs += dict.fromkeys(each.library or each.kind for each in result.publishers)
    yield Fact("targets", _targets(result) + (f" ({', '.join(programs)})" if programs else ""))
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


def _targets(result: Result) -> str:
    if len(result.targets) <= TARGETS_MAX:
        return ", ".join(result.targets)
    shown = result.targets[: TARGETS_MAX - 1]
    return f"{', '.join(shown)} and {count_text(len(result.targets) - len(shown))} more"


def _negative(pair: LatencyPair) -> int:
    return pair.intended.negative_total + pair.actual.negative_total


def _of_receivers(population: PopulationResult, *counts: int | None) -> tuple[Value, ...]:
    receives = population.expected_total or population.received_total or population.expired_total
    return counts if receives else (None,) * len(counts)


def _times(latency: Latency, *names: str) -> tuple[Value, ...]:
    """Returns statistics of a latency; nothing if nothing was measured."""
    return tuple(getattr(latency, name) if latency.count else None for name in names)


def _time(latency: Latency, duration_us: float) -> str:
    return duration_text(duration_us) if latency.count else NOTHING


def _phase_status(phase: Phase) -> str:
    """The status, with when it collapsed and what its recovery took."""
    return f"{phase.status}{phase.times(', carried again')}"


BUILDERS: tuple[tuple[Part, Callable[[Result], Table]], ...] = (
    ("happened", own_table),
    ("happened", faults),
    ("happened", fault_ledger),
    ("happened", phases),
    ("load", publishers),
    ("load", subscribers),
    ("load", samplers),
    ("happened", problems),
    ("happened", explanations),
    ("happened", stalls),
    ("load", connections),
    ("load", deliveries),
    ("latency", latencies),
    ("latency", receive_maximum),
    ("latency", flapping),
    ("latency", round_trips),
    ("latency", wills),
    ("load", flows),
    ("load", stages),
    ("broker", balance),
    ("broker", brokers),
    ("broker", bridges),
    ("broker", processes),
    ("broker", by_stage),
    ("broker", memory),
    ("broker", broker_counters),
    ("broker", observers),
    ("generator", monitor_problems),
    ("broker", stale_state),
    ("broker", symbols),
    ("generator", agents),
    ("generator", failures),
    ("details", events),
)
"""The tables in their order, each with the section of the page that has it."""

"""Turns the sums and the run log of a run into its measurements: sums by population, flow and
stage, rates over the steady windows, and the generator's own figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from pubstorm.contract.commands import ActiveClients, Hello
from pubstorm.contract.offered_load import lacks_stamps, target_of
from pubstorm.contract.plan import HoldAction, Plan, PlannedPopulation, PublishAction
from pubstorm.contract.protocol import ClosedPace, OpenPace
from pubstorm.contract.queue_limits import QueueLimits
from pubstorm.contract.snapshot import FlowSnapshot
from pubstorm.contract.sums import Pair, RunSum, total
from pubstorm.fleet.programs import AgentProgram, Assignment
from pubstorm.measure.ledger import Ledger, client_loss, group_share, lost_wills
from pubstorm.measure.run_log import AgentFailure, RunLog, StageSpan, clock_bound_us, clock_result
from pubstorm.quantities import SECOND_NS, counted, duration_text, span_text
from pubstorm.result import (
    RATED_MIN_S,
    AgentResult,
    ClockResult,
    Event,
    FailureResult,
    FleetResult,
    FlowResult,
    HistogramPair,
    Latency,
    LatencyParts,
    PopulationResult,
    PopulationSums,
    PublisherResult,
    Rates,
    RunDelay,
    StageFlow,
    StagePopulation,
    StageResult,
    ValidityLimits,
)
from pubstorm.result.measures import fields_of, histograms_of
from pubstorm.result.samples import Span
from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.rows import (
    Activities,
    Activity,
    Gauge,
    activities,
    rates_of,
)
from pubstorm.scenario import Scenario

SOCKET_OPTIONS = {"high_water_mark", "io_threads", "security"}
"""Options of a publisher's socket that its result has."""


def limits_of(scenario: Scenario) -> ValidityLimits:
    """Returns the limits above which the load generator counts as saturated."""
    validity = scenario.validity
    return ValidityLimits(lateness_p99_us=validity.lateness_p99 / 1000, busy=validity.busy)


@dataclass(frozen=True)
class Assembly:
    """The recordings of a run, as its measurements are made of them."""

    plan: Plan
    hellos: Sequence[Hello]
    run_log: RunLog
    sums: RunSum
    timeline: Timeline
    limits: ValidityLimits
    on: str = "local"
    """Place of the agents, as in `fleet.on`."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Addresses of the agents' hosts; empty: this one."""
    percentiles: Mapping[str, float] = field(default_factory=dict)
    """Percentiles of latencies that are wanted beside the usual ones: shares by name."""

    @cached_property
    def assignment(self) -> Assignment:
        """The agents, and what each played."""
        return Assignment.among(self.plan, len(self.hellos))

    @cached_property
    def clocks(self) -> Mapping[int, ClockResult | None]:
        """Quality of each agent's clock; None if the agent's host has the reference clock."""
        stamping = {span.index for span in self._spans_of(PublishAction)}
        played = self.timeline.agents
        rows = {agent: self.timeline.rows_of(agent) for agent in played}
        return {
            agent: clock_result(hello, rows.get(agent, ()), stamping)
            for agent, hello in enumerate(self.hellos)
        }

    @cached_property
    def clock_bound_us(self) -> float:
        """Largest error of delivery times, which the clocks of two agents make. A replaced agent
        had two clocks."""
        failures = (each for each in self.run_log.failures if each.rejoined_ns)
        again = (self.clocks.get(failure.agent) for failure in failures)
        return clock_bound_us([*self.clocks.values(), *again])

    @cached_property
    def ledger(self) -> Ledger:
        """The sums, with the deliveries that the run log excludes from loss."""
        return Ledger(self.sums, self.plan, self.run_log)

    @property
    def agents_of_load(self) -> int:
        """Number of agents that made load: all but those under test."""
        return self.assignment.agents - len(self.assignment.publishers)

    def populations(self) -> dict[str, PopulationResult]:
        """The result of each population."""
        return self._populations(self.plan.alone)

    def wholes(self) -> dict[str, PopulationResult]:
        """The result of each population with shares, all of them together."""
        return self._populations(self.plan.wholes)

    def flows(self) -> tuple[FlowResult, ...]:
        """Returns the ledger of each flow with expected or received deliveries."""
        return tuple(self._flow(pair, flow) for pair, flow in self.ledger.flows().items())

    @cached_property
    def stages(self) -> tuple[StageResult, ...]:
        """Each stage as it was played."""
        return tuple(map(self._stage, self.run_log.spans))

    def named_spans(self) -> tuple[list[Span], list[Span]]:
        """The stages as spans of the time axis, and the load of those that publish; where none
        does, those that hold."""
        named = ((self.plan.stages[span.index].name, span) for span in self.run_log.spans)
        load = [(s.from_ns, min(s.load_until_ns, s.to_ns)) for s in self._spans_of(PublishAction)]
        holds = [(s.from_ns, s.to_ns) for s in self._spans_of(HoldAction)]
        return (
            [self._span(name, span.from_ns, span.to_ns) for name, span in named],
            [self._span("", *ends) for ends in load or holds],
        )

    def resolutions(self, merged_s: float = 0.0) -> Iterator[Event]:
        """Yields what of a long run is coarser than an interval, and what is left out. Readings of
        monitors are merged until `merged_s`, in seconds after the start."""
        for span in self.run_log.spans:
            step_ns = self.timeline.resolution_ns(span.from_ns, span.to_ns)
            step_ns = min(step_ns, span.to_ns - span.from_ns)
            if step_ns > self.plan.snapshot_interval_ns:
                name, step = self.plan.stages[span.index].name, duration_text(step_ns / 1000)
                text = f"older parts of {name} are kept in steps of {step}"
                yield Event(at_s=self.run_log.at_s(span.to_ns), kind="resolution", text=text)
        if merged_s:
            text = f"readings of monitors in the first {span_text(merged_s)} are merged with age"
            yield Event(at_s=merged_s, kind="resolution", text=text)
        if self.timeline.edges.left_out:
            edges = counted(self.timeline.edges.left_out, "start or end", "starts and ends")
            text = f"{edges} of changes and faults are not kept apart in older parts"
            yield Event(at_s=self.run_log.at_s(self.run_log.ended_ns), kind="resolution", text=text)
        if self.run_log.left_out:
            text = f"{counted(self.run_log.left_out, 'further event')} were left out"
            yield Event(at_s=self.run_log.at_s(self.run_log.ended_ns), kind="resolution", text=text)

    def fleet(self) -> FleetResult:
        """The generator's own figures."""
        sums, publishers = self.sums, self.assignment.publishers
        stages = [span.index for span in self._spans_of(PublishAction)]
        publish = sums.agent([agent for agent in sums.agents if agent not in publishers], stages)
        load = {agent: each for agent, each in self._load.items() if agent not in publishers}
        agents = [sums.agent([agent]) for agent in sums.agents]
        hellos = (h for a, h in enumerate(self.hellos) if a not in publishers)
        allowed_ns = round(1000 * self.limits.lateness_p99_us)
        return FleetResult(
            on=self.on,
            failures=tuple(map(self._failure, self.run_log.failures)),
            agents=tuple(map(self._agent, hellos)),
            clock_bound_us=self.clock_bound_us,
            lateness_us=Latency.of(publish.lateness),
            blocked_us=Latency.of(publish.blocked),
            load_intervals_total=sum(each.intervals for each in load.values()),
            busy_intervals_total=sum(each.busy for each in load.values()),
            starved_intervals_total=sum(each.starved for each in load.values()),
            busy_starved_total=sum(each.busy_starved for each in load.values()),
            starved_share=round(max((e.starved_share for e in load.values()), default=0.0), 4),
            late_total=publish.lateness.count_above(allowed_ns),
            late_starved_total=publish.lateness_starved.count_above(allowed_ns),
            ledger_pairs=sum(agent.ledger_pairs_max for agent in agents),
            unfollowed_total=sum(agent.unfollowed_total for agent in agents),
            held_s=round(max((agent.held_ns for agent in agents), default=0) / SECOND_NS, 3),
        )

    def publishers(self) -> tuple[PublisherResult, ...]:
        """The processes under test."""
        if not self.hellos:
            return ()
        return tuple(map(self._publisher, self.assignment.publishers.values()))

    def _publisher(self, program: AgentProgram) -> PublisherResult:
        population = self.plan.populations[program.population]
        hello, part = self.hellos[program.agent], self.sums.agent([program.agent])
        pace = population.publications[0].pace
        kind = population.player
        assert kind != "engine", "an engine is no program"
        assert kind != "librdkafka" and kind != "proton", "consumers publish nothing"
        return PublisherResult(
            name=program.name,
            population=population.name,
            kind=kind,
            library=hello.library or "",
            pid=hello.pid,
            host=self.hosts.get(program.agent, ""),
            address=str(self.plan.targets[target_of(self.plan, program.population, program.share)]),
            **population.protocol.model_dump(include=SOCKET_OPTIONS),
            burst=pace.burst if isinstance(pace, OpenPace) else 1,
            **dict(fields_of(PublisherResult, part, self.percentiles)),
            time_histograms_ns=histograms_of(PublisherResult, part),
            busy_share=self._busy_share(program.agent),
            ending=self.run_log.endings.get(program.agent, "unknown"),
            clock=self.clocks.get(program.agent),
        )

    @cached_property
    def _load(self) -> Activities:
        """The activity of each agent under full load."""
        found: Activities = {}
        for span in self._spans_of(PublishAction):
            for agent, activity in self._steady[span.index].items():
                found.setdefault(agent, Activity()).merge(activity)
        return found

    def _busy_share(self, agent: int) -> float:
        return round(self._load.get(agent, Activity()).busy_share, 4)

    def _populations(self, members: Mapping[str, Sequence[int]]) -> dict[str, PopulationResult]:
        return {
            name: self._population(indices, _mean_rates(name, self.stages))
            for name, indices in members.items()
        }

    def _population(self, indices: Sequence[int], rates: Rates) -> PopulationResult:
        plans, own = self._plans(indices), self.ledger.into(indices)
        publishing, peaks = self._spans_of(PublishAction), self.timeline.peaks()
        return PopulationResult(
            **self._sums_of(PopulationResult, indices),
            clients=sum(plan.clients for plan in plans),
            version=plans[0].protocol.name,
            player=plans[0].player,
            read_rate_per_s=_read_rate_per_s(plans),
            asked_max=self._asked_max(indices),
            acknowledged=any(each.qos for plan in plans for each in plan.publications),
            leaves_deliveries=any(getattr(p.protocol, "keeps_deliveries", False) for p in plans),
            queue_limits=QueueLimits.lowest(
                getattr(p.protocol, "queue_limits", None) for p in plans
            ),
            delivery_qos=self._delivery_qos(own),
            closed_loop=any(map(_is_closed_loop, plans)),
            closed_loop_window=_window(plans, ClosedPace),
            open_loop_window=_window(plans, OpenPace),
            lives=any(plan.lifetime is not None for plan in plans),
            connected_max=peaks.of(indices, "connected"),
            ready_max=peaks.of(indices, "ready"),
            reached_max=peaks.of(indices, "reached"),
            offline_max=peaks.of(indices, "offline"),
            in_flight_max=peaks.of(indices, "in_flight"),
            in_flight=self._at_ends(publishing[-1:], indices, "in_flight"),
            backlog=self._at_ends(publishing[-1:], indices, "backlog"),
            stalled=self._at_ends(publishing, indices, "stalled"),
            to_come_total=self.ledger.in_flight(own),
            rates=rates,
            ack_histogram_ns=HistogramPair.of_acks(self.ledger.population(indices)),
        )

    def _sums_of(
        self,
        model: type[PopulationSums],
        indices: Sequence[int],
        stages: Collection[int] | None = None,
    ) -> dict[str, Any]:
        """Returns the fields of a result of populations that are sums over stages, or over all, and
        the distributions behind its times. Those of latencies are a stage's: flows and
        acknowledgements have them for the whole run."""
        ledger, plan, percentiles = self.ledger, self.plan, self.percentiles
        sums, own = ledger.population(indices, stages), ledger.into(indices, stages)
        into = total(FlowSnapshot, own.values())
        played = stages or [span.index for span in self._spans_of(PublishAction)]
        parts = (sums, sums.counters, sums.answers, into, into.counters)
        deliveries, acks = HistogramPair.of_deliveries(into), HistogramPair.of_acks(sums)
        run_delay = self._run_delay(stages)
        histograms = histograms_of(model, sums) | histograms_of(model, into)
        live = into.latency_intended.minus(into.queued_latency)
        if into.queued_latency.count and live.count:
            histograms["live_latency_us"] = live
        if stages is not None:
            histograms |= deliveries.named("latency_us") | acks.named("ack_latency_us")
        return {
            "time_histograms_ns": histograms,
            **dict(chain.from_iterable(fields_of(model, part, percentiles) for part in parts)),
            "lost_total": ledger.lost(own, stages),
            "unanswered_total": ledger.unanswered(indices, stages),
            "client_loss": client_loss(plan, ledger, played, indices),
            "group_share": group_share(plan, ledger, played, indices),
            "latency_us": deliveries.latency_us(
                self.clock_bound_us, percentiles, into.latency_delays, run_delay
            ),
            "live_latency_us": Latency.of(live, self.clock_bound_us, percentiles),
            "ack_latency_us": acks.latency_us(
                shares=percentiles, delays=sums.ack_delays, run_delay=run_delay
            ),
            "round_trip_parts": LatencyParts.of(sums.round_trip_delays, sums.round_trip, run_delay),
            "wills_lost_total": lost_wills(own.values()),
        }

    def _run_delay(self, stages: Collection[int] | None) -> RunDelay | None:
        longest_ns = self.sums.run_delay_max_ns(stages)
        return None if longest_ns is None else RunDelay(longest_ns, self.plan.snapshot_interval_ns)

    def _delivery_qos(self, flows: Mapping[Pair, FlowSnapshot]) -> tuple[int, ...]:
        """Returns the levels of QoS of flows with deliveries."""
        came = [pair for pair, flow in flows.items() if flow.counters.received_total]
        return tuple(sorted({level for pair in came for level in flow_levels(*self._plans(pair))}))

    def _flow(self, pair: Pair, flow: FlowSnapshot) -> FlowResult:
        publisher, receiver = self._plans(pair)
        histograms, surplus = HistogramPair.of_deliveries(flow), self.ledger.surplus(pair)
        return FlowResult(
            **dict(flow.counters),
            source=publisher.name,
            to=receiver.name,
            lost_total=self.ledger.lost([pair]),
            in_flight_total=self.ledger.in_flight([pair]),
            surplus_total=surplus.total,
            wills_surplus_total=surplus.wills,
            has_unstamped=publisher.mqtt is not None
            and (lacks_stamps(publisher, receiver) or _lost_stamps(publisher, flow)),
            latency_us=histograms.latency_us(
                self.clock_bound_us, delays=flow.latency_delays, run_delay=self._run_delay(None)
            ),
            histogram_ns=histograms,
        )

    def _stage(self, span: StageSpan) -> StageResult:
        stage = self.plan.stages[span.index]
        steady = dict(self._steady[span.index])
        for agent, absence_ns in self._absences(span):
            known = steady.get(agent, Activity())
            steady[agent] = replace(known, length_ns=known.length_ns + absence_ns)
        there = {*stage.populations, *self._receivers(span)}
        duration_s = (span.to_ns - span.from_ns) / SECOND_NS
        before, after = map(self.timeline.connected_at, (span.from_ns, span.to_ns))
        everybody = range(len(self.plan.populations))
        clients = (self.sums.population([index], [span.index]).counters for index in everybody)
        accepted = sum(each.connected_total for each in clients)
        kind = stage.action.kind
        arrived_s, arrivals = self._arrivals(span) if kind == "publish" else (0.0, 0)
        return StageResult(
            name=stage.name,
            kind=kind,
            start_s=round((span.from_ns - self.run_log.started_ns) / SECOND_NS, 3),
            duration_s=round(duration_s, 3),
            steady_s=round(max((a.length_ns for a in steady.values()), default=0) / SECOND_NS, 3),
            settled=span.settled,
            connected=after,
            arrived_s=round(arrived_s, 3),
            arrivals_per_s=_rate(arrivals, arrived_s),
            connects_per_s=_rate(accepted, duration_s) if kind == "connect" else 0.0,
            disconnects_per_s=_rate(before - after, duration_s) if kind == "disconnect" else 0.0,
            populations={
                population.name: self._stage_population(span, (index,), steady.values())
                for index, population in enumerate(self.plan.populations)
                if index in there
            },
            wholes={
                name: self._stage_population(span, indices, steady.values())
                for name, indices in self.plan.wholes.items()
                if there.intersection(indices)
            },
            flows=tuple(
                self._stage_flow(span.index, pair, flow)
                for pair, flow in self.ledger.flows([span.index]).items()
            ),
            excluded=tuple(
                self.plan.populations[index].name
                for index in self.run_log.excluded_from_loss(self.plan, span.index)
            ),
        )

    def _arrivals(self, span: StageSpan) -> tuple[float, int]:
        """Returns the time from the start of a stage until its last message came, and how many did.
        Agents know it as well as the end of an interval."""
        last_ns, received, everybody = span.from_ns, 0, range(len(self.plan.populations))
        for row in self.timeline.rows(span.index):
            count = row.count("received", everybody)
            last_ns = row.to_ns if count else last_ns
            received += count
        return max(last_ns - span.from_ns, 0) / SECOND_NS, received

    def _stage_flow(self, stage: int, pair: Pair, flow: FlowSnapshot) -> StageFlow:
        publisher, receiver = self._plans(pair)
        return StageFlow(
            **dict(flow.counters),
            source=publisher.name,
            to=receiver.name,
            qos=flow_levels(publisher, receiver),
            lost_total=self.ledger.lost([pair], [stage]),
            in_flight_total=self.ledger.in_flight([pair], [stage]),
        )

    def _plans(self, indices: Sequence[int]) -> list[PlannedPopulation]:
        return [self.plan.populations[index] for index in indices]

    def _asked_max(self, indices: Sequence[int]) -> int:
        """Most clients of populations that should have been connected at once, as the run was
        played."""
        return max((sum(counts[index] for index in indices) for counts in self._asked), default=0)

    @cached_property
    def _asked(self) -> Sequence[Sequence[int]]:
        """Clients of each population that should have been connected, from stage to stage and from
        change to change."""
        active, found = ActiveClients(self.plan), list[Sequence[int]]()
        for span in self.run_log.spans:
            joined = self._joined(span, active)
            active.enter(self.plan.stages[span.index])
            active.limit(joined)
            found.append(tuple(active.counts))
            for change in self.run_log.changes:
                if change.stage == span.index:
                    active.change(change.population, change.action)
                    active.limit(joined)
                    found.append(tuple(active.counts))
        return found

    def _joined(self, span: StageSpan, before: ActiveClients) -> list[int]:
        """Returns the most clients of each population that can have joined by the end of a stage.
        In one that the user ended, they were active before or began to connect in it."""
        if not span.by_user:
            return before.most
        parts = (self.sums.population([n], [span.index]) for n in range(len(before.counts)))
        attempts = [part.counters.connect_attempts_total for part in parts]
        return [sum(pair) for pair in zip(before.counts, attempts, strict=True)]

    def ready_share(self, population: int) -> float:
        """Share of the clients of a population that were ready, or offline after a lifetime."""
        asked = self._asked_max([population])
        reached = self.timeline.peaks().of([population], "reached")
        return min(reached / asked, 1.0) if asked else 1.0

    def _stage_population(
        self, span: StageSpan, indices: Sequence[int], steady: Collection[Activity]
    ) -> StagePopulation:
        sums = self._sums_of(StagePopulation, indices, [span.index])
        return StagePopulation(**sums, **dict(rates_of(steady, indices)))

    def _receivers(self, span: StageSpan) -> set[int]:
        """Populations that received deliveries in a stage, or should have."""
        return {
            to
            for (_, to), flow in self.ledger.flows([span.index]).items()
            if flow.counters.received_total or flow.counters.expected_total
        }

    def _agent(self, hello: Hello) -> AgentResult:
        part = self.sums.agent([hello.agent])
        delay_ns = part.run_delay_ns
        return AgentResult(
            agent=hello.agent,
            version=hello.version,
            pid=hello.pid,
            descriptors=hello.descriptors,
            clients=sum(hello.clients),
            **dict(fields_of(AgentResult, part, self.percentiles)),
            cpu_s=round(part.cpu_ns / SECOND_NS, 3),
            run_delay_s=None if delay_ns is None else round(delay_ns / SECOND_NS, 3),
            busy_share=self._busy_share(hello.agent),
            ending=self.run_log.endings.get(hello.agent, "unknown"),
            clock=self.clocks.get(hello.agent),
            host=self.hosts.get(hello.agent, ""),
        )

    def _failure(self, failure: AgentFailure) -> FailureResult:
        rejoined_ns = failure.rejoined_ns
        after_s = round((rejoined_ns - failure.at_ns) / SECOND_NS, 3) if rejoined_ns else None
        return FailureResult(
            agent=failure.agent,
            at_s=self.run_log.at_s(failure.at_ns),
            clients=failure.clients,
            text=failure.text,
            replaced_on=failure.replaced_on,
            rejoined_after_s=after_s,
        )

    def _at_ends(self, spans: Sequence[StageSpan], indices: Sequence[int], gauge: Gauge) -> int:
        line = self.timeline
        return sum(line.at_end(span.index, span.to_ns, indices, gauge) for span in spans)

    def _span(self, name: str, from_ns: int, to_ns: int) -> Span:
        started_ns = self.run_log.started_ns
        return Span(name, (from_ns - started_ns) / SECOND_NS, (to_ns - started_ns) / SECOND_NS)

    def _spans_of(self, action: type[PublishAction | HoldAction]) -> list[StageSpan]:
        spans = self.run_log.spans
        return [s for s in spans if isinstance(self.plan.stages[s.index].action, action)]

    def _absences(self, span: StageSpan) -> Iterator[tuple[int, int]]:
        """Yields the agents that were lost, each with its time in a publish stage in which nothing
        is known of its clients: it counts, so that rates are those of all agents over the whole
        time."""
        for failure in self.run_log.failures:
            from_ns = max(failure.reported_ns, span.from_ns)
            to_ns = min(failure.rejoined_ns or span.load_until_ns, span.load_until_ns)
            if from_ns < to_ns:
                yield failure.agent, to_ns - from_ns

    @cached_property
    def _steady(self) -> dict[int, Activities]:
        """The activity of each agent under full load, by stage: its rows wholly in the publishing
        time, or all that began in it if none lies wholly in it. A load that is too short for rates
        has none."""
        return {span.index: self._steady_of(span) for span in self.run_log.spans}

    def _steady_of(self, span: StageSpan) -> Activities:
        if span.load_until_ns - span.from_ns < RATED_MIN_S * SECOND_NS:
            return {}
        stage, until_ns, busy = span.index, span.load_until_ns, self.limits.busy
        inside = activities(self.timeline.inside(stage, span.from_ns, until_ns), busy)
        others = (
            row
            for agent in self.timeline.agents
            if agent not in inside
            for row in self.timeline.rows_of(agent, stage)
            if row.from_ns < until_ns
        )
        return {**inside, **activities(others, busy)}


def _lost_stamps(publisher: PlannedPopulation, flow: FlowSnapshot) -> bool:
    """Returns True if messages came, and none with the stamp that it was sent with: a broker or a
    bridge dropped the property. Answers have no latency in any case."""
    messages = flow.counters.received_total - flow.counters.wills_received_total
    return messages > 0 and publisher.responds is None and not flow.latency_intended.count


def flow_levels(publisher: PlannedPopulation, receiver: PlannedPopulation) -> tuple[int, ...]:
    """Levels at which messages of one population, or the wills of one that publishes nothing, may
    reach another: the lower of both. Only MQTT has some."""
    if publisher.mqtt is None:
        return ()
    wills = () if publisher.will is None else (publisher.will,)
    messages = publisher.publications or wills
    levels = {
        min(message.qos, subscription.qos)
        for message in messages
        for subscription in receiver.subscriptions
    }
    return tuple(sorted(levels))


def _rate(count: int, duration_s: float) -> float:
    return round(max(count, 0) / duration_s, 2) if duration_s else 0.0


def _is_closed_loop(population: PlannedPopulation) -> bool:
    return any(isinstance(p.pace, ClosedPace) for p in population.publications)


def _read_rate_per_s(populations: Iterable[PlannedPopulation]) -> float | None:
    rates = (population.read_rate_per_s for population in populations)
    return min((rate for rate in rates if rate is not None), default=None)


def _window(
    populations: Iterable[PlannedPopulation], pace: type[OpenPace | ClosedPace]
) -> int | None:
    each = (
        [p.window for p in population.publications if isinstance(p.pace, pace) and p.qos > 0]
        for population in populations
    )
    return min((len(windows) * min(windows) for windows in each if windows), default=None)


def _mean_rates(name: str, stages: Iterable[StageResult]) -> Rates:
    """Rates over all steady windows that a population took part in."""
    parts = [
        (stage.steady_s, there[name])
        for stage in stages
        if name in (there := {**stage.wholes, **stage.populations})
    ]
    steady_s = sum(seconds for seconds, _ in parts)
    if not steady_s:
        return Rates()
    return Rates(
        **{
            name: sum(seconds * getattr(p, name) for seconds, p in parts) / steady_s
            for name in Rates.model_fields
        }
    )

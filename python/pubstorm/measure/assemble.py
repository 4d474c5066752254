"""Turns the totals and the run log of a run into its measurements: sums by population, flow and
stage, rates over the steady windows, and the generator's own figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pubstorm.contract.attachment import target_of
from pubstorm.contract.changes import ActiveClients
from pubstorm.contract.commands import Hello
from pubstorm.contract.flows import ClosedPace, OpenPace
from pubstorm.contract.histogram import HistogramSum
from pubstorm.contract.plan import HoldAction, Plan, Population, PublishAction
from pubstorm.contract.protocol import Zmtp
from pubstorm.contract.snapshot import AnswerCounters, Counters, FlowCounters
from pubstorm.fleet.assignment import Assignment, Program
from pubstorm.measure import client_loss, group_shares
from pubstorm.measure.clocks import clock_bound_us, clock_result
from pubstorm.measure.run_log import AgentFailure, RunLog, StageSpan
from pubstorm.measure.series import Gauge, Interval, PopulationInterval, busy_share, rate_per_s
from pubstorm.measure.totals import (
    AgentTotals,
    FlowTotals,
    PopulationTotals,
    StageTotals,
    Totals,
    lost_wills,
    will_latency,
)
from pubstorm.measure.tracks import Span
from pubstorm.result import (
    AgentResult,
    ClockResult,
    FailureResult,
    FleetResult,
    FlowResult,
    HistogramPair,
    Latency,
    PopulationResult,
    PublisherResult,
    Rates,
    StageFlow,
    StagePopulation,
    StageResult,
    ValidityLimits,
)
from pubstorm.scenario import Scenario

SECOND_NS = 10**9


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
    totals: Totals
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
        intervals: dict[int, list[Interval]] = {}
        for interval in self.totals.series.intervals():
            intervals.setdefault(interval.agent, []).append(interval)
        return {
            agent: clock_result(hello, intervals.get(agent, []), stamping)
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
    def _undelivered(self) -> Undelivered:
        return Undelivered(self.plan, self.run_log, self.totals)

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
        flows = sorted(self.totals.whole().flows.items())
        return tuple(self._flow(source, to, totals) for (source, to), totals in flows)

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

    def fleet(self) -> FleetResult:
        """The generator's own figures."""
        publish = StageTotals()
        for span in self._spans_of(PublishAction):
            publish.add(self.totals.stage(span.index))
        load = [i for i in self._load() if i.agent not in self.assignment.publishers]
        agents = self.totals.agents.values()
        hellos = (h for a, h in enumerate(self.hellos) if a not in self.assignment.publishers)
        busy = [i for i in load if busy_share([i]) > self.limits.busy]
        allowed_ns = round(1000 * self.limits.lateness_p99_us)
        return FleetResult(
            on=self.on,
            failures=tuple(map(self._failure, self.run_log.failures)),
            agents=tuple(self._agent(hello, load) for hello in hellos),
            clock_bound_us=self.clock_bound_us,
            lateness_us=Latency.of(publish.lateness.value()),
            blocked_us=Latency.of(publish.blocked.value()),
            load_intervals_total=len(load),
            busy_intervals_total=len(busy),
            starved_intervals_total=sum(interval.starved for interval in load),
            busy_starved_total=sum(interval.starved for interval in busy),
            late_total=publish.lateness.value().count_above(allowed_ns),
            late_starved_total=publish.lateness_starved.value().count_above(allowed_ns),
            ledger_pairs=sum(agent.ledger_pairs_max for agent in agents),
            unfollowed_total=sum(agent.unfollowed_total for agent in agents),
        )

    def publishers(self) -> tuple[PublisherResult, ...]:
        """The processes under test."""
        if not self.hellos:
            return ()
        load = self._load()
        return tuple(
            self._publisher(program, [i for i in load if i.agent == program.agent])
            for program in self.assignment.publishers.values()
        )

    def _publisher(self, program: Program, load: Sequence[Interval]) -> PublisherResult:
        population = self.plan.populations[program.population]
        hello, totals = self.hellos[program.agent], self.totals.agents.get(program.agent)
        totals = totals or AgentTotals()
        options = population.zmtp or Zmtp(high_water_mark=0)
        pace = population.publications[0].pace
        kind = population.player
        assert kind != "engine", "an engine is no program"
        return PublisherResult(
            name=program.name,
            population=population.name,
            kind=kind,
            library=hello.library or "",
            pid=hello.pid,
            host=self.hosts.get(program.agent, ""),
            address=str(self.plan.targets[target_of(self.plan, program.population, program.share)]),
            high_water_mark=options.high_water_mark,
            io_threads=options.io_threads,
            security=options.security,
            burst=pace.burst if isinstance(pace, OpenPace) else 1,
            sent_total=totals.messages["sent_total"],
            skipped_total=totals.messages["skipped_total"],
            lateness_us=self._time(totals.lateness),
            busy_share=round(busy_share(load), 4),
            ending=self.run_log.endings.get(program.agent, "unknown"),
            clock=self.clocks.get(program.agent),
        )

    def _load(self) -> list[Interval]:
        """The intervals of all agents under full load."""
        return [i for span in self._spans_of(PublishAction) for i in self._steady(span)]

    def _populations(self, members: Mapping[str, Sequence[int]]) -> dict[str, PopulationResult]:
        """Returns the results of groups of populations, by the names of the groups."""
        whole, stages = self.totals.whole(), self.stages()
        return {
            name: self._population(indices, whole, _mean_rates(name, stages))
            for name, indices in members.items()
        }

    def _population(
        self, indices: Sequence[int], whole: StageTotals, rates: Rates
    ) -> PopulationResult:
        plans, totals = self._plans(indices), whole.together(indices)
        own = {pair: flow for pair, flow in sorted(whole.flows.items()) if pair[1] in indices}
        into = list(own.values())
        acks = _acknowledgements(totals)
        publishing = self._spans_of(PublishAction)
        played = [self.totals.stage(span.index) for span in publishing]
        return PopulationResult(
            **totals.counters,
            **_ledger(into),
            **_answers(totals),
            clients=sum(plan.clients for plan in plans),
            version=plans[0].protocol.name,
            player=plans[0].player,
            read_rate_per_s=_read_rate_per_s(plans),
            asked_max=self._asked_max(indices),
            acknowledged=any(each.qos for plan in plans for each in plan.publications),
            delivery_qos=self._delivery_qos(own),
            closed_loop=any(map(_is_closed_loop, plans)),
            closed_loop_window=_closed_loop_window(plans),
            lives=any(plan.lifetime is not None for plan in plans),
            connected_max=self.totals.series.peak(indices, "connected"),
            ready_max=self.totals.series.peak(indices, "ready"),
            reached_max=self.totals.series.peak(indices, "ready", "offline"),
            offline_max=self.totals.series.peak(indices, "offline"),
            in_flight_max=self.totals.series.peak(indices, "in_flight"),
            in_flight=self._at_ends(publishing[-1:], indices, "in_flight"),
            backlog=self._at_ends(publishing[-1:], indices, "backlog"),
            stalled=self._at_ends(publishing, indices, "stalled"),
            lost_total=sum(self._undelivered.lost(pair, flow) for pair, flow in own.items()),
            to_come_total=self._undelivered.in_flight(own),
            unanswered_total=self._undelivered.unanswered(indices, totals),
            outcomes=dict(totals.outcomes),
            explanations=totals.explanations.value(),
            client_loss=client_loss.of_stages(self.plan, played, indices),
            group_share=group_shares.of_stages(self.plan, played, indices),
            rates=rates,
            latency_us=_delivery(into).latency_us(self.clock_bound_us, self.percentiles),
            ack_latency_us=acks.latency_us(shares=self.percentiles),
            wills_lost_total=lost_wills(into),
            will_latency_us=Latency.of(will_latency(into), shares=self.percentiles),
            connect_time_us=self._time(totals.connect_time),
            receive_maximum_wait_us=self._time(totals.receive_maximum_wait),
            subscribe_time_us=self._time(totals.subscribe_time),
            unsubscribe_time_us=self._time(totals.unsubscribe_time),
            round_trip_us=self._time(totals.round_trip),
            ack_histogram_ns=acks,
        )

    def _time(self, sums: HistogramSum) -> Latency:
        return Latency.of(sums.value(), shares=self.percentiles)

    def _delivery_qos(self, flows: Mapping[tuple[int, int], FlowTotals]) -> tuple[int, ...]:
        """Returns the levels of QoS of flows with deliveries."""
        came = [pair for pair, flow in flows.items() if flow.counters["received_total"]]
        return tuple(sorted({level for pair in came for level in flow_levels(*self._plans(pair))}))

    def _flow(self, source: int, to: int, totals: FlowTotals) -> FlowResult:
        histograms = _delivery([totals])
        return FlowResult(
            **totals.counters,
            source=self.plan.populations[source].name,
            to=self.plan.populations[to].name,
            lost_total=self._undelivered.lost((source, to), totals),
            in_flight_total=self._undelivered.in_flight([(source, to)]),
            surplus_total=max(
                totals.counters["received_total"] - totals.counters["expected_total"], 0
            ),
            latency_us=histograms.latency_us(self.clock_bound_us),
            histogram_ns=histograms,
        )

    def _stage(self, span: StageSpan) -> StageResult:
        stage = self.plan.stages[span.index]
        steady = [*self._steady(span), *self._absences(span)]
        there = {*stage.populations, *self._receivers(span)}
        spans_ns: dict[int, int] = {}
        for interval in steady:
            spans_ns.setdefault(interval.agent, 0)
            spans_ns[interval.agent] += interval.to_ns - interval.from_ns
        duration_s = (span.to_ns - span.from_ns) / SECOND_NS
        before, after = map(self.totals.series.connected_at, (span.from_ns, span.to_ns))
        accepted = self.totals.stage(span.index).sum_of("connected_total")
        kind = stage.action.kind
        arrived_s, arrivals = self._arrivals(span) if kind == "publish" else (0.0, 0)
        return StageResult(
            name=stage.name,
            kind=kind,
            start_s=round((span.from_ns - self.run_log.started_ns) / SECOND_NS, 3),
            duration_s=round(duration_s, 3),
            steady_s=round(max(spans_ns.values(), default=0) / SECOND_NS, 3),
            settled=span.settled,
            connected=after,
            arrived_s=round(arrived_s, 3),
            arrivals_per_s=_rate(arrivals, arrived_s),
            connects_per_s=_rate(accepted, duration_s) if kind == "connect" else 0.0,
            disconnects_per_s=_rate(before - after, duration_s) if kind == "disconnect" else 0.0,
            populations={
                population.name: self._stage_population(span, (index,), steady)
                for index, population in enumerate(self.plan.populations)
                if index in there
            },
            wholes={
                name: self._stage_population(span, indices, steady)
                for name, indices in self.plan.wholes.items()
                if there.intersection(indices)
            },
            flows=tuple(
                self._stage_flow(span.index, pair, flow)
                for pair, flow in sorted(self.totals.stage(span.index).flows.items())
            ),
            excluded=tuple(
                self.plan.populations[index].name
                for index in self.run_log.excluded_from_loss(self.plan, span.index)
            ),
        )

    def _arrivals(self, span: StageSpan) -> tuple[float, int]:
        """Returns the time from the start of a stage until its last message came, and how many did.
        Agents know it as well as the end of an interval."""
        came = [
            interval
            for interval in self.totals.series.intervals(span.index)
            if any(p.received for p in interval.populations)
        ]
        last_ns = max((interval.to_ns for interval in came), default=span.from_ns)
        received = sum(each.received for interval in came for each in interval.populations)
        return max(last_ns - span.from_ns, 0) / SECOND_NS, received

    def _stage_flow(self, stage: int, pair: tuple[int, int], totals: FlowTotals) -> StageFlow:
        publisher, receiver = self._plans(pair)
        return StageFlow(
            **totals.counters,
            source=publisher.name,
            to=receiver.name,
            qos=flow_levels(publisher, receiver),
            lost_total=self._undelivered.lost(pair, totals, stage),
            in_flight_total=self._undelivered.in_flight([pair], stage),
        )

    def _plans(self, indices: Sequence[int]) -> list[Population]:
        return [self.plan.populations[index] for index in indices]

    def _asked_max(self, indices: Sequence[int]) -> int:
        """Most clients of populations that should have been connected at once, as the run was
        played."""
        active, most = ActiveClients(self.plan), 0
        for span in self.run_log.spans:
            active.enter(self.plan.stages[span.index])
            most = max(most, active.together(indices))
            for change in self.run_log.changes:
                if change.stage == span.index:
                    active.change(change.population, change.action)
                    most = max(most, active.together(indices))
        return most

    def _stage_population(
        self, span: StageSpan, indices: Sequence[int], steady: Sequence[Interval]
    ) -> StagePopulation:
        totals = self.totals.stage(span.index)
        publishing = totals.together(indices)
        pairs = {pair: flow for pair, flow in totals.flows.items() if pair[1] in indices}
        into, lost = list(pairs.values()), self._undelivered.lost
        kept = Counters.model_fields.keys() & StagePopulation.model_fields.keys()
        return StagePopulation(
            **{name: publishing.counters[name] for name in kept},
            **_ledger(into),
            **_answers(publishing),
            lost_total=sum(lost(pair, flow, span.index) for pair, flow in pairs.items()),
            unanswered_total=self._undelivered.unanswered(indices, publishing, span.index),
            client_loss=client_loss.of_stages(self.plan, [totals], indices),
            group_share=group_shares.of_stages(self.plan, [totals], indices),
            latency_us=_delivery(into).latency_us(self.clock_bound_us, self.percentiles),
            ack_latency_us=_acknowledgements(publishing).latency_us(shares=self.percentiles),
            subscribe_time_us=self._time(publishing.subscribe_time),
            unsubscribe_time_us=self._time(publishing.unsubscribe_time),
            round_trip_us=self._time(publishing.round_trip),
            wills_lost_total=lost_wills(into),
            will_latency_us=Latency.of(will_latency(into), shares=self.percentiles),
            sent_per_s=rate_per_s(steady, indices, "sent"),
            acked_per_s=rate_per_s(steady, indices, "acked"),
            received_per_s=rate_per_s(steady, indices, "received"),
            bytes_sent_per_s=rate_per_s(steady, indices, "bytes_sent"),
            bytes_received_per_s=rate_per_s(steady, indices, "bytes_received"),
        )

    def _receivers(self, span: StageSpan) -> set[int]:
        """Populations that received deliveries in a stage, or should have."""
        flows = self.totals.stage(span.index).flows.items()
        return {
            to
            for (_, to), flow in flows
            if flow.counters["received_total"] or flow.counters["expected_total"]
        }

    def _agent(self, hello: Hello, load: Iterable[Interval]) -> AgentResult:
        totals = self.totals.agents.get(hello.agent, AgentTotals())
        delay_ns = totals.run_delay_ns
        return AgentResult(
            agent=hello.agent,
            version=hello.version,
            pid=hello.pid,
            descriptors=hello.descriptors,
            clients=sum(hello.clients),
            snapshots=totals.snapshots,
            **totals.messages,
            cpu_s=round(totals.cpu_ns / SECOND_NS, 3),
            run_delay_s=None if delay_ns is None else round(delay_ns / SECOND_NS, 3),
            rss_max_bytes=totals.rss_max_bytes,
            busy_share=round(busy_share([i for i in load if i.agent == hello.agent]), 4),
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
        """The sum of a gauge at the ends of stages."""
        totals = self.totals
        return sum(totals.series.at_end(span.index, span.to_ns, indices, gauge) for span in spans)

    def _span(self, name: str, from_ns: int, to_ns: int) -> Span:
        started_ns = self.run_log.started_ns
        return Span(name, (from_ns - started_ns) / SECOND_NS, (to_ns - started_ns) / SECOND_NS)

    def _spans_of(self, action: type[PublishAction | HoldAction]) -> list[StageSpan]:
        spans = self.run_log.spans
        return [s for s in spans if isinstance(self.plan.stages[s.index].action, action)]

    def _absences(self, span: StageSpan) -> Iterator[Interval]:
        """The times of a publish stage in which nothing is known of the clients of agents that were
        lost: they count, so that rates are those of all agents over the whole time."""
        nothing = PopulationInterval.nothing()
        clients = tuple(nothing for _ in self.plan.populations)
        for failure in self.run_log.failures:
            from_ns = max(failure.reported_ns, span.from_ns)
            to_ns = min(failure.rejoined_ns or span.load_until_ns, span.load_until_ns)
            if from_ns < to_ns:
                yield Interval(failure.agent, -1, span.index, from_ns, to_ns, 0, clients)

    def _steady(self, span: StageSpan) -> list[Interval]:
        """Returns the intervals under full load: of each agent those wholly in the publishing time,
        or all that began in it if none lies wholly in it."""
        if span.load_until_ns == span.from_ns:
            return []
        inside = self.totals.series.inside(span.index, span.from_ns, span.load_until_ns)
        agents = {interval.agent for interval in inside}
        return inside + [
            interval
            for interval in self.totals.series.intervals(span.index)
            if interval.agent not in agents and interval.from_ns < span.load_until_ns
        ]


class Undelivered:
    """Splits expected deliveries that did not come, by flow. They are lost, or in flight when the
    run was cut short before the drain of a publish stage was over."""

    def __init__(self, plan: Plan, run_log: RunLog, totals: Totals) -> None:
        self._totals = totals
        self._cut_stage = _cut_stage(plan, run_log)

    def in_flight(self, pairs: Iterable[tuple[int, int]], stage: int | None = None) -> int:
        """Deliveries of some flows that were in flight when the run was cut short. Messages that a
        receiver had passed over are lost. `stage` restricts the count to one stage."""
        if self._cut_stage is None or stage not in {None, self._cut_stage}:
            return 0
        flows = self._totals.stage(self._cut_stage).flows
        cut = (flows[pair] for pair in pairs if pair in flows)
        return sum(max(_open(flow) - max(flow.counters["missing_total"], 0), 0) for flow in cut)

    def lost(self, pair: tuple[int, int], flow: FlowTotals, stage: int | None = None) -> int:
        """Deliveries of a flow that were lost; `flow` has its sums of the run, or of `stage`."""
        return max(_open(flow) - self.in_flight([pair], stage), 0)

    def unanswered(
        self, indices: Iterable[int], totals: PopulationTotals, stage: int | None = None
    ) -> int:
        """Returns the answers to populations that did not come, without those that were in flight
        when the run was cut short; `totals` has the sums of the run, or of `stage`."""
        if self._cut_stage is None or stage not in {None, self._cut_stage}:
            return totals.unanswered
        in_flight = self._totals.stage(self._cut_stage).together(indices).unanswered
        return max(totals.unanswered - in_flight, 0)


def flow_levels(publisher: Population, receiver: Population) -> tuple[int, ...]:
    """Levels at which messages of one population, or the wills of one that publishes nothing, may
    reach another: the lower of both. ZeroMQ has none."""
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


def _ledger(flows: Sequence[FlowTotals]) -> dict[str, int]:
    """Returns the counters of some flows together, by name."""
    names = FlowCounters.model_fields
    return {name: sum(flow.counters[name] for flow in flows) for name in names}


def _answers(totals: PopulationTotals) -> dict[str, int]:
    """Returns the counters of answers to populations, by name."""
    return {name: totals.answers[name] for name in AnswerCounters.model_fields}


def _delivery(flows: Iterable[FlowTotals]) -> HistogramPair:
    intended, actual = HistogramSum(), HistogramSum()
    for flow in flows:
        intended.add(flow.latency_intended.value())
        actual.add(flow.latency_actual.value())
    return HistogramPair(intended=intended.value(), actual=actual.value())


def _acknowledgements(totals: PopulationTotals) -> HistogramPair:
    return HistogramPair(intended=totals.ack_intended.value(), actual=totals.ack_actual.value())


def _is_closed_loop(population: Population) -> bool:
    return any(isinstance(p.pace, ClosedPace) for p in population.publications)


def _read_rate_per_s(populations: Iterable[Population]) -> float | None:
    rates = (population.read_rate_per_s for population in populations)
    return min((rate for rate in rates if rate is not None), default=None)


def _closed_loop_window(populations: Iterable[Population]) -> int | None:
    publications = (p for population in populations for p in population.publications)
    closed = [p for p in publications if isinstance(p.pace, ClosedPace)]
    return min((publication.window for publication in closed if publication.qos > 0), default=None)


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


def _cut_stage(plan: Plan, run_log: RunLog) -> int | None:
    """The publish stage in which the run was cut short."""
    if not run_log.ended_early or not run_log.spans:
        return None
    last = run_log.spans[-1].index
    return last if isinstance(plan.stages[last].action, PublishAction) else None


def _open(flow: FlowTotals) -> int:
    return max(flow.counters["expected_total"] - flow.counters["received_total"], 0)

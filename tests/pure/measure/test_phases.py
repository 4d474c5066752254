"""Each status of a phase, from intervals made by hand: 100 devices that send 1000 messages a second
to one backend, one interval a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest.mock import ANY

import pytest

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import AddClients, ChangeRate, Plan, RemoveClients
from pubstorm.contract.snapshot import Snapshot
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.phases import outage_events, phases, short_stages
from pubstorm.measure.phases.collapse import CONSECUTIVE_TICKS, Before, follow
from pubstorm.measure.phases.load_due import Grid, LoadDue, Tick, ticks
from pubstorm.measure.run_log import AppliedChange
from pubstorm.result import Phase, PhaseStatus, ShortStage
from pubstorm.result.samples import Track, Tracks
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

SCENARIO = """\
target: mqtt://127.0.0.1
populations:
  device:
    clients: 150
    publications: [{topic: "d/{n}", rate: 10/s, qos: 1}]
  extra:
    clients: 50
    publications: [{topic: "d/{n}", rate: 10/s, qos: 1}]
  backend:
    clients: 1
    subscriptions: ["d/#"]
stages:
  - connect: {populations: [device, backend]}
  - publish: {for: 1h, name: load, populations: [device]}
"""


MS_NS = 10**6


def test_what_waits_after_a_fault_began_is_not_in_the_queue_before_it() -> None:
    """The interval around the fault ends less than half a tick after it."""
    spans = ((0, 250, 1), (250, 500, 2), (500, 750, 40))
    grid = Grid(0, 660 * MS_NS, 220 * MS_NS, publishers=[0], receivers=[])
    line = made.timeline(
        plan(),
        (
            made.snapshot(
                made.population(in_flight=in_flight, sent_total=25),
                from_ns=from_ms * MS_NS,
                to_ns=to_ms * MS_NS,
            )
            for from_ms, to_ms, in_flight in spans
        ),
    )
    found = ticks(line, 1, grid)
    assert [tick.queue for tick in found] == [1, 2, 2]


@dataclass(frozen=True)
class Second:
    """Figures of the agents in one second."""

    sent: int = 1500
    acked: int = 1500
    received: int = 1500
    waiting: int = 10
    latency_ms: float = 1.0
    late_ms: float = 0.1
    busy: float = 0.2
    missing: int = 0
    starved: float = 0.0
    """Share of the time in which the first agent had no processor."""


GOOD = Second()
SLOW = Second(acked=1200, received=1200)


def overloaded(seconds: int, growth: int = 300) -> list[Second]:
    """The broker takes less than is due, and messages wait."""
    return [replace(SLOW, waiting=growth * (n + 1)) for n in range(seconds)]


def plan(text: str = SCENARIO) -> Plan:
    return made.compiled(text)


def snapshots(seconds: Sequence[Second], agents: int = 2) -> Iterator[Snapshot]:
    for agent in range(agents):
        for n, second in enumerate(seconds):
            yield snapshot(agent, n, second, agents)


def snapshot(agent: int, n: int, second: Second, agents: int) -> Snapshot:
    latency = Histogram.of([round(second.latency_ms * 1e6)] * 3)
    device = made.population(
        in_flight=second.waiting // agents,
        sent_total=second.sent // agents,
        acked_total=second.acked // agents,
        acks=latency,
    )
    flow = made.flow(
        0,
        2,
        latency,
        latency,
        expected_total=second.sent // agents,
        received_total=second.received // agents,
        missing_total=second.missing // agents,
    )
    load = made.load(
        busy_ns=round(second.busy * SECOND_NS),
        run_delay_ns=0 if agent else round(second.starved * SECOND_NS),
        lateness=Histogram.of([round(second.late_ms * 1e6)]),
    )
    return made.snapshot(
        device,
        made.population(),
        made.population(),
        from_ns=START_NS + n * SECOND_NS,
        agent=agent,
        sequence=n,
        flows=(flow,),
        engine=load,
    )


def change(
    second: int, name: str, action: AddClients | RemoveClients | ChangeRate
) -> AppliedChange:
    return AppliedChange(1, START_NS + second * SECOND_NS, name, 0, action)


def assembly(
    seconds: Sequence[Second], *changes: AppliedChange, scenario: str = SCENARIO
) -> Assembly:
    end_ns = START_NS + len(seconds) * SECOND_NS
    log = made.run_log(START_NS, end_ns, drain_s=1, changes=list(changes))
    return made.assembly(plan(scenario), log, snapshots(seconds), percentiles={"p95": 0.95})


def evaluated(
    seconds: Sequence[Second],
    *changes: AppliedChange,
    tracks: Tracks | None = None,
    scenario: str = SCENARIO,
) -> list[Phase]:
    return list(phases(assembly(seconds, *changes, scenario=scenario), tracks or {}))


def test_a_steady_stage_is_one_phase_that_held() -> None:
    (phase,) = evaluated([GOOD] * 20)
    assert (phase.stage, phase.name, phase.status) == ("load", "load", PhaseStatus.HELD)
    assert (phase.start_s, phase.duration_s, phase.clients) == (0, 20, 150)
    assert phase.due_per_s == pytest.approx(1500)
    assert phase.sent_per_s == phase.acked_per_s == phase.received_per_s == pytest.approx(1500)
    assert phase.queue_growth_per_s == 0
    assert phase.latency_us.p99 == pytest.approx(1000)
    assert set(phase.populations) == {"device", "backend"}
    assert phase.populations["backend"].latency_us.count == phase.latency_us.count
    assert phase.populations["device"].ack_latency_us.p50 == pytest.approx(1000)
    assert phase.populations["device"].ack_latency_us.percentiles == {"p95": pytest.approx(1000)}
    assert phase.evidence == ()


@pytest.mark.parametrize("seconds", [0, 1, 9])
def test_a_short_stage_without_changes_is_no_phase(seconds: int) -> None:
    assert evaluated([GOOD] * seconds) == []
    (short,) = short_stages(assembly([GOOD] * seconds))
    assert short == ShortStage(stage="load", intervals=seconds, needed=10)


def test_a_closed_loop_is_no_phase() -> None:
    closed = SCENARIO.replace("rate: 10/s", "rate: max")
    assert evaluated([GOOD] * 20, scenario=closed) == []
    assert short_stages(assembly([GOOD] * 5, scenario=closed)) == ()


def test_a_stage_that_is_a_phase_is_not_short() -> None:
    rate = change(3, "faster", ChangeRate(factor=2))
    assert short_stages(assembly([GOOD] * 10)) == ()
    assert short_stages(assembly([GOOD] * 5, rate)) == ()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Second(sent=1300, acked=1300, received=1300), "were sent (86.7 %)"),
        (Second(acked=1200), "1\u202f200/s of 1\u202f500/s due were acknowledged (80 %)"),
        (Second(received=1000), "1\u202f000/s of 1\u202f500/s due were received (66.7 %)"),
    ],
)
def test_a_load_that_is_not_carried_collapses(bad: Second, words: str) -> None:
    (phase,) = evaluated([GOOD] * 10 + [bad] * 10)
    assert phase.status is PhaseStatus.COLLAPSED
    assert phase.collapsed_at_s == 10
    assert phase.recovered_after_s is None
    assert words in phase.evidence[0]


def test_the_scatter_of_poisson_arrivals_is_no_collapse() -> None:
    fewer = [GOOD] * 10 + [Second(sent=1350, acked=1350, received=1350)] * 10
    chance = SCENARIO.replace("rate: 10/s", "rate: 10/s, arrivals: poisson")
    found = {text: evaluated(fewer, scenario=text)[0].status for text in (SCENARIO, chance)}
    assert found == {SCENARIO: PhaseStatus.COLLAPSED, chance: PhaseStatus.HELD}
    none = [GOOD] * 10 + [Second(sent=1200, acked=1200, received=1200)] * 10
    assert evaluated(none, scenario=chance)[0].status is PhaseStatus.COLLAPSED


STARVED = Second(sent=1300, acked=1300, received=1300, starved=0.2)
LATENT = [Second(acked=1455, waiting=45 * n, latency_ms=1 + 30 * n, starved=0.1) for n in range(40)]
DROPPED = {
    (made.source("broker-0"), "$SYS/messages/dropped"): Track([0, 5, 10, 15], [0, 0, 10, 300])
}


@pytest.mark.parametrize(
    ("seconds", "tracks", "words"),
    [
        ([GOOD] * 10 + [STARVED] * 10, {}, "for 2.00 s of 19.0 s, which explains"),
        (LATENT, {}, "for 3.90 s of 39.0 s, which explains"),
        ([replace(GOOD, starved=0.06)] * 20, DROPPED, "for 1.14 s of 19.0 s, which explains"),
    ],
)
def test_what_agents_without_a_processor_explain_leaves_it_unknown(
    seconds: list[Second], tracks: Tracks, words: str
) -> None:
    (phase,) = evaluated(seconds, tracks=tracks)
    assert (phase.status, phase.starved) == (PhaseStatus.UNKNOWN, True)
    assert (phase.collapsed_at_s, phase.recovered_after_s) == (None, None)
    assert words in phase.evidence[0]
    assert len(phase.evidence) == 2
    with_processors = [replace(second, starved=0.0) for second in seconds]
    (phase,) = evaluated(with_processors, tracks=tracks)
    assert (phase.status, phase.starved) == (PhaseStatus.COLLAPSED, False)


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        # A fifth of the time explains a fifth of the messages, and no more.
        (replace(STARVED, sent=1000), PhaseStatus.COLLAPSED),
        (replace(STARVED, acked=0, received=0), PhaseStatus.COLLAPSED),
        (replace(GOOD, starved=0.9), PhaseStatus.HELD),
    ],
)
def test_agents_without_a_processor_hide_no_collapse_and_make_none(
    bad: Second, status: PhaseStatus
) -> None:
    (phase,) = evaluated([GOOD] * 10 + [bad] * 10)
    assert (phase.status, phase.starved) == (status, False)


def test_a_starved_host_that_has_processors_again_is_evidence_only() -> None:
    (phase,) = evaluated([GOOD] * 10 + [STARVED] * 10 + [GOOD] * 10)
    assert (phase.status, phase.starved) == (PhaseStatus.UNKNOWN, False)
    assert "the load was carried again" in phase.evidence[-1]


@pytest.mark.parametrize("bad", range(1, CONSECUTIVE_TICKS))
def test_a_short_stall_is_no_collapse(bad: int) -> None:
    stall = [replace(SLOW, acked=10, received=10, waiting=1490 * (n + 1)) for n in range(bad)]
    catching_up = Second(acked=1500 + 1490 * bad, received=1500 + 1490 * bad)
    (phase,) = evaluated([GOOD] * 10 + stall + [catching_up] + [GOOD] * 10)
    assert phase.status is PhaseStatus.HELD


@pytest.mark.parametrize(("stall_ms", "collapses"), [(300, False), (900, False), (1000, True)])
def test_a_collapse_lasts_a_second_however_short_the_intervals(
    stall_ms: int, collapses: bool
) -> None:
    """1000 messages a second in intervals of 50 ms; the broker takes half of them for a time, and
    the rest of them at its end."""
    width_ns, bad = 50 * MS_NS, stall_ms // 50
    due = LoadDue(100, 1000.0, 1000.0, 1000.0, width_ns, burst=0, is_open=True, scatter=0.0)
    came = [50] * 40 + [25] * bad + [50 + 25 * bad] + [50] * 40
    played = [
        Tick(n * width_ns, (n + 1) * width_ns, sent=50, acked=each, received=each)
        for n, each in enumerate(came)
    ]
    outcome = follow(played, due, Before(), None)
    assert (outcome.collapsed_at_ns is not None) is collapses


def silence(seconds: int, per_s: int = 1500, starved: float = 0.0) -> list[Second]:
    """Nothing comes for some seconds, and everything after them."""
    still = [
        Second(per_s, 0, 0, per_s * (n + 1), starved=starved if n < seconds - 1 else 0.0)
        for n in range(seconds)
    ]
    late = per_s * (seconds + 1)
    return [*still, Second(per_s, late, late, 10, 1000.0 * seconds), *[steady(per_s)] * 12]


def steady(per_s: int) -> Second:
    """A second in which all messages come."""
    return Second(per_s, per_s, per_s)


@pytest.mark.parametrize("seconds", range(1, CONSECUTIVE_TICKS))
def test_an_outage_is_a_collapse_however_short(seconds: int) -> None:
    played = [GOOD] * 10 + silence(seconds)
    (phase,) = evaluated(played)
    assert (phase.status, phase.collapsed_at_s) == (PhaseStatus.COLLAPSED, 10)
    assert phase.recovered_after_s == (seconds + 1 if seconds == 1 else seconds + 2)
    (event,) = outage_events(assembly(played), {})
    assert (event.kind, event.at_s) == ("outage", 10)
    due = f"{1500 * seconds:,}".replace(",", "\u202f")
    assert event.text == f"nothing was received for {seconds}.0 s, in which {due} were due"


def test_an_outage_shorter_than_the_period_of_the_clients_is_seen() -> None:
    """150 clients send one message in 10 s each, and the broker stands still for 3 s."""
    text = SCENARIO.replace("rate: 10/s", "interval: 10s")
    played = [steady(15)] * 20 + silence(3, 15)
    (phase,) = evaluated(played, scenario=text)
    assert (phase.status, phase.collapsed_at_s) == (PhaseStatus.COLLAPSED, 20)
    assert phase.recovered_after_s is not None
    assert phase.recovered_after_s > 3
    (event,) = outage_events(assembly(played, scenario=text), {})
    assert "45 were due" in event.text
    few = text.replace("interval: 10s", "interval: 20s")
    assert not list(outage_events(assembly([steady(7)] * 20 + silence(3, 7), scenario=few), {}))


def test_an_outage_that_lasts_has_no_recovery() -> None:
    (phase,) = evaluated([GOOD] * 20 + silence(4)[:4])
    assert (phase.status, phase.collapsed_at_s) == (PhaseStatus.COLLAPSED, 20)
    assert phase.recovered_after_s is None


def test_agents_without_a_processor_explain_an_outage_of_their_length_only() -> None:
    frozen = [GOOD] * 10 + [replace(each, starved=0.98) for each in silence(3)[:3]] + [GOOD] * 10
    assert not list(outage_events(assembly(frozen), {}))
    assert evaluated(frozen)[0].status is not PhaseStatus.COLLAPSED
    (event,) = outage_events(assembly([GOOD] * 10 + silence(4, starved=0.15)), {})
    assert event.at_s == 10


def test_a_stopped_agent_is_no_outage() -> None:
    """The only agent stands still for 3 s, and sends its messages late."""
    seconds = [GOOD] * 10 + silence(3)
    taken = [snapshot(0, n, second, 1) for n, second in enumerate(seconds)]
    stopped = taken[10].model_copy(update={"to_ns": taken[12].to_ns})
    end_ns = START_NS + len(seconds) * SECOND_NS
    log = made.run_log(START_NS, end_ns, drain_s=1)
    assert list(outage_events(made.assembly(plan(), log, taken), {}))
    run = made.assembly(plan(), log, [*taken[:10], stopped, *taken[13:]])
    assert not list(outage_events(run, {}))


def test_a_frozen_broker_is_not_excused_by_agents_that_starved_a_little() -> None:
    """It loses four seconds of ten, in which agents had no processor for one."""
    stopped = [Second(received=0, acked=0, waiting=1500 * n, starved=0.2) for n in range(1, 5)]
    around = Second(sent=1350, acked=1350, received=1350, starved=0.2)
    (phase,) = evaluated([GOOD] * 5 + [around] * 2 + stopped + [around] * 2)
    assert (phase.status, phase.starved) == (PhaseStatus.COLLAPSED, False)


@pytest.mark.parametrize(
    ("second", "growth_per_s", "words"),
    [
        (Second(acked=1455, received=1455), 44, "with the clients grew by 45.0/s, 3 % of those"),
        # The queue is inside the broker.
        (Second(received=1452), 0, "sent and not received grew by 48.0/s, 3.20 % of those due"),
    ],
)
def test_a_queue_that_grows_with_the_latency_is_a_collapse(
    second: Second, growth_per_s: float, words: str
) -> None:
    waiting = 1500 - second.acked
    growing = [replace(second, waiting=waiting * n, latency_ms=1 + 30 * n) for n in range(40)]
    (phase,) = evaluated(growing)
    assert (phase.status, phase.collapsed_at_s) == (PhaseStatus.COLLAPSED, 20)
    assert phase.queue_growth_per_s == pytest.approx(growth_per_s, abs=1)
    assert words in phase.evidence[0]


def test_a_queue_that_grows_while_the_latency_stays_is_none() -> None:
    (phase,) = evaluated([Second(acked=1455, waiting=45 * n) for n in range(40)])
    assert phase.status is PhaseStatus.HELD


@pytest.mark.parametrize("name", ["$SYS/messages/dropped", "$SYS/publish/messages/dropped"])
def test_what_the_broker_drops_is_a_collapse(name: str) -> None:
    track = Track([0, 5, 10, 15], [100, 100, 400, 900])
    (phase,) = evaluated([GOOD] * 20, tracks={(made.source("broker-0"), name): track})
    assert phase.status is PhaseStatus.COLLAPSED
    assert (phase.dropped_total, phase.collapsed_at_s) == (800, 10)
    assert "the broker says it dropped 800 messages" in phase.evidence[0]


def test_a_few_drops_are_reported_and_are_no_collapse() -> None:
    tracks = {(made.source("broker-0"), "$SYS/messages/dropped"): Track([0, 5], [7, 10])}
    (phase,) = evaluated([GOOD] * 20, tracks=tracks)
    assert (phase.status, phase.dropped_total) == (PhaseStatus.HELD, 3)
    (phase,) = evaluated([GOOD] * 20, tracks={(made.source("host"), "cpu"): Track([0], [1])})
    assert phase.dropped_total is None


def test_drops_between_reports_on_both_sides_of_a_cut_are_shared_out_and_blame_neither() -> None:
    half = [replace(GOOD, sent=750, acked=750, received=750)] * 20
    counts = Track([18.0, 19.5, 20.5, 21.5, 39], [0, 0, 1000, 1000, 1000], {3})
    tracks = {(made.source("broker-0"), "$SYS/messages/dropped"): counts}
    less = change(20, "less", ChangeRate(factor=0.5))
    phases_found = evaluated([GOOD] * 20 + half, less, tracks=tracks)
    assert [phase.dropped_total for phase in phases_found] == [500, 500]
    assert {phase.status for phase in phases_found} == {PhaseStatus.HELD}


def test_a_slow_reader_by_design_makes_no_collapse() -> None:
    slow = SCENARIO.replace("clients: 1\n", "clients: 1\n    read_rate: 50/s\n")
    tracks = {(made.source("broker-0"), "$SYS/messages/dropped"): Track([0, 9], [0, 10_000])}
    (phase,) = evaluated([replace(GOOD, received=50)] * 20, scenario=slow, tracks=tracks)
    assert phase.status is PhaseStatus.HELD


def test_messages_for_clients_that_have_left_make_no_collapse() -> None:
    left = AppliedChange(0, START_NS, "leave", 2, RemoveClients(clients=1, over_ns=0))
    (phase,) = evaluated([replace(GOOD, received=0)] * 20, left)
    assert phase.status is PhaseStatus.HELD


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (replace(SLOW, late_ms=20), "the generator was late: p99 20.0 ms"),
        (replace(SLOW, busy=0.95), "busy for more than 90 % of the time in 20 of"),
    ],
)
def test_a_generator_at_its_limit_leaves_it_unknown(bad: Second, words: str) -> None:
    (phase,) = evaluated([GOOD] * 10 + [bad] * 10)
    assert phase.status is PhaseStatus.UNKNOWN
    assert words in phase.evidence[0]
    assert phase.collapsed_at_s is None


def test_an_agent_that_ends_early_leaves_it_unknown() -> None:
    kept = [one for one in snapshots([GOOD] * 20) if one.agent == 0 or one.sequence < 4]
    log = made.run_log(START_NS, START_NS + 20 * SECOND_NS)
    (phase,) = phases(made.assembly(plan(), log, kept), {})
    assert phase.status is PhaseStatus.UNKNOWN
    assert "its snapshots end early" in phase.evidence[0]


REMOVE = RemoveClients(clients=50, over_ns=SECOND_NS)
LESS = Second(sent=1000, acked=1000, received=1000)


def test_phases_are_cut_at_changes_and_leave_their_ramps_out() -> None:
    ramp = Second(sent=1200, acked=1200, received=1200)
    first, second = evaluated([GOOD] * 15 + [ramp] + [LESS] * 14, change(15, "-50", REMOVE))
    assert [first.name, second.name] == ["load", "-50"]
    assert [first.clients, second.clients] == [150, 100]
    assert second.due_per_s == pytest.approx(1000)
    assert (second.start_s, second.duration_s) == (15, 15)
    assert second.acked_per_s == pytest.approx(1000)
    assert [first.status, second.status] == [PhaseStatus.HELD] * 2


def test_a_time_in_which_clients_leave_all_along_is_no_phase() -> None:
    slow, at_once = (RemoveClients(clients=25, over_ns=over * SECOND_NS) for over in (10, 0))
    for first, last in ((slow, REMOVE), (at_once, at_once)):
        at_s = 20 if first is slow else 10
        changes = change(10, "-25", first), change(at_s, "-50", last)
        found = evaluated([GOOD] * 10 + [LESS] * 20, *changes)
        assert [phase.name for phase in found] == ["load", "-50"]


def test_rates_and_joining_clients_change_what_is_due() -> None:
    changes = (
        change(10, "slower", ChangeRate(factor=0.5)),
        change(20, "fewer", RemoveClients(clients=100, over_ns=0)),
        change(30, "more", AddClients(clients=500, over_ns=0)),
        change(40, "paused", ChangeRate(factor=0)),
    )
    due = [phase.due_per_s for phase in evaluated([GOOD] * 50, *changes)]
    assert due == pytest.approx([1500, 750, 250, 750, 0])


def test_a_population_that_was_not_connected_joins_in_full() -> None:
    joined = AppliedChange(
        1, START_NS + 10 * SECOND_NS, "+50", 1, AddClients(clients=50, over_ns=0)
    )
    first, second = evaluated([GOOD] * 20, joined)
    assert (first.clients, second.clients) == (150, 200)
    assert second.due_per_s == pytest.approx(2000)
    assert second.status is PhaseStatus.COLLAPSED


LOSSY = replace(LESS, received=970)
MISSING = replace(LOSSY, missing=30)
SENT_LATER = [replace(LESS, acked=1400, received=1400, waiting=5000 - 400 * n) for n in range(12)]
CAME_LATER = [replace(LESS, received=1400, latency_ms=8000 - 700 * n) for n in range(12)]


def drops(seconds: int) -> Tracks:
    """A broker that drops 30 messages a second from second 12 on, for so many seconds."""
    values = [30.0 * min(max(n - 12, 0), seconds) for n in range(57)]
    return {(made.source("broker-0"), "$SYS/messages/dropped"): Track(list(range(57)), values)}


@pytest.mark.parametrize(
    ("later", "tracks", "recovered_after_s", "words"),
    [
        (SENT_LATER + [LESS] * 10, {}, 11, "the load was carried again"),
        # A queue inside the broker is seen by its latency.
        (CAME_LATER + [LESS] * 10, {}, 11, "the load was carried again"),
        ([replace(LESS, latency_ms=8000)] * 20, {}, None, "mean latency was 8.00 s at its end"),
        ([replace(LESS, waiting=5000)] * 20, {}, None, "5\u202f000 messages were waiting at its"),
        ([LOSSY] * 30, drops(seconds=45), None, "the broker still dropped"),
        ([LOSSY] * 30, drops(seconds=20), ANY, "the load was carried again"),
        ([MISSING] * 30, {}, None, "were still lost on their way"),
        ([MISSING] * 10 + [LESS] * 20, {}, ANY, "the load was carried again"),
    ],
)
def test_after_a_collapse_the_load_is_carried_again_or_never(
    later: list[Second], tracks: Tracks, recovered_after_s: float | None, words: str
) -> None:
    seconds = [GOOD] * 10 + overloaded(17) + later
    first, second = evaluated(seconds, change(27, "-50", REMOVE), tracks=tracks)
    assert first.status is PhaseStatus.COLLAPSED
    is_never = recovered_after_s is None
    assert second.status is (PhaseStatus.NEVER_RECOVERED if is_never else PhaseStatus.RECOVERED)
    assert second.recovered_after_s == recovered_after_s
    assert words in second.evidence[-1]


def test_a_collapse_is_not_over_while_the_broker_drops() -> None:
    again = Second(received=1460, missing=40)
    (phase,) = evaluated([GOOD] * 10 + overloaded(10) + [again] * 30)
    assert (phase.status, phase.recovered_after_s) == (PhaseStatus.COLLAPSED, None)


def test_a_load_that_is_still_not_carried_is_never_recovered() -> None:
    slow = Second(sent=1000, acked=500, received=500)
    _, second, third = evaluated(
        [GOOD] * 10 + overloaded(17) + [slow] * 20 + [LESS] * 20,
        change(27, "-50", REMOVE),
        change(47, "still -50", ChangeRate(factor=1)),
    )
    assert second.status is PhaseStatus.NEVER_RECOVERED
    assert "500/s of 1\u202f000/s due were" in second.evidence[0]
    assert third.status is PhaseStatus.RECOVERED


def test_a_phase_can_collapse_and_recover_by_itself() -> None:
    first, second = evaluated(
        [GOOD] * 10 + overloaded(10) + [GOOD] * 10 + [LESS] * 15, change(30, "-50", REMOVE)
    )
    assert (first.status, first.collapsed_at_s) == (PhaseStatus.COLLAPSED, 10)
    assert first.recovered_after_s == 11
    assert second.status is PhaseStatus.HELD


def test_an_unknown_phase_hides_no_collapse_from_the_next() -> None:
    late = replace(LESS, late_ms=50)
    statuses = [
        phase.status
        for phase in evaluated(
            [GOOD] * 10 + overloaded(10) + [late] * 15 + [LESS] * 15,
            change(20, "-50", REMOVE),
            change(35, "same", ChangeRate(factor=1)),
        )
    ]
    assert statuses == [PhaseStatus.COLLAPSED, PhaseStatus.UNKNOWN, PhaseStatus.RECOVERED]


def test_a_phase_too_short_to_be_evaluated_says_so() -> None:
    _, second = evaluated([GOOD] * 20 + [LESS] * 4, change(20, "-50", REMOVE))
    assert second.status is PhaseStatus.UNKNOWN
    assert "2 intervals are settled, 5 are needed" in second.evidence[0]


@pytest.mark.parametrize("phase", ["spread", "aligned"])
def test_slow_senders_are_evaluated_over_their_whole_period(phase: str) -> None:
    text = SCENARIO.replace("rate: 10/s", f"interval: 6s, phase: {phase}")
    bursts = [Second(*((150,) * 3)) if n % 6 == 0 else Second(0, 0, 0) for n in range(90)]
    if phase == "spread":
        bursts = [steady(25)] * 90
    (whole,) = evaluated(bursts, scenario=text)
    assert whole.due_per_s == pytest.approx(25)
    assert whole.status is PhaseStatus.HELD
    lossy = [replace(second, received=second.received // 2) for second in bursts]
    (broken,) = evaluated(lossy, scenario=text)
    assert broken.status is PhaseStatus.COLLAPSED

"""Old parts of the timeline are merged: sums, peaks and what edges keep apart stay as they were."""

from __future__ import annotations

from array import array
from itertools import pairwise
from random import Random

import pytest

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.result import timeline
from pubstorm.result.timeline import COLUMNS, Timeline, cells, lane
from pubstorm.result.timeline.cells import HistogramCells, HistogramKey
from pubstorm.result.timeline.lane import EDGES_MAX, HOUR_NS, MINUTE_NS, Choice, Edges, Tier
from pubstorm.result.timeline.rows import COUNTS, GAUGES, Row, activities
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

SCENARIO = """\
target: mqtt://127.0.0.1
populations:
  device: {clients: 9, publications: [{topic: d, rate: 1/s}]}
  backend: {clients: 9, subscriptions: [d]}
stages:
  - connect: {}
  - publish: {for: 400s, name: load}
"""
PLAN = made.plan(made.clients("device"), made.clients("backend"))


def run_of(random: Random) -> tuple[list[Row], Edges]:
    """The rows of one agent, of about 20 s each, with a few gaps, stages and edges."""
    found: list[Row] = []
    to_ns, stage = 0, 0
    for sequence in range(random.randint(1, 60)):
        from_ns = to_ns + random.choice([0] * 9 + [SECOND_NS])
        to_ns = from_ns + random.choice([0, 7, 20, 20, 20, 31, 400]) * SECOND_NS
        stage += random.random() < 0.05
        gauges, counts = (
            array("q", (random.randint(0, 9) for _ in names)) for names in (GAUGES, COUNTS)
        )
        found.append(Row(0, sequence, stage, from_ns, to_ns, gauges, counts, busy_ns=sequence))
    edges = Edges(0)
    for _ in range(random.randint(0, 3)):
        edges.add(random.randint(0, to_ns))
    return found, edges


def merged(rows: list[Row], edges: Edges, cell_ns: int) -> list[Row]:
    tier = Tier()
    for row in rows:
        tier.merge(row, edges, cell_ns)
    return list(tier.rows(Choice()))


@pytest.mark.parametrize("seed", range(200))
def test_hours_are_the_same_whether_minutes_or_their_parts_become_them(seed: int) -> None:
    rows, edges = run_of(Random(seed))
    hours = merged(rows, edges, HOUR_NS)
    assert merged(merged(rows, edges, MINUTE_NS), edges, HOUR_NS) == hours
    assert activities(hours) == activities(rows)
    assert hours[-1].gauges == rows[-1].gauges
    assert len(hours) < len(rows) or len(rows) < 20


def test_hours_end_at_stages_edges_and_gaps() -> None:
    def row(second: int, stage: int = 1) -> Row:
        counts = array("q", [1] * len(COUNTS))
        at_ns = second * SECOND_NS
        return made.row(0, at_ns, at_ns + SECOND_NS, stage=stage, counts=counts, sequence=second)

    edges = Edges(0)
    edges.add(30 * SECOND_NS + 1)
    rows = [*map(row, range(60)), *map(row, range(70, 90)), *(row(n, 2) for n in range(90, 99))]
    found = [
        (each.from_ns // SECOND_NS, each.to_ns // SECOND_NS, each.merged)
        for each in merged(rows, edges, HOUR_NS)
    ]
    assert found == [(0, 30, 30), (30, 31, 1), (31, 60, 29), (70, 90, 20), (90, 99, 9)]


def test_there_is_a_bound_on_edges() -> None:
    edges = Edges(0)
    for at_ns in range(2 * EDGES_MAX):
        edges.add(at_ns)
    assert edges.may_merge((EDGES_MAX, EDGES_MAX + 1), (EDGES_MAX + 1, EDGES_MAX + 2), HOUR_NS)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps 100 own intervals and 5 minutes."""
    monkeypatch.setattr(timeline, "OWN_MIN", 100)
    monkeypatch.setattr(timeline, "NUMBERS_MAX", 0)
    monkeypatch.setattr(lane, "MINUTES_MAX", 5)
    monkeypatch.setattr(cells, "OWN_MAX", 0)
    monkeypatch.setattr(cells, "MINUTES_MAX", 0)


def snapshots(seconds: int) -> list[Snapshot]:
    """Two agents, each with a second in which it has more clients, in two stages."""
    return [
        made.snapshot(
            made.population(connected=100 if n == 300 + agent else 9, sent_total=n, acked_total=3),
            made.population(ready=n % 7, offline=(n + agent) % 5),
            from_ns=START_NS + n * SECOND_NS + agent * 10**6,
            agent=agent,
            sequence=n,
            stage=0 if n < 400 else 1,
            flows=(made.flow(0, 1, Histogram.of([n * 1000])),),
        )
        for n in range(seconds)
        for agent in range(2)
    ]


def taken(plan: Plan, seconds: int) -> Timeline:
    line = Timeline(plan, START_NS)
    line.keep_apart(START_NS + 400 * SECOND_NS)
    for snapshot in snapshots(seconds):
        line.take(snapshot)
    return line


@pytest.mark.usefixtures("few_rows")
def test_an_old_timeline_has_the_sums_and_peaks_of_a_new_one() -> None:
    seconds = 5000
    old = taken(PLAN, seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "OWN_MIN", 10**6)
        patch.setattr(cells, "OWN_MAX", 10**6)
        new = taken(PLAN, seconds)
    rows = list(old.rows_of(0))
    assert len(rows) < 350 and len(list(new.rows_of(0))) == seconds
    assert all(one.to_ns == following.from_ns for one, following in pairwise(rows))
    assert old.peaks().connected == new.peaks().connected == 109
    for population in (0, 1):
        for gauge in COLUMNS:
            peaks = (line.peaks().of([population], gauge) for line in (old, new))
            assert len(set(peaks)) == 1
    for stage in (0, 1):
        assert activities(old.rows(stage)) == activities(new.rows(stage))
        end_ns = START_NS + (400 if stage == 0 else seconds) * SECOND_NS + 10**6
        assert len({line.at_end(stage, end_ns, [1], "ready") for line in (old, new)}) == 1
        assert len({line.connected_at(end_ns) for line in (old, new)}) == 1
        key = HistogramKey(stage, "delivery", 1)
        span = (START_NS, end_ns) if stage == 0 else (START_NS + 400 * SECOND_NS, end_ns)
        assert old.histograms.between(key, *span) == new.histograms.between(key, *span)
    late = START_NS + (seconds - 10) * SECOND_NS
    found = [old.resolution_ns(START_NS + n * SECOND_NS, late) for n in (0, seconds - 350)]
    assert found == [HOUR_NS, MINUTE_NS]
    assert old.resolution_ns(late, late + SECOND_NS) == SECOND_NS
    assert new.resolution_ns(START_NS, late) == SECOND_NS


@pytest.mark.usefixtures("few_rows")
def test_the_result_of_a_long_run_says_how_coarse_it_is() -> None:
    seconds = 400
    plan = made.compiled(SCENARIO)
    log = made.run_log(START_NS, START_NS + seconds * SECOND_NS)
    found = made.assembly(plan, log, snapshots(seconds)).resolutions()
    assert [(event.at_s, event.kind, event.text) for event in found] == [
        (400.0, "resolution", "older parts of load are kept in steps of 60.0 s")
    ]
    assert not list(made.assembly(plan, log, snapshots(90)).resolutions())


@pytest.mark.parametrize(
    ("shift_ms", "edges_s"), [(0, []), (300, [5000, 5001]), (700, [3, 7200, 19_990])]
)
def test_merged_histograms_lose_nothing_between_edges(shift_ms: int, edges_s: list[int]) -> None:
    edges, origin_ns = Edges(START_NS), START_NS + shift_ms * 10**6
    instants = sorted(START_NS + second * SECOND_NS for second in edges_s)
    for instant_ns in instants:
        edges.add(instant_ns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "OWN_MAX", 0)
        patch.setattr(cells, "MINUTES_MAX", 0)
        patch.setattr(cells, "CELLS_MIN", 20)
        found, plain = (HistogramCells[str](START_NS, SECOND_NS, each) for each in (edges, None))
        for n in range(0, 20_000, 10):
            span = origin_ns + n * SECOND_NS, origin_ns + (n + 7) * SECOND_NS
            for each in (found, plain):
                each.add(span, [("late", Histogram.of([n * 100]))])
    assert len(list(found.spans())) < 60 + 4 * len(instants)
    for from_ns, to_ns in pairwise([START_NS - 1, *instants, START_NS + 50_000 * SECOND_NS]):
        assert from_ns == to_ns or (
            found.between("late", from_ns, to_ns) == plain.between("late", from_ns, to_ns)
        )

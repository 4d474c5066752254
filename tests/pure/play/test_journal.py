"""Journals of a run: what is full is compressed, what is old is merged, and nothing that adds up is
lost."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pubstorm import files
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.play import directory as directories
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.kept import salvage
from pubstorm.report import load_result
from pubstorm.report.latencies import hdr_log
from pubstorm.result import RunResult, journal, samples
from pubstorm.result.journal import Tail, journal_lines, merged_snapshots, parts, snapshots_in
from pubstorm.result.samples import SAMPLES_FILE, read_samples, statistics
from pubstorm.result.timeline import cells, lane
from pubstorm.result.timeline.lane import MINUTE_NS, Edges
from pubstorm.web.now import VerdictSoFar
from tests.kit import made
from tests.kit.long_run import LongRun, Size
from tests.kit.made import SECOND_NS, START_NS

HOURS = 6
SIZE = Size(hours=HOURS, interval_s=10, agents=2, series=6, durations=4)

INEXACT = {"mean": 0.0, "slope_per_h": None, "slope_bound_per_h": 0.0}
"""Statistics that depend on the cells, by rounding or a little more."""


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Bounds of a run of days, for one of hours."""
    bounds = {
        (directories, "PART_BYTES"): {SNAPSHOTS_FILE: 1_000_000, SAMPLES_FILE: 50_000},
        (directories, "STEP_BYTES"): {SNAPSHOTS_FILE: 300_000, SAMPLES_FILE: 20_000},
        (samples, "READINGS_MAX"): 20_000,
        (samples, "TRACK_MINUTES_MAX"): 800,
        (samples, "OWN_MIN"): 100,
        (cells, "OWN_MAX"): 1000,
        (cells, "MINUTES_MAX"): 1000,
        (lane, "MINUTES_MAX"): 120,
    }
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), bound in bounds.items():
            patch.setattr(module, name, bound)
        patch.setattr("pubstorm.result.timeline.OWN_MIN", 100)
        patch.setattr("pubstorm.result.timeline.NUMBERS_MAX", 4000)
        yield


@pytest.fixture(scope="module")
def filled(
    small: None,  # noqa: ARG001 (the bounds stay while the run is looked at)
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[LongRun, RunResult]:
    """A run of hours with all of its files, and its result."""
    run = LongRun(tmp_path_factory.mktemp("run") / "run", SIZE)
    for interval in run.fill():
        if interval % 200 == 0:
            run.settle()
    run.settle()
    return run, run.finish()


def _wait(directory: RunDirectory) -> None:
    """Waits until the thread has compressed and merged what is full."""
    if directory._ageing is not None:
        directory._ageing.wait()


def test_the_files_of_a_long_run_are_bounded(filled: tuple[LongRun, RunResult]) -> None:
    run, _ = filled
    assert run.directory.failure is None
    for file in (SNAPSHOTS_FILE, SAMPLES_FILE):
        found = parts(run.directory.path, file)
        assert {part.step for part in found} == {"", "minutes", "hours"}
        assert all(part.is_compressed for part in found)
        for step in ("", "minutes"):
            size = sum(part.size for part in found if part.step == step)
            assert size <= directories.STEP_BYTES[file]
    stored = sum(each.stat().st_size for each in run.directory.path.rglob("*") if each.is_file())
    assert stored < run.bytes_taken / 5
    assert not list((run.directory.path / journal.FOLDER).glob(".*")), "nothing is left over"


def test_sums_of_merged_snapshots_are_those_of_all(filled: tuple[LongRun, RunResult]) -> None:
    run, result = filled
    read = RunSum()
    lines = list(journal_lines(run.directory.path, SNAPSHOTS_FILE))
    assert len(lines) < SIZE.intervals * SIZE.agents / 4
    for snapshot in snapshots_in(lines):
        read.take(snapshot)
    for index in range(len(run.plan.populations)):
        assert read.population([index]) == run.recorder.sums.population([index])
    assert read.flows() == run.recorder.sums.flows()
    assert hdr_log(run.directory.path, result).count("\n") > 2 * HOURS
    assert result.flows[0].received_total == SIZE.durations * SIZE.agents * (SIZE.intervals + 1)


def test_a_long_run_says_how_coarse_its_older_parts_are(filled: tuple[LongRun, RunResult]) -> None:
    _, result = filled
    texts = [event.text for event in result.events if event.kind == "resolution"]
    assert texts[0] == "older parts of load are kept in steps of 3\u202f600 s"
    assert texts[1].startswith("readings of monitors in the first ")


def test_statistics_of_merged_files_are_those_of_the_run(filled: tuple[LongRun, RunResult]) -> None:
    run, result = filled
    read = read_samples(run.directory.path)
    for watched in result.monitors:
        if watched.kind == "broker":
            (track,) = (t for (s, m), t in read.items() if (s.name, m) == _key(watched))
            found = statistics([track])
            assert found.model_copy(update=INEXACT) == watched.whole.model_copy(update=INEXACT)
            assert found.mean == pytest.approx(watched.whole.mean, rel=1e-5)
            assert not watched.whole.unread_s
            assert track.count == SIZE.intervals + 1


def _key(watched: Any) -> tuple[str, str]:
    return watched.source, watched.metric


def test_a_long_run_whose_controller_was_killed_has_the_same_sums(
    filled: tuple[LongRun, RunResult],
) -> None:
    run, result = filled
    salvage(run.directory.path, Live())
    saved = load_result(run.directory.path)
    for name, population in result.populations.items():
        again = saved.populations[name]
        assert again.sent_total == population.sent_total
        assert again.ack_histogram_ns == population.ack_histogram_ns
    assert [flow.received_total for flow in saved.flows] == [
        flow.received_total for flow in result.flows
    ]


def test_the_live_page_evaluates_a_journal_that_was_merged(
    filled: tuple[LongRun, RunResult],
) -> None:
    run, result = filled
    verdict = VerdictSoFar(run.directory.path).evaluate()
    assert verdict is not None
    found = [(outcome.expression, outcome.found) for outcome in verdict.thresholds]
    (rate, memory), (own_rate, own_memory) = (
        found,
        [(outcome.expression, outcome.found) for outcome in result.verdict.thresholds],
    )
    assert memory[0] == own_memory[0]
    assert memory[1] == pytest.approx(own_memory[1], rel=1e-5)
    assert rate[1] == pytest.approx(own_rate[1], rel=0.01)


def test_a_reader_follows_a_journal_over_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(directories.PART_BYTES, SNAPSHOTS_FILE, 40)
    directory = RunDirectory.create(tmp_path / "run")
    tail, found = Tail(directory.path, SNAPSHOTS_FILE), list[bytes]()
    late = Tail(directory.path, SNAPSHOTS_FILE)
    for n in range(100):
        directory.append_snapshot(f"{n}\n".encode())
        if n % 7 == 0:
            found += tail.lines()
        if n % 50 == 0:
            _wait(directory)
    for reader, lines in ((tail, found), (late, late_lines := list[bytes]())):
        while news := reader.lines():
            lines += news
        assert not reader.is_torn
    assert found == late_lines == [f"{n}".encode() for n in range(100)]
    assert len(parts(directory.path, SNAPSHOTS_FILE)) == 6
    directory.close()


def test_a_reader_looks_again_for_a_part_that_is_compressed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / journal.FOLDER).mkdir()
    # The growing file becomes a part before it is opened, and the part is compressed before it is.
    part = journal.part_path(tmp_path, SNAPSHOTS_FILE, (1, 1), "")
    growing = tmp_path / SNAPSHOTS_FILE
    growing.write_bytes(b"1\n")

    def rename(_path: Path) -> None:
        growing.rename(part)
        growing.write_bytes(b"2\n")

    def compress(path: Path) -> None:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()

    steps = {growing: rename, part: compress}

    def disturbed(path: Path) -> BinaryIO:
        if path in steps:
            steps.pop(path)(path)
        return files.opened(path)

    monkeypatch.setattr(journal, "opened", disturbed)
    tail = Tail(tmp_path, SNAPSHOTS_FILE)
    assert (tail.lines(), tail.lines(), tail.lines(), steps) == ([b"1"], [b"2"], [], {})
    part.with_name(f"{part.name}.gz").unlink()
    part.symlink_to(tmp_path / "nothing")
    assert Tail(tmp_path, SNAPSHOTS_FILE).lines() == []


def test_a_reader_leaves_out_what_was_merged_with_lines_it_has_read(tmp_path: Path) -> None:
    folder = tmp_path / journal.FOLDER
    folder.mkdir()

    def put(first: int, last: int, step: str, text: bytes) -> None:
        path = journal.part_path(tmp_path, SNAPSHOTS_FILE, (first, last), step)
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text))

    put(1, 1, "", b"1\n")
    tail = Tail(tmp_path, SNAPSHOTS_FILE)
    assert tail.lines() == [b"1"]
    put(1, 3, "minutes", b"1+2+3\n")
    put(4, 4, "", b"4\n")
    (tmp_path / SNAPSHOTS_FILE).write_bytes(b"5\n")
    assert list(journal_lines(tmp_path, SNAPSHOTS_FILE)) == [b"1+2+3\n", b"4\n", b"5\n"]
    found = [line for _ in range(4) for line in tail.lines()]
    assert (found, tail.is_torn) == ([b"4", b"5"], True)


def test_snapshots_are_merged_in_a_stage_and_between_edges() -> None:
    def snapshots(agent: int, stage_from: int) -> Iterator[Snapshot]:
        for n in range(180):
            yield made.snapshot(
                made.population(sent_total=1, connected=n),
                from_ns=START_NS + n * SECOND_NS,
                agent=agent,
                sequence=n,
                stage=int(n >= stage_from),
            )

    edges = Edges(START_NS)
    edges.add(START_NS + 90 * SECOND_NS)
    given = [s for pair in zip(snapshots(0, 30), snapshots(1, 150), strict=True) for s in pair]
    found = list(merged_snapshots(given, edges, MINUTE_NS))

    def of(agent: int, read: Callable[[Snapshot], int]) -> list[int]:
        return [read(each) for each in found if each.agent == agent]

    assert of(0, lambda s: s.populations[0].counters.sent_total) == [30, 30, 30, 30, 60]
    assert of(1, lambda s: s.populations[0].counters.sent_total) == [60, 30, 30, 30, 30]
    assert of(0, lambda s: s.populations[0].gauges.connected) == [29, 59, 89, 119, 179]
    assert of(0, lambda s: s.to_ns - s.from_ns) == [n * SECOND_NS for n in (30, 30, 30, 30, 60)]


def test_a_part_that_is_damaged_ends_no_reader(tmp_path: Path) -> None:
    (tmp_path / journal.FOLDER).mkdir()
    path = journal.part_path(tmp_path, SNAPSHOTS_FILE, (1, 1))
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(b"1\n" * 1000)[:30])
    (tmp_path / SNAPSHOTS_FILE).write_bytes(b"2\n")
    with pytest.raises(OSError, match="damaged"):
        list(journal_lines(tmp_path, SNAPSHOTS_FILE))
    tail = Tail(tmp_path, SNAPSHOTS_FILE)
    found = [line for _ in range(3) for line in tail.lines()]
    assert found[-1:] == [b"2"]


def test_a_merge_that_fails_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(directories.PART_BYTES, SNAPSHOTS_FILE, 1)
    monkeypatch.setattr(directories, "gzip", None)
    with contextlib.closing(RunDirectory.create(tmp_path / "run")) as directory:
        directory.append_snapshot(b"one\n")
        _wait(directory)
        assert "AttributeError" in str(directory.failure)
    (part,) = parts(directory.path, SNAPSHOTS_FILE)
    assert part.path.read_bytes() == b"one\n"

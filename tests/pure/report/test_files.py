"""The other files of a run: for CI systems and HdrHistogram's tools, and none costs another."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

import pubstorm.report.files
from pubstorm.contract.histogram import MAX_NS, Histogram, bucket_index
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.errors import StoredRunError
from pubstorm.play.directory import RunDirectory
from pubstorm.report import document_of, load_result, write_reports
from pubstorm.report.files import code_span, junit, markdown, run_files
from pubstorm.report.latencies import hdr_log
from pubstorm.report.stored import load_run
from pubstorm.result import HistogramPair, LimitedBy, RunResult, Status
from tests.kit import made
from tests.kit.example_run import STARTED_UNIX_NS, Shape, write_run
from tests.kit.example_search import trials, write_search
from tests.kit.example_series import write_series
from tests.kit.made import SECOND_NS, START_NS

pytestmark = pytest.mark.xdist_group("browser")


def cases(text: str) -> dict[str, str | None]:
    """Names and failures of the test cases."""
    suites = ElementTree.fromstring(text)
    found = {}
    for case in suites.iter("testcase"):
        failure = case.find("failure")
        found[case.attrib["name"]] = None if failure is None else failure.text
    (suite,) = suites
    failed = [text for text in found.values() if text is not None]
    assert (int(suite.attrib["tests"]), int(suite.attrib["failures"])) == (len(found), len(failed))
    return found


def test_thresholds_are_test_cases(failed_run: Path) -> None:
    assert cases((failed_run / "junit.xml").read_text()) == {
        "run is valid": None,
        "target did not fail": None,
        "backend.lost == 0": "found 412",
        "broker.cpu < 95%": None,
    }


def test_a_suite_takes_the_time_of_its_runs(failed_run: Path, tmp_path: Path) -> None:
    for text, times in (
        ((failed_run / "junit.xml").read_text(), [load_run(failed_run).result.duration_s, 0]),
        (junit(document_of(write_series(tmp_path))), [60, 60, 60, 0]),
        (junit(document_of(write_search(tmp_path))), [len(trials()) * 11.2, 0]),
    ):
        (suite,) = ElementTree.fromstring(text)
        found = [float(case.attrib["time"]) for case in suite.iter("testcase")]
        assert found[: len(times)] == pytest.approx(times)
        assert float(suite.attrib["time"]) == pytest.approx(sum(times))


def test_the_command_line_in_markdown_can_be_copied(tmp_path: Path) -> None:
    command = "pubstorm run s.yaml --set 'thresholds.0=device.never_ready < 3'"
    result = write_run(tmp_path, Shape(duration_s=20), command=command)
    assert f"- **command**: `{command}`" in markdown(document_of(result))


@pytest.mark.parametrize(
    ("text", "span"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`a`", "`` `a` ``"), ("a``b", "```a``b```")],
)
def test_code_with_backticks_has_a_longer_fence(text: str, span: str) -> None:
    assert code_span(text) == span


def test_findings_are_the_output_of_the_suite(failed_run: Path) -> None:
    output = ElementTree.parse(failed_run / "junit.xml").findtext(".//system-out")
    assert output is not None
    assert output.startswith("FAIL, limited by broker\nbroker-0 used 98.9 % of one core")
    assert "messages lost: 412 (" in output


@pytest.mark.parametrize(
    ("status", "limited_by", "case"),
    [
        (Status.INVALID, LimitedBy.GENERATOR, "run is valid"),
        (Status.FAIL, LimitedBy.BROKER, "target did not fail"),
    ],
)
def test_a_bad_run_fails_in_ci_though_every_threshold_holds(
    plain_run: RunResult, status: Status, limited_by: LimitedBy, case: str
) -> None:
    changes = {"status": status, "limited_by": limited_by, "evidence": ("busy",)}
    verdict = plain_run.verdict.model_copy(update=changes)
    found = cases(junit(document_of(plain_run.model_copy(update={"verdict": verdict}))))
    assert [(name, text) for name, text in found.items() if text] == [(case, "busy")]


def test_what_xml_cannot_hold_is_replaced(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=20), name='\x00\x1b[31m<a b="c">&\ufffe')
    (suite,) = ElementTree.fromstring(junit(document_of(result)))
    assert suite.attrib["name"] == '\ufffd\ufffd[31m<a b="c">&\ufffd'


def logged(path: Path) -> dict[str, list[HdrHistogram]]:
    """The histograms in a log by their tags, as HdrHistogram's own reader sees them."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, MAX_NS, 2))
    found: dict[str, list[HdrHistogram]] = {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        found.setdefault(histogram.get_tag(), []).append(histogram)
    reader.close()
    return found


def assert_same(theirs: Iterable[HdrHistogram], ours: Histogram) -> None:
    """Holds that histograms of a log together have the buckets of ours."""
    together = HdrHistogram(1, MAX_NS, 2)
    for each in theirs:
        together.add(each)
    buckets = [
        (bucket_index(value.value_iterated_to), value.count_added_in_this_iter_step)
        for value in together.get_recorded_iterator()
    ]
    assert tuple(buckets) == ours.buckets
    assert together.get_total_count() == ours.count


def with_snapshots(folder: Path, *snapshots: Snapshot) -> None:
    """Replaces the stored snapshots of a run."""
    text = "".join(f"{each.model_dump_json()}\n" for each in snapshots)
    (folder / SNAPSHOTS_FILE).write_text(text)


def test_each_interval_of_each_latency_is_in_the_log_under_its_name(failed_run: Path) -> None:
    log = logged(failed_run / "latencies.hlog")
    assert sorted(log) == [
        "ack:device-0:actual",
        "ack:device-0:intended",
        "delivery:device-0->backend:actual",
        "delivery:device-0->backend:intended",
    ]
    begin_s = STARTED_UNIX_NS // SECOND_NS
    for intervals in log.values():
        spans = [(each.get_start_time_stamp(), each.get_end_time_stamp()) for each in intervals]
        assert spans == [(1000 * s, 1000 * (s + 1)) for s in range(begin_s, begin_s + 300)]


def test_hdr_histogram_reads_the_same_counts_of_the_run_and_of_an_interval(
    failed_run: Path,
) -> None:
    log = logged(failed_run / "latencies.hlog")
    result = load_result(failed_run)
    deliveries = log["delivery:device-0->backend:actual"]
    assert_same(deliveries, result.flows[0].histogram_ns.actual)
    acks = log["ack:device-0:intended"]
    assert_same(acks, result.populations["device-0"].ack_histogram_ns.intended)
    lines = (failed_run / SNAPSHOTS_FILE).read_text().splitlines()
    for number in (0, 150, 299):
        snapshot = Snapshot.model_validate_json(lines[number])
        assert_same([deliveries[number]], snapshot.flows[0].latency_actual)


def test_the_log_of_a_longer_run_has_wider_intervals(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=1100, other_series=0))
    log = tmp_path / "latencies.hlog"
    log.write_text(hdr_log(tmp_path, result))
    deliveries = logged(log)["delivery:device-0->backend:intended"]
    assert len(deliveries) == 550
    assert {each.get_end_time_stamp() - each.get_start_time_stamp() for each in deliveries} == {
        2000
    }
    assert_same(deliveries, result.flows[0].histogram_ns.intended)


def test_an_interval_of_the_log_has_all_agents_and_times_before_the_run_are_left_out(
    tmp_path: Path,
) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    two = [Histogram.of([1000]), Histogram.of([2000])]
    with_snapshots(
        tmp_path,
        made.snapshot(made.population(), made.population(), from_ns=START_NS - 5 * SECOND_NS),
        *(
            made.snapshot(
                made.population(acks=histogram, connect_time=histogram),
                made.population(),
                from_ns=START_NS + agent * SECOND_NS // 4,
                agent=agent,
            )
            for agent, histogram in enumerate(two)
        ),
    )
    pair = HistogramPair(intended=two[0].plus(two[1]))
    device = result.populations["device-0"].model_copy(update={"ack_histogram_ns": pair})
    populations = {**result.populations, "device-0": device}
    changed = result.model_copy(update={"flows": (), "populations": populations})
    log = tmp_path / "latencies.hlog"
    log.write_text(hdr_log(tmp_path, changed))
    found = logged(log)
    assert sorted(found) == ["ack:device-0:intended", "connect:device-0"]
    (interval,) = found["connect:device-0"]
    assert interval.get_end_time_stamp() - interval.get_start_time_stamp() == 1250
    assert_same([interval], pair.intended)


def test_there_is_no_log_of_a_part_of_the_snapshots(tmp_path: Path) -> None:
    write_run(tmp_path, Shape(duration_s=20))
    path = tmp_path / SNAPSHOTS_FILE
    path.write_text(path.read_text()[:-20])
    (problem,) = write_reports(tmp_path, RunDirectory(tmp_path).write)
    assert problem == "there is no latencies.hlog: snapshots.jsonl holds 76000 of 80000 latencies"
    assert not (tmp_path / "latencies.hlog").exists()
    path.unlink()
    path.mkdir()
    (problem,) = write_reports(tmp_path, RunDirectory(tmp_path).write)
    assert problem == f"there is no latencies.hlog: cannot read {path}: Is a directory"


@pytest.mark.parametrize(
    ("populations", "flow"), [(1, (0, 0)), (3, (0, 1)), (2, (0, 2)), (2, (2, 1))]
)
def test_a_snapshot_of_another_plan_is_missing_in_the_log(
    tmp_path: Path, populations: int, flow: tuple[int, int]
) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    own = [made.population()] * populations
    other = made.snapshot(*own, from_ns=START_NS, flows=(made.flow(*flow),))
    with_snapshots(tmp_path, other)
    with pytest.raises(StoredRunError, match="holds 0 of 80000 latencies"):
        hdr_log(tmp_path, result)


def test_a_run_without_any_load_has_an_empty_log(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    (tmp_path / SNAPSHOTS_FILE).unlink()
    (tmp_path / "log").write_text(
        hdr_log(tmp_path, result.model_copy(update={"flows": (), "populations": {}}))
    )
    assert logged(tmp_path / "log") == {}


def test_the_log_holds_extremes_and_names_of_any_form(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    extremes = Histogram.of([0, 1, 255, 256, MAX_NS, MAX_NS + 5])
    pair = HistogramPair(intended=extremes)
    odd = result.flows[0].model_copy(update={"source": "a b,c\n", "histogram_ns": pair})
    receiver = result.populations["backend"]
    populations = {"a b,c\n": receiver, "backend": receiver}
    changed = result.model_copy(update={"flows": (odd,), "populations": populations})
    flow = made.flow(0, 1, extremes)
    both = made.population(), made.population()
    with_snapshots(tmp_path, made.snapshot(*both, from_ns=START_NS, flows=(flow,)))
    (tmp_path / "log").write_text(hdr_log(tmp_path, changed))
    assert_same(logged(tmp_path / "log")["delivery:a_b_c_->backend:intended"], extremes)


def test_a_file_that_cannot_be_written_costs_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, Shape(duration_s=20))
    stored = (tmp_path / "result.json").read_bytes()
    (tmp_path / "junit.xml").mkdir()
    problems = list(write_reports(tmp_path, RunDirectory(tmp_path).write))
    assert problems == ["there is no junit.xml: Is a directory"]
    assert all((tmp_path / file).exists() for file in run_files(load_run(tmp_path)))
    assert (tmp_path / "result.json").read_bytes() == stored


def test_a_file_that_cannot_be_made_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, Shape(duration_s=20))

    def broken(_run: object) -> str:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(pubstorm.report.files, "markdown", broken)
    problems = list(write_reports(tmp_path, RunDirectory(tmp_path).write))
    assert problems == ["there is no report.md: ZeroDivisionError: division by zero"]
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "report.md").exists()


def test_without_a_result_there_is_no_report_and_a_word(tmp_path: Path) -> None:
    (problem,) = write_reports(tmp_path, RunDirectory(tmp_path).write)
    assert problem.startswith("there is no report: cannot read ")
    assert list(tmp_path.iterdir()) == []


def test_markdown_has_the_tables_of_the_page(failed_run: Path) -> None:
    text = (failed_run / "report.md").read_text()
    for title in (
        "The scenario's own table",
        "Phases",
        "Brokers, host and agents under load",
        "Observers",
    ):
        assert f"## {title}\n" in text
    assert "Everything watched" in text


def test_reports_that_cannot_be_loaded_cost_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pubstorm.report.files", None)
    problems = list(write_reports(tmp_path, lambda _name, _text: None))
    assert len(problems) == 1
    assert problems[0].startswith("there are no reports: ModuleNotFoundError")

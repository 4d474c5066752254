"""Results of a run against a publisher of ZeroMQ: its figures, and its limiting part."""

from __future__ import annotations

import pytest

from pubstorm.metrics.expressions import parse_expression
from pubstorm.result import Latency, StageResult
from pubstorm.result.figures import Found, Missing, evaluate
from pubstorm.result.verdict import evaluate_run
from tests.kit.example_zeromq import constant, publisher, subscriber, zeromq
from tests.kit.measured import MeasuredMaker
from tests.pure.measure.test_faults import fault_result

BUSY_HOST = constant("host", "cpu", 0.98)
FULL_THREAD = constant("feed", "thread_cpu_max", 0.99)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("subscriber.loss", "2 %"),
        ("loss", "2 %"),
        ("feed.loss", "no delivery was expected"),
        ("subscriber.received_each_per_s", "1 000/s"),
        ("received_each_per_s", "1 000/s"),
        ("sent_each_per_s", "1 000/s"),
        ("subscriber.bytes_received_per_s", "340 kB/s"),
        ("feed.bytes_sent_per_s", "32.0 kB/s"),
        ("feed.cpu", "80 %"),
        ("feed.rss.max", "12.0 MB"),
        ("feed.thread_cpu_max", "99 %"),
        ("feed.sent", "10 000"),
        ("feed.lateness.p99", "90.0 µs"),
        ("feed.lateness.p99@publish", "lateness of publishers is kept for the whole run only"),
        ("feed.descriptors", "feed shows no descriptors"),
        ("subscriber.cpu", "populations have no metric cpu"),
    ],
)
def test_figures_of_a_publisher_and_its_subscribers(
    measured: MeasuredMaker, expression: str, text: str
) -> None:
    monitors = (constant("feed", "cpu", 0.8), constant("feed", "rss_bytes", 12e6), FULL_THREAD)
    found = evaluate(measured(**zeromq(lost=2000, monitors=monitors)), parse_expression(expression))
    shown = found.reason if isinstance(found, Missing) else str(found)
    assert shown.replace("\u202f", " ") == text


def test_of_several_publishers_the_worst_is_reported(measured: MeasuredMaker) -> None:
    publishers = (publisher(name="feed-0"), publisher(name="feed-1", lateness_us=Latency()))
    monitors = (constant("feed-0", "cpu", 0.3), constant("feed-1", "cpu", 0.4))
    run = measured(**zeromq(publishers=publishers, monitors=monitors))
    assert evaluate(run, parse_expression("feed.lateness.p99")) == Found(90.0, "us")
    assert evaluate(run, parse_expression("feed.cpu")) == Found(0.4, "share")
    assert evaluate(run, parse_expression("feed-0.cpu")) == Found(0.3, "share")
    missing = evaluate(run, parse_expression("feed-1.lateness.p99"))
    assert missing == Missing("nothing was measured")


def test_a_share_of_all_counts_those_that_take_part(measured: MeasuredMaker) -> None:
    idle = subscriber(ready_max=0, expected_total=0, received_total=0)
    run = measured(**zeromq(populations={"subscriber": idle}, publishers=()))
    assert evaluate(run, parse_expression("received_each_per_s")) == Missing("no client was ready")
    assert evaluate(run, parse_expression("loss")) == Missing("no delivery was expected")


@pytest.mark.parametrize(
    ("in_stage", "limited_by", "words"),
    [(2500, "none", ", in stages with faults"), (2000, "publisher", "")],
)
def test_what_a_stopped_publisher_did_not_send_is_no_limit_of_it(
    measured: MeasuredMaker, in_stage: int, limited_by: str, words: str
) -> None:
    (stage,) = (stage for stage in measured().stages if stage.kind == "publish")
    populations = {"feed": {"sent_total": 10_000, "skipped_total": in_stage}}
    stage = StageResult.model_validate({**dict(stage), "populations": populations})
    stopped = fault_result("stop feed").model_copy(update={"at_s": stage.start_s + 1})
    skipped = {"skipped_total": 2500}
    run = measured(**zeromq(stages=(stage,), faults=(stopped,), feed=skipped, publisher=skipped))
    verdict = evaluate_run(run, [])
    assert (verdict.status, verdict.limited_by) == ("pass", limited_by)
    said = "feed sent 1 000 of 1 250 scheduled messages a second: 2 500 of 12 500 were not sent"
    assert f"{said}{words}" in [text.replace("\u202f", " ") for text in verdict.evidence]

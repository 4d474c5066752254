"""A load test in pytest: the broker is started by the run, and the thresholds decide."""

from pathlib import Path

import pytest

import pubstorm

SCENARIO = {
    "topology": {"brokers": {"broker": {"kind": "embedded"}}},
    "populations": {
        "backend": {"clients": 1, "subscriptions": [{"topic": "device/#", "qos": 1}]},
        "device": {
            "clients": 50,
            "publications": [{"topic": "device/{n}", "rate": "10/s", "size": "200B", "qos": 1}],
        },
    },
    "stages": ["connect", {"publish": "2s"}, "disconnect"],
    "thresholds": ["backend.lost == 0", "backend.latency.p99 < 5s"],
    "validity": {"lateness_p99": "1min", "busy": "100%"},  # this host does other work too
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> pubstorm.Result:
    return pubstorm.run(SCENARIO, out=tmp_path_factory.mktemp("load") / "run")


def test_every_threshold_passes(result: pubstorm.Result) -> None:
    for threshold in result.thresholds:
        assert threshold.passed, f"{threshold.expression}: {threshold.text}"


def test_no_message_is_lost(result: pubstorm.Result) -> None:
    assert result.figure("backend.received") == result.figure("backend.expected") == 1000


def test_the_run_can_be_read_again(result: pubstorm.Result) -> None:
    assert pubstorm.load(Path(result.path)).figure("device.sent") == 1000

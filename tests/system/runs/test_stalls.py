"""A subscriber that a real broker stops serving while its publisher continues."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.starved import is_starved

LOAD = """
target: {target}
stall_after: 2s
populations:
  mobile:
    clients: 10
    username: "mobile-{{n}}"
    subscriptions: ["state/{{n}}"]
  device:
    clients: 10
    username: "device-{{n}}"
    publications: [{{topic: "state/{{n}}", rate: 5/s}}]
stages: [connect, publish: 10s]
drain: 1s
thresholds: [mobile.stalled == 0]
"""
EVERYTHING = "pattern readwrite #\n"


@pytest.mark.slow("a subscriber has to be silent for seconds")
def test_a_subscriber_that_the_broker_forgets_is_named_with_the_time(
    start: Callable[..., Any], mosquitto: Callable[..., Any], tmp_path: Any
) -> None:
    rights = tmp_path / "rights"
    rights.write_text(EVERYTHING)
    broker = mosquitto(acl_file=rights)
    run = start(LOAD.format(target=broker.url))
    run.wait_for_stage("publish")
    # It stays connected, its subscription stands, and nothing comes any more.
    rights.write_text(f"user mobile-3\ntopic deny state/3\n{EVERYTHING}")
    broker.signal(signal.SIGHUP)
    code, result = run.finish(), run.result()
    # A host that gives agents no processor makes the run invalid, and names the stall as well.
    assert code == 1 or (code == 3 and is_starved(result))
    (stall,) = result["stalls"]
    publish = result["stages"][1]
    assert (stall["population"], stall["number"], stall["stage"]) == ("mobile", 3, "publish")
    assert publish["start_s"] < stall["since_s"] < publish["start_s"] + publish["duration_s"]
    assert (stall["until_s"], stall["lasted"]) == (None, True)
    assert stall["due"] >= 3
    mobile = result["populations"]["mobile"]
    assert (mobile["stalled_total"], mobile["disconnected_total"]) == (1, 0)
    assert mobile["lost_total"] > 0
    assert any("mobile 3" in text for text in result["verdict"]["evidence"])

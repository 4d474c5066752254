"""Messages that expire while their receivers are offline, on real brokers: what is left of them
arrives, and the rest counts as expired, not as lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RunMaker = Callable[..., Any]

SCENARIO = """
topology:
  brokers:
    one: {{kind: {kind}{settings}}}
populations:
  device:
    clients: 2
    version: 5
    publications:
      - {{topic: "brief/{{n}}", rate: 20/s, qos: 1, expiry: 1s}}
      - {{topic: "long/{{n}}", rate: 20/s, qos: 1, expiry: 1h}}
      - {{topic: "never/{{n}}", rate: 20/s, qos: 1}}
  receiver:
    clients: 3
    version: {version}
    session: persistent
    subscriptions: [{{topic: "+/+", qos: 1}}]
drain: 300ms
stages:
  - connect
  - publish: {{for: 1s, name: online}}
  - disconnect: {{populations: [receiver]}}
  - publish: {{for: 1s, name: offline}}
  - hold: 2500ms
  - connect: {{populations: [receiver]}}
  - publish: {{for: 1s, name: back}}
  - disconnect
thresholds: [receiver.lost == 0, receiver.expired > 0]
"""
KINDS = {"mosquitto": ", settings: {max_queued_messages: 0}", "embedded": ""}


@pytest.mark.parametrize("version", ["5", '"3.1.1"'])
@pytest.mark.parametrize("kind", KINDS)
def test_what_expires_while_its_receiver_is_offline_is_not_lost(
    start: RunMaker, kind: str, version: str
) -> None:
    run = start(SCENARIO.format(kind=kind, settings=KINDS[kind], version=version))
    assert run.finish() == 0, run.stdout
    result = run.result()
    receiver = result["populations"]["receiver"]
    (offline,) = (stage for stage in result["stages"] if stage["name"] == "offline")
    # A third of these messages had one second to live, each for three receivers.
    assert 0 < receiver["expired_total"] <= offline["populations"]["device"]["sent_total"]
    assert receiver["expired_received_total"] == 0
    assert receiver["received_total"] == receiver["expected_total"]
    published = result["populations"]["device"]["sent_total"]
    assert receiver["received_total"] == 3 * published - receiver["expired_total"]

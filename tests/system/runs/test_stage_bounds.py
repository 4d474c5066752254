"""A stage ends, whatever a broker does to its clients, and after its number of messages. A run ends
that has failed already."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.kit.runs import RunMaker

SCENARIO = """
target: {url}
populations:
  device:
    clients: 8
    client_id: "shared-{{n}}"
    reconnect: {{after: 20ms, up_to: 50ms}}
    subscriptions: ["up/#"]
    publications: [{{topic: "up/{{n}}", rate: 10/s}}]
stages:
  - connect: {{timeout: 5s}}
  - publish: 100ms
drain: 500ms
snapshot_interval: 200ms
clean_start: skip
monitors: {{host: false}}
"""


class _AcceptsAndCloses(socketserver.BaseRequestHandler):
    """Answers CONNECT with CONNACK and closes the connection before any SUBACK."""

    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"\x20\x02\x00\x00")
        self.request.shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def closing_broker() -> Iterator[str]:
    with _Server(("127.0.0.1", 0), _AcceptsAndCloses) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"mqtt://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_connect_stage_ends_though_every_connection_is_accepted_and_closed(
    start: RunMaker, closing_broker: str
) -> None:
    run = start(SCENARIO.format(url=closing_broker))
    assert run.finish() == 1
    result = run.result()
    device = result["populations"]["device"]
    assert device["connected_total"] > 3 * 8
    assert device["ready_max"] == 0
    connect = result["stages"][0]
    assert (connect["name"], connect["settled"]) == ("connect", False)
    assert device["outcomes"]["closed_by_broker"] > 3 * 8


HOPELESS = """
topology: {brokers: {main: embedded}}
populations:
  device: {clients: 5, publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]}
  backend: {clients: 1, subscriptions: ["up/#"]}
stages: [connect, publish: 1h, hold: 1h]
snapshot_interval: 100ms
abort_when: [backend.received@publish > 10]
"""


def test_a_run_ends_when_a_condition_of_its_scenario_is_met(start: RunMaker) -> None:
    run = start(HOPELESS)
    assert run.finish() == 1
    result = run.result()
    assert [stage["settled"] for stage in result["stages"]] == [True, True]
    backend = result["populations"]["backend"]
    assert backend["received_total"] == backend["expected_total"] > 10
    (event,) = result["events"]
    assert event["kind"] == "check"
    assert event["text"] in result["verdict"]["headline"]


COUNTED = """
topology: {brokers: {main: embedded}}
fleet: {agents: 3}
populations:
  even: {clients: 7, publications: [{topic: "up/{n}", rate: 50/s, qos: 1}]}
  fast: {clients: 2, publications: [{topic: "up/f/{n}", rate: 100/s, burst: 3}]}
  max: {clients: 4, publications: [{topic: "up/m/{n}", rate: max, qos: 1, window: 5}]}
  poisson: {clients: 5, publications: [{topic: "up/p/{n}", rate: 50/s, arrivals: poisson}]}
  jitter: {clients: 5, publications: [{topic: "up/j/{n}", rate: 50/s, jitter: 100%, spread: 50%}]}
  backend: {clients: 1, subscriptions: ["up/#"]}
stages:
  - connect
  - publish: {name: one, messages: 103, populations: [even, backend]}
  - publish: {name: rates, messages: 111, populations: [even, fast, backend]}
  - publish: {name: each, messages: 20/client, populations: [even, fast, backend]}
  - publish: {name: as fast, messages: 10k, populations: [max, backend]}
  - publish: {name: mixed, messages: 21/client}
snapshot_interval: 200ms
"""


def test_clients_send_exactly_as_many_messages_as_a_stage_asks_for(start: RunMaker) -> None:
    run = start(COUNTED)
    assert run.finish() == 0
    stages = run.result()["stages"][1:]
    populations = [stage["populations"] for stage in stages]
    sent = [
        {name: own["sent_total"] for name, own in found.items() if own["sent_total"]}
        for found in populations
    ]
    received = [found["backend"]["received_total"] for found in populations]
    assert sent == [
        {"even": 103},
        # 7 clients at 50/s, and 2 at 100/s.
        {"even": 70, "fast": 41},
        {"even": 140, "fast": 40},
        {"max": 10_000},
        {"even": 147, "fast": 42, "max": 84, "poisson": 105, "jitter": 105},
    ]
    assert received == [sum(each.values()) for each in sent]
    assert [stage["settled"] for stage in stages] == [True] * 5
    assert [stage for stage in stages if stage["duration_s"] > 30] == []


TOO_SHORT = """
topology: {brokers: {main: embedded}}
populations:
  device: {clients: 7, publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]}
  backend: {clients: 1, subscriptions: ["up/#"]}
stages: [connect, publish: {messages: 10k, for: 1s}]
snapshot_interval: 200ms
"""


def test_a_run_fails_that_has_no_time_for_its_number_of_messages(start: RunMaker) -> None:
    run = start(TOO_SHORT)
    assert run.finish() == 1
    result = run.result()
    assert result["populations"]["device"]["sent_total"] == 70
    (event,) = result["events"]
    assert event["kind"] == "check"
    assert event["text"] in result["verdict"]["headline"]

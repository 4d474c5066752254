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
  - connect: {{timeout: 1s}}
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
populations:
  device: {clients: 7, publications: [{topic: "up/{n}", rate: 50/s, qos: 1}]}
  backend: {clients: 1, subscriptions: ["up/#"]}
stages: [connect, publish: {name: some, messages: 103}, publish: {name: each, messages: 20/client}]
snapshot_interval: 200ms
"""


def test_clients_send_exactly_as_many_messages_as_a_stage_asks_for(start: RunMaker) -> None:
    run = start(COUNTED)
    assert run.finish() == 0
    stages = run.result()["stages"][1:]
    sent = [stage["populations"]["device"]["sent_total"] for stage in stages]
    received = [stage["populations"]["backend"]["received_total"] for stage in stages]
    assert sent == received == [103, 140]

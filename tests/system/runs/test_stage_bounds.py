"""Stages end, whatever a broker or another run does to their clients."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.kit.runs import MosquittoMaker, RunMaker

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
  - publish: 1s
drain: 500ms
snapshot_interval: 200ms
clean_start: skip
monitors: {{host: false}}
"""
TAKEN = "another program probably uses the same client ids"


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
    evidence = "\n".join(result["verdict"]["evidence"])
    assert "stage connect ended before every agent was done" in evidence
    assert TAKEN in evidence
    assert "8 of 8 clients never connected" in result["verdict"]["headline"]


def test_two_runs_with_the_same_client_ids_end_and_say_so(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    scenario = SCENARIO.format(url=mosquitto().url).replace("publish: 1s", "publish: 2s")
    first, second = start(scenario), start(scenario)
    codes = (first.finish(), second.finish())
    results = [run.result() for run in (first, second)]
    # The run that begins later may find the ids free again once the other one has ended.
    assert 1 in codes
    evidences = ["\n".join(result["verdict"]["evidence"]) for result in results]
    assert any(TAKEN in evidence for evidence in evidences), evidences
    assert [stage["name"] for result in results for stage in result["stages"]] == [
        "connect",
        "publish",
    ] * 2


def test_a_controller_that_was_stopped_says_so(start: RunMaker, mosquitto: MosquittoMaker) -> None:
    scenario = SCENARIO.format(url=mosquitto().url).replace("monitors: {host: false}", "")
    run = start(scenario.replace("publish: 1s", "publish: 5s"))
    run.wait_for("publish 1")
    threading.Timer(3.0, os.kill, (run.process.pid, signal.SIGCONT)).start()
    os.kill(run.process.pid, signal.SIGSTOP)
    run.finish()
    result = run.result()
    (gap,) = result["monitor_gaps"]
    assert gap["to_s"] - gap["from_s"] >= 2.0
    assert any(
        fact.startswith("no monitor was read for ") for fact in result["verdict"]["evidence"]
    )

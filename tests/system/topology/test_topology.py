"""Configuration of brokers, and errors when one does not come up."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from psutil import Process

from pubstorm.contract.target import Target
from pubstorm.errors import TopologyError
from pubstorm.measure.monitors.prometheus import PrometheusMonitor
from pubstorm.scenario.topology import Mosquitto
from pubstorm.scenario.topology import Topology as TopologySpec
from pubstorm.topology import BrokerEvent, Topology
from pubstorm.topology.adapters import EmbeddedBroker, embedded
from pubstorm.topology.broker import Place
from pubstorm.topology.observer import Login, MqttObserver

Specs = Mapping[str, dict[str, Any]]


def start(specs: Specs, folder: Path, binary: Path | None = None) -> None:
    """Starts brokers, all of one program if it is given, and stops them."""
    given = {} if binary is None else {"binary": str(binary)}

    async def run() -> None:
        brokers = {name: {**given, **spec} for name, spec in specs.items()}
        died: list[BrokerEvent] = []
        topology = Topology(TopologySpec.model_validate({"brokers": brokers}), folder, died.append)
        try:
            await topology.start()
        finally:
            await topology.stop()
            await topology.stop()

    asyncio.run(run())


def test_started_brokers_serve_the_next_run_unless_one_has_ended(tmp_path: Path) -> None:
    async def run() -> None:
        brokers = {"main": Mosquitto(kind="mosquitto")}
        first: asyncio.Queue[BrokerEvent] = asyncio.Queue()
        second: asyncio.Queue[BrokerEvent] = asyncio.Queue()
        topology = Topology(TopologySpec(brokers=brokers), tmp_path, first.put_nowait)
        try:
            await topology.start()
            pid = topology.results()[0].pid
            topology.notify(second.put_nowait)
            await topology.start()
            assert topology.results()[0].pid == pid
            os.kill(pid, signal.SIGKILL)
            assert (await second.get()).name == "main-0"
            assert first.empty()
            with pytest.raises(TopologyError, match=r"signal 9, in a run before this one"):
                await topology.start()
        finally:
            await topology.stop()

    asyncio.run(run())


def script(folder: Path, text: str) -> Path:
    path = folder / "broker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_embedded_broker_keeps_its_ports_and_its_secrets(tmp_path: Path) -> None:
    """Redis is away: so only the trusted user gets in."""
    redis, login = "redis://:hidden-word@127.0.0.1:1/0", Login("observer", "hidden-too")
    broker = EmbeddedBroker(Place("b-0", tmp_path / "b-0", auth=redis, trusted=login))

    async def play() -> None:
        assert broker.metrics_url is None
        await broker.start()
        try:
            ports = broker.port, broker.metrics_url
            assert not any("hidden" in word for word in Process(broker.pid).cmdline())
            broker.send(signal.SIGKILL)
            await broker.ending()
            await broker.restart()
            assert (broker.port, broker.metrics_url) == ports
            accepted = [await asyncio.to_thread(logs_in, broker, who) for who in (login, Login())]
            assert accepted == [True, False]
            read = [*PrometheusMonitor("b-0", str(broker.metrics_url), ["*"]).read()]
            counts = {reading.metric: reading.value for reading in read}
            assert counts["pubstorm_broker_auth_refused_total"] == 1
        finally:
            await broker.stop()

    asyncio.run(play())


def test_variables_of_the_users_shell_say_nothing_to_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (embedded.AUTH, embedded.TRUSTED):
        monkeypatch.setenv(variable, "nonsense")
    start({"main": {"kind": "embedded"}}, tmp_path)


def logs_in(broker: EmbeddedBroker, login: Login) -> bool:
    """True if the broker accepts a client."""
    answers: queue.Queue[bool] = queue.Queue()
    client = MqttObserver(Target(host=broker.host, port=broker.port), login).client
    client.on_connect = lambda *args: answers.put(not args[3].is_failure)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        return answers.get(timeout=10)
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_a_program_that_the_scenario_names_and_that_ends_at_once_is_quoted(
    tmp_path: Path, kind: str
) -> None:
    binary = script(tmp_path, "echo no luck today >&2; exit 9")
    with pytest.raises(TopologyError, match=r"main-0 .*code 9") as caught:
        start({"main": {"kind": kind, "binary": str(binary)}}, tmp_path / "run")
    assert "no luck today" in str(caught.value.hint)
    binary.write_bytes(b"\x00nonsense")
    with pytest.raises(TopologyError, match="main-0"):
        start({"main": {"kind": kind, "binary": str(binary)}}, tmp_path / "run")


@pytest.mark.parametrize("says", ["", "echo '[1, 2]'; "], ids=["nothing", "nonsense"])
def test_a_broker_that_is_never_ready_is_stopped(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "ready_timeout_s", 0.1)
    with pytest.raises(TopologyError, match="main-0"):
        start({"main": {"kind": "embedded"}}, tmp_path / "run", script(tmp_path, f"{says}exec cat"))


def test_a_broker_that_ignores_the_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "stop_grace_s", 0.1)
    ready = '{"kind": "ready", "port": 1, "pid": 1, "version": "stubborn"}'
    binary = script(tmp_path, f"trap '' TERM; echo '{ready}'; while read -r _; do :; done")
    start({"main": {"kind": "embedded", "count": 2}}, tmp_path / "run", binary)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopologyError, match=r"cannot write .*started\.jsonl"):
        start({"main": {"kind": "embedded"}}, tmp_path / "file")
    (tmp_path / "main-0").touch()
    with pytest.raises(TopologyError, match=r"cannot write .*main-0"):
        start({"main": {"kind": "embedded"}}, tmp_path)


def test_one_broker_that_fails_stops_the_others(tmp_path: Path) -> None:
    ready = '{"kind": "ready", "port": 1, "pid": 1, "version": "1"}'
    once = tmp_path / "once"
    text = f"mkdir '{once}' 2>/dev/null || exit 3; echo '{ready}'; exec cat"
    binary = script(tmp_path, text)
    with pytest.raises(TopologyError, match="exited with code 3"):
        start({"main": {"kind": "embedded", "count": 3}}, tmp_path / "run", binary)

"""Configuration of brokers, and errors when one does not come up."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from psutil import Process

from pubstorm.errors import TopologyError
from pubstorm.measure.monitors.prometheus import PrometheusMonitor
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology import BrokerEvent, Topology
from pubstorm.topology.adapters import embedded
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.broker import Place
from pubstorm.topology.observer import Login
from tests.kit import made
from tests.system.topology.clients import client
from tests.system.topology.conftest import up


async def start(folder: Path, **broker: object) -> None:
    """Starts brokers, embedded ones if nothing else is given, and stops them."""
    spec = TopologySpec.model_validate({"brokers": {"main": {"kind": "embedded", **broker}}})
    async with up(Topology(spec, folder, lambda _: None)):
        pass


async def test_started_brokers_serve_the_next_run_unless_one_has_ended(tmp_path: Path) -> None:
    first: asyncio.Queue[BrokerEvent] = asyncio.Queue()
    second: asyncio.Queue[BrokerEvent] = asyncio.Queue()
    spec = TopologySpec.model_validate({"brokers": {"main": "mosquitto"}})
    async with up(Topology(spec, tmp_path, first.put_nowait)) as topology:
        pid = topology.results()[0].pid
        topology.notify(second.put_nowait)
        await topology.start()
        assert topology.results()[0].pid == pid
        os.kill(pid, signal.SIGKILL)
        assert (await second.get()).name == "main-0"
        assert first.empty()
        with pytest.raises(TopologyError, match=r"signal 9, in a run before this one"):
            await topology.start()


def script(folder: Path, text: str) -> str:
    """Path of a program in place of a broker."""
    path = folder / "broker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ready(version: str) -> str:
    """The line of an embedded broker that is ready."""
    return f'{{"kind": "ready", "port": 1, "pid": 1, "version": "{version}"}}'


async def test_the_embedded_broker_keeps_its_ports_and_its_secrets(tmp_path: Path) -> None:
    """Redis is away: so only the trusted user gets in."""
    redis, login = "redis://:hidden-word@127.0.0.1:1/0", Login("observer", "hidden-too")
    broker = EmbeddedBroker(Place("b-0", tmp_path / "b-0", auth=redis, trusted=login))

    def lets_in(who: Login) -> bool:
        with client(broker.port, who) as receiver:
            return receiver.is_accepted

    assert broker.metrics_url is None
    await broker.start()
    try:
        ports = broker.port, broker.metrics_url
        assert not any("hidden" in word for word in Process(broker.pid).cmdline())
        broker.send(signal.SIGKILL)
        await broker.ending()
        await broker.restart()
        assert (broker.port, broker.metrics_url) == ports
        accepted = [await asyncio.to_thread(lets_in, who) for who in (login, Login())]
        assert accepted == [True, False]
        read = [*PrometheusMonitor(made.source("b-0"), str(broker.metrics_url), ["*"]).read()]
        counts = {reading.metric: reading.value for reading in read}
        assert counts["pubstorm_broker_auth_refused_total"] == 1
    finally:
        await broker.stop()


async def test_variables_of_the_users_shell_say_nothing_to_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (embedded.AUTH, embedded.TRUSTED):
        monkeypatch.setenv(variable, "nonsense")
    await start(tmp_path)


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_a_program_that_the_scenario_names_and_that_ends_at_once_is_quoted(
    tmp_path: Path, kind: str
) -> None:
    binary = script(tmp_path, "echo no luck today >&2; exit 9")
    with pytest.raises(TopologyError, match=r"main-0 .*code 9") as caught:
        await start(tmp_path / "run", kind=kind, binary=binary)
    assert "no luck today" in str(caught.value.hint)
    Path(binary).write_bytes(b"\x00nonsense")
    with pytest.raises(TopologyError, match="main-0"):
        await start(tmp_path / "run", kind=kind, binary=binary)


@pytest.mark.parametrize("says", ["", "echo '[1, 2]'; "], ids=["nothing", "nonsense"])
async def test_a_broker_that_is_never_ready_is_stopped(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "ready_timeout_s", 0.1)
    with pytest.raises(TopologyError, match="main-0"):
        await start(tmp_path / "run", binary=script(tmp_path, f"{says}exec cat"))


async def test_a_broker_that_ignores_the_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "stop_grace_s", 0.1)
    text = f"trap '' TERM; echo '{ready('stubborn')}'; while read -r _; do :; done"
    await start(tmp_path / "run", count=2, binary=script(tmp_path, text))


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopologyError, match=r"cannot write .*started\.jsonl"):
        await start(tmp_path / "file")
    (tmp_path / "main-0").touch()
    with pytest.raises(TopologyError, match=r"cannot write .*main-0"):
        await start(tmp_path)


async def test_one_broker_that_fails_stops_the_others(tmp_path: Path) -> None:
    text = f"mkdir '{tmp_path}/once' 2>/dev/null || exit 3; echo '{ready('1')}'; exec cat"
    with pytest.raises(TopologyError, match="exited with code 3"):
        await start(tmp_path / "run", count=3, binary=script(tmp_path, text))

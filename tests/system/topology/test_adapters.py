"""Brokers of every kind, with their real programs: each starts, serves other people's clients,
comes back where it was, and leaves nothing, however it ends."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.binaries import broker_path
from pubstorm.host.children import find
from pubstorm.host.machine import LocalMachine
from pubstorm.scenario.topology import Federation
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.adapters.command import CommandBroker
from pubstorm.topology.broker import BrokerProcess, Place
from pubstorm.topology.observer import Login
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.system.topology.clients import ANONYMOUS, client

PROGRAMS: Mapping[str, Callable[[], str | None]] = {
    "embedded": lambda: "built",
    "mosquitto": lambda: find("mosquitto"),
    "rabbitmq": lambda: find("rabbitmq-server"),
    "nats": lambda: find("nats-server"),
    "command": lambda: str(broker_path()),
}
slow = pytest.mark.slow("RabbitMQ takes 10 s to start")
EVERY = [pytest.param(kind, marks=slow if kind == "rabbitmq" else ()) for kind in PROGRAMS]
CUSTOMER = Login("customer-1:guest", "guest")


def place_of(kind: str, folder: Path, **more: Any) -> Place:
    """A place for a broker of a kind; skips where its program is missing."""
    program = PROGRAMS[kind]()
    if program is None:
        pytest.skip(f"{kind} is not installed (scripts/install-test-tools)")
    command = (program, "--port", "{port}") if kind == "command" else ()
    return Place(name="b-0", folder=folder / "b-0", command=command, **more)


@asynccontextmanager
async def started(place: Place, kind: str) -> AsyncIterator[BrokerProcess]:
    """A broker that is up; nothing of it is left afterwards, and a stop may be repeated."""
    broker = adapter_of(kind)(place)
    process_tree: set[int] = set()
    try:
        await broker.start()
        process_tree = process_tree_of(broker.pid)
        yield broker
        process_tree |= process_tree_of(broker.pid)
    finally:
        await broker.stop()
        await broker.stop()
    assert process_tree and not process_tree & living()
    assert not listens(broker.port)


def living() -> set[int]:
    """Numbers of the processes that are alive."""
    return {pid for pid, _, _ in processes()}


def process_tree_of(leader: int) -> set[int]:
    """A process and those that came from it."""
    process_tree, grew = {leader}, True
    while grew:
        more = {pid for pid, *origin in processes() if {*origin} & process_tree}
        grew = not more <= process_tree
        process_tree |= more
    return process_tree


def processes() -> Iterator[tuple[int, int, int]]:
    """Number, parent and session of every process that is alive: one whose leading thread has
    ended still holds its sockets until the others have."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" or int(fields[17]) > 1:
            yield int(path.parent.name), int(fields[1]), int(fields[3])


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def passes_messages(
    broker: BrokerProcess, publisher: Login = ANONYMOUS, subscriber: Login = ANONYMOUS
) -> None:
    """A message reaches a subscriber."""
    with client(broker.port, subscriber) as receiver, client(broker.port, publisher) as sender:
        receiver.subscribe("to/#")

        def comes() -> bool:
            # Brokers that pass on a subscription take a moment.
            sender.publish("to/me", b"hello")
            return publisher == subscriber or not receiver.messages.empty()

        until(comes)
        assert receiver.next()[:2] == ("to/me", b"hello")


@pytest.mark.parametrize("kind", EVERY)
async def test_a_broker_serves_clients_and_comes_back_where_it_was(
    kind: str, tmp_path: Path
) -> None:
    """RabbitMQ federates virtual hosts in both directions."""
    port = free_port()
    more = {"federation": Federation(vhosts=2, direction="both")} if kind == "rabbitmq" else {}
    async with started(place_of(kind, tmp_path, port=port, **more), kind) as broker:
        assert broker.port == port
        assert (broker.version != "") == (kind != "command")
        await asyncio.to_thread(passes_messages, broker)
        for way in [(CUSTOMER, ANONYMOUS), (ANONYMOUS, CUSTOMER)] if more else []:
            await asyncio.to_thread(passes_messages, broker, *way)
        pid, process_tree = broker.pid, process_tree_of(broker.pid)
        broker.send(signal.SIGKILL)
        assert "signal 9" in await broker.ending()
        await asyncio.to_thread(until, lambda: not process_tree & living())
        await broker.restart()
        assert broker.port == port and broker.pid != pid
        await asyncio.to_thread(passes_messages, broker)


@pytest.mark.parametrize("kind", EVERY)
async def test_a_taken_port_is_an_error_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    with socket.socket() as other:
        # This socket does not listen: only the broker could accept connections.
        other.bind(("127.0.0.1", 0))
        broker = adapter_of(kind)(place_of(kind, tmp_path, port=other.getsockname()[1]))
        with pytest.raises(TopologyError, match="broker b-0"):
            await broker.start()
        assert not process_tree_of(broker.pid) & living()
        assert kind == "command" or broker.port_was_taken()


@pytest.mark.parametrize("kind", ["mosquitto", "nats", "command"])
async def test_a_broker_that_another_process_was_quicker_than_gets_another_port(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process answers before the broker has met the taken port."""
    place = place_of(kind, tmp_path)
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {PROGRAMS[kind]()} "$@"\n')
    slow.chmod(0o700)
    place = replace(place, binary=str(slow), command=(str(slow), *place.command[1:]))
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = iter([other.getsockname()[1]])

        async def chosen(_machine: LocalMachine, _address: str = "") -> int:
            return next(ports, 0) or free_port()

        monkeypatch.setattr(LocalMachine, "free_port", chosen)
        async with started(place, kind) as broker:
            assert broker.port != other.getsockname()[1]
            await asyncio.to_thread(passes_messages, broker)


async def test_a_process_that_lives_beside_the_owner_of_its_port_is_not_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommandBroker, "ready_timeout_s", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place = Place(name="b-0", folder=tmp_path / "b-0", command=("sleep", "1000"), port=port)
        with pytest.raises(TopologyError, match=f"did not get port {port}, at which another"):
            await CommandBroker(place).start()


async def test_a_command_starts_in_the_directory_of_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(f'exec {broker_path().absolute()} "$@"')
    (tmp_path / "version.sh").write_text("echo 4.5.6")
    command, version = ("sh", "serve.sh", "--port", "{port}"), ("sh", "version.sh")
    own: dict[str, Any] = {"command": command, "version": version, "directory": tmp_path}
    async with started(Place(name="b-0", folder=tmp_path / "b-0", **own), "command") as broker:
        assert broker.version == "4.5.6"


async def test_a_command_may_let_a_service_of_the_host_listen(tmp_path: Path) -> None:
    """As `docker run` does. The service is this process."""
    asked, port = tmp_path / "asked", free_port()
    command = ("sh", "-c", f"touch {asked}; exec sleep 1000")

    async def serve() -> None:
        while not asked.exists():
            await asyncio.sleep(0.01)
        with socket.create_server(("127.0.0.1", port)):
            await asyncio.Event().wait()

    service = asyncio.create_task(serve())
    broker = CommandBroker(Place(name="b-0", folder=tmp_path / "b", command=command, port=port))
    try:
        await broker.start()
        assert not broker.gone()
    finally:
        await broker.stop()
        service.cancel()
        await asyncio.wait({service})


STARTS_AND_WAITS = """\
import asyncio, sys
from pathlib import Path
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.broker import Place

async def main():
    kind, folder, *command = sys.argv[1:]
    broker = adapter_of(kind)(Place(name="b-0", folder=Path(folder), command=command))
    await broker.start()
    print(broker.pid, broker.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", EVERY)
def test_a_broker_ends_with_a_pubstorm_that_is_killed(kind: str, tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    place = place_of(kind, tmp_path)
    pubstorm = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS, kind, str(tmp_path / "b-0"), *place.command],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pubstorm.stdout is not None
    try:
        pid, port = map(int, pubstorm.stdout.readline().split())
        process_tree = process_tree_of(pid)
    finally:
        pubstorm.kill()
        pubstorm.communicate()
    until(lambda: not process_tree & living())
    assert not listens(port)


async def test_a_start_of_rabbitmq_that_failed_is_explained_by_its_first_error(
    tmp_path: Path,
) -> None:
    place = place_of("rabbitmq", tmp_path, settings={"no.such.setting": 1})
    with pytest.raises(TopologyError) as caught:
        await adapter_of("rabbitmq")(place).start()
    assert "no.such.setting" in str(caught.value.hint)


async def test_what_a_command_starts_is_gone_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that does not hand on signals, and a child that left its session."""
    monkeypatch.setattr(CommandBroker, "stop_grace_s", 0.1)
    place = place_of("command", tmp_path)
    script = f"setsid {' '.join(place.command)} & trap '' TERM; sleep 1000 & wait $!; wait"
    async with started(replace(place, command=("sh", "-c", script)), "command") as broker:
        await asyncio.to_thread(passes_messages, broker)

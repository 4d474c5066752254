"""Brokers of every kind, with their real programs: each starts, serves other people's clients,
comes back where it was, and leaves nothing, however it ends."""

from __future__ import annotations

import asyncio
import queue
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.errors import TopologyError
from pubstorm.host.binaries import broker_path
from pubstorm.scenario.topology import Federation
from pubstorm.topology.adapters import ADAPTERS, CommandBroker, mosquitto, nats, rabbitmq
from pubstorm.topology.broker import BrokerProcess, Place
from tests.kit.ports import free_port

DEADLINE_S = 60.0
PROGRAMS: Mapping[str, Callable[[], str | None]] = {
    "embedded": lambda: "built",
    "mosquitto": mosquitto.find_mosquitto,
    "rabbitmq": rabbitmq.find_rabbitmq,
    "nats": nats.find_nats,
    "command": lambda: str(broker_path()),
}
one_rabbitmq = pytest.mark.xdist_group("heavy")
KINDS = [pytest.param(k, marks=one_rabbitmq) if k == "rabbitmq" else k for k in ADAPTERS]


def place_of(kind: str, folder: Path, **more: Any) -> Place:
    """A place for a broker of a kind; skips where its program is missing."""
    program = PROGRAMS[kind]()
    if program is None:
        pytest.skip(f"{kind} is not installed (scripts/install-test-tools)")
    command = (program, "--port", "{port}") if kind == "command" else ()
    return Place(name="b-0", folder=folder / "b-0", command=command, **more)


def with_broker(place: Place, kind: str, use: Callable[[BrokerProcess], Any]) -> None:
    """Starts a broker, uses it and stops it; nothing of it is left."""

    async def run() -> None:
        broker = ADAPTERS[kind](place)
        process_tree: set[int] = set()
        try:
            await broker.start()
            process_tree = process_tree_of(broker.pid)
            used = use(broker)
            if isinstance(used, Coroutine):
                await used
            process_tree |= process_tree_of(broker.pid)
        finally:
            await broker.stop()
            await broker.stop()
        assert process_tree and not process_tree & living()
        assert not listens(broker.port)

    asyncio.run(run())


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
    broker: BrokerProcess, publisher: str | None = None, subscriber: str | None = None
) -> None:
    """A message reaches a subscriber; None is an anonymous client, others are user names."""
    came: queue.Queue[bytes] = queue.Queue()
    acknowledged: queue.Queue[int] = queue.Queue()

    def client(user: str | None) -> Client:
        made = Client(CallbackAPIVersion.VERSION2, client_id=f"c-{user}-{time.monotonic_ns()}")
        if user is not None:
            made.username_pw_set(user, "guest")
        made.connect(broker.host, broker.port)
        made.loop_start()
        return made

    def receive(client: Client, userdata: object, message: MQTTMessage) -> None:
        del client, userdata
        came.put(bytes(message.payload))

    receiver, sender = client(subscriber), client(publisher)
    receiver.on_message = receive
    receiver.on_subscribe = lambda *args: acknowledged.put(args[2])
    try:
        wait_until(receiver.is_connected)
        receiver.subscribe("to/#", 1)
        acknowledged.get(timeout=DEADLINE_S)
        wait_until(sender.is_connected)
        if publisher == subscriber:
            sender.publish("to/me", b"hello", 1)
        else:
            # Where brokers pass on that somebody has subscribed, it takes them a moment.
            wait_until(lambda: bool(sender.publish("to/me", b"hello", 1)) and not came.empty())
        assert came.get(timeout=DEADLINE_S) == b"hello"
    finally:
        for each in (receiver, sender):
            each.disconnect()
            each.loop_stop()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came to hold"
        time.sleep(0.05)


@pytest.mark.slow("RabbitMQ starts twice")
@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_serves_clients_and_comes_back_where_it_was(kind: str, tmp_path: Path) -> None:
    port = free_port()

    async def use(broker: BrokerProcess) -> None:
        assert broker.port == port
        assert (broker.version != "") == (kind != "command")
        await asyncio.to_thread(passes_messages, broker)
        pid, process_tree = broker.pid, process_tree_of(broker.pid)
        broker.send(signal.SIGKILL)
        assert "was killed by signal 9" in await broker.ending()
        await asyncio.to_thread(wait_until, lambda: not process_tree & living())
        await broker.restart()
        assert broker.port == port and broker.pid != pid
        await asyncio.to_thread(passes_messages, broker)

    with_broker(place_of(kind, tmp_path, port=port), kind, use)


@pytest.mark.parametrize("kind", KINDS)
def test_a_taken_port_is_an_error_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    with socket.socket() as other:
        # This socket does not listen: only the broker could accept connections.
        other.bind(("127.0.0.1", 0))
        place = place_of(kind, tmp_path, port=other.getsockname()[1])

        async def run() -> None:
            broker = ADAPTERS[kind](place)
            with pytest.raises(TopologyError, match="broker b-0"):
                await broker.start()
            assert not process_tree_of(broker.pid) & living()
            if kind != "command":
                assert broker.port_was_taken()

        asyncio.run(run())


STARTS_AND_WAITS = """\
import asyncio, sys
from pathlib import Path
from pubstorm.topology.adapters import ADAPTERS
from pubstorm.topology.broker import Place

async def main():
    kind, folder, *command = sys.argv[1:]
    broker = ADAPTERS[kind](Place(name="b-0", folder=Path(folder), command=command))
    await broker.start()
    print(broker.pid, broker.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", KINDS)
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
    wait_until(lambda: not process_tree & living())
    assert not listens(port)


@one_rabbitmq
def test_rabbitmq_federates_virtual_hosts_in_both_directions(tmp_path: Path) -> None:
    place = place_of("rabbitmq", tmp_path, federation=Federation(vhosts=2, direction="both"))

    async def use(broker: BrokerProcess) -> None:
        customer = "customer-1:guest"
        await asyncio.to_thread(passes_messages, broker, customer, None)
        await asyncio.to_thread(passes_messages, broker, None, customer)

    with_broker(place, "rabbitmq", use)


@pytest.mark.parametrize(("direction", "at"), [("out", "/"), ("in", "customer-0")])
def test_links_are_where_messages_go_to(direction: str, at: str) -> None:
    federation = Federation.model_validate({"vhosts": 1, "direction": direction})
    made: Any = rabbitmq.definitions_of(federation)
    assert [link["vhost"] for link in made["parameters"]] == [at]
    assert [policy["vhost"] for policy in made["policies"]] == [at]


def test_definitions_of_a_federation_have_a_link_for_each_customer() -> None:
    federation = Federation(vhosts=3, direction="both")
    made: Any = rabbitmq.definitions_of(federation)
    assert [vhost["name"] for vhost in made["vhosts"]] == [
        "/",
        *(f"customer-{n}" for n in range(3)),
    ]
    uris = [(link["vhost"], link["value"]["uri"]) for link in made["parameters"]]
    assert uris[:2] == [("/", "amqp:///customer-0"), ("customer-0", "amqp:///%2F")]
    assert len(uris) == 6
    assert len(made["policies"]) == 4


def test_settings_of_rabbitmq_win_but_for_the_listener() -> None:
    settings = {"mqtt.allow_anonymous": False, "mqtt.listeners.tcp.1": 1, "mqtt.prefetch": 10}
    ours = {"mqtt.listeners.tcp.1": "127.0.0.1:4711"}
    lines = rabbitmq.configuration(settings, ours).splitlines()
    assert "mqtt.allow_anonymous = false" in lines
    assert "mqtt.prefetch = 10" in lines
    assert "mqtt.listeners.tcp.1 = 127.0.0.1:4711" in lines
    assert "listeners.tcp = none" in lines
    assert len({line.partition(" ")[0] for line in lines}) == len(lines)
    assert "listeners.tcp = none" not in rabbitmq.configuration({"listeners.tcp.1": 5672}, ours)


def test_a_dot_in_a_setting_of_nats_is_a_block() -> None:
    settings = {"mqtt.ack_wait": "10s", "max_payload": "2MB", "debug": True, "mqtt.port": 1}
    text = nats.configuration(settings, {"mqtt.port": 4711})
    assert text.splitlines() == [
        "mqtt {",
        "  ack_wait: 10s",
        "  port: 4711",
        "}",
        "max_payload: 2MB",
        "debug: true",
    ]


def test_a_start_of_rabbitmq_that_failed_is_explained_by_its_first_error(tmp_path: Path) -> None:
    place = place_of("rabbitmq", tmp_path, settings={"no.such.setting": 1})

    async def run() -> None:
        with pytest.raises(TopologyError) as caught:
            await ADAPTERS["rabbitmq"](place).start()
        assert "no.such.setting" in str(caught.value.hint)

    asyncio.run(run())


def test_what_a_command_starts_is_gone_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that does not hand on signals, and a child that left its session."""
    monkeypatch.setattr(CommandBroker, "stop_grace_s", 0.1)
    place = place_of("command", tmp_path)
    program = " ".join(place.command)
    script = f"setsid {program} & trap '' TERM; sleep 1000 & wait $!; wait"
    with_broker(
        replace(place, command=("sh", "-c", script)),
        "command",
        lambda broker: passes_messages(broker),
    )


def test_a_missing_program_is_an_error_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "find_rabbitmq", lambda *_: None)
    monkeypatch.setattr(nats, "find_nats", lambda _: None)
    for kind in ("rabbitmq", "nats"):
        with pytest.raises(TopologyError, match="is not installed") as caught:
            ADAPTERS[kind](Place(name="b-0", folder=tmp_path)).program()
        assert caught.value.exit_code == 2
        assert "apt-get install" in str(caught.value.hint)

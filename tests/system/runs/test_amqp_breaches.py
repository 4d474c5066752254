"""Peers of AMQP that breach the protocol, over real sockets: one run of clients at a peer for each
breach. The run ends by itself and names each breach, and clients at a right peer lose nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pika import spec

from tests.kit.amqp_peer import (
    HEADER,
    START,
    Act,
    Breach,
    Connection,
    amqp_peers,
    content,
    framed,
    raw,
)
from tests.kit.runs import Play

pytestmark = pytest.mark.xdist_group("amqp-breaches")

PUBLISH = "Basic.Publish"
HEARTBEAT = raw(8, 0, b"")
FLOOD = 200_000
TABLE = b"\x00\x0a\x00\x0a\x00\x09"
"""Front of the method connection.start, up to the properties of the server."""


async def mute(connection: Connection) -> None:
    """Answers nothing more."""
    connection.is_mute = True


async def deaf(connection: Connection) -> None:
    """Reads nothing more."""
    connection.is_deaf = True


async def slow(connection: Connection) -> None:
    """Sends one byte of an answer each second."""
    for byte in framed(START):
        await connection.send(bytes([byte]))
        await asyncio.sleep(1)


async def half(connection: Connection) -> None:
    """Ends after half a frame."""
    await connection.send(framed(START)[:20])
    connection.close()


async def gone(connection: Connection) -> None:
    connection.close()


async def torn(connection: Connection) -> None:
    """Ends within a message."""
    await connection.send(connection.delivery(size=500))
    connection.close()


async def stranger(connection: Connection) -> None:
    await connection.send(connection.delivery(tag="7"))


async def other_channel(connection: Connection) -> None:
    await connection.send(connection.delivery(channel=7))


async def longer(connection: Connection) -> None:
    await connection.send(connection.delivery(size=5))


async def shorter(connection: Connection) -> None:
    await connection.send(connection.delivery(size=len(connection.body) + 9), HEARTBEAT)
    await connection.send(spec.Basic.Ack(connection.published))


async def endless(connection: Connection) -> None:
    await connection.send(connection.delivery(size=1 << 63, body=b""))


async def twice(connection: Connection) -> None:
    await connection.carry()
    await connection.send(spec.Basic.Ack(connection.published))


async def future(connection: Connection) -> None:
    await connection.carry()
    await connection.send(spec.Basic.Ack(connection.published + 1000))


async def future_multiple(connection: Connection) -> None:
    await connection.send(connection.delivery(), spec.Basic.Ack(connection.published + 1000, True))


async def zero(connection: Connection) -> None:
    await connection.carry()
    await connection.send(spec.Basic.Ack(0))


async def refuses(connection: Connection) -> None:
    await connection.send(connection.delivery(), spec.Basic.Nack(connection.published))


async def flood(connection: Connection) -> None:
    await connection.send(HEARTBEAT * FLOOD)
    await connection.carry()


async def copies(connection: Connection) -> None:
    await connection.send(connection.delivery())
    await connection.carry()


def closes(code: int, text: str) -> list[Any]:
    return [spec.Connection.Close(code, text, 0, 0)]


@dataclass(frozen=True)
class Row:
    """A breach and what a run says of it."""

    breach: Breach
    outcome: str
    """Name under which it is counted."""
    words: str = ""
    """Words of the explanation."""
    keys: str = ""
    """Keys of its clients."""

    @property
    def population(self) -> str:
        """Keys of its population."""
        return "connect_timeout: 1s" if self.outcome in TIMEOUTS else self.keys


def row(name: str, when: str, act: Act | bytes | list[Any], *said: str) -> Row:
    """Returns a row. `said` are the outcome, words of the explanation, and keys of the clients."""
    return Row(Breach(name, when, act), *said)


TIMEOUTS = ("connect_timeout", "subscribe_timeout")
"""Outcomes of clients that wait in vain."""
LOGIN = "Connection.StartOk"
ROWS = [
    row("garbage", HEADER, b"\xffgarbage", "protocol_error", "no frame"),
    row("garbage-frame", HEADER, b"\x01garbage of a server", "protocol_error", "frame of"),
    row("http", HEADER, b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol_error", "no frame"),
    row("echo", HEADER, b"AMQP\0\0\x09\x01", "protocol_error", "does not speak AMQP"),
    row("other-version", HEADER, b"AMQP\0\1\0\0", "protocol_error", "1-0-0"),
    row("half", HEADER, half, "connect_closed"),
    row("slow", HEADER, slow, "connect_timeout"),
    row(
        "start-table", HEADER, raw(1, 0, TABLE + b"\xff" * 4), "protocol_error", "connection.start"
    ),
    row(
        "start-text",
        HEADER,
        raw(1, 0, TABLE + b"\0\0\0\0\x80\0\0\0PLAIN"),
        "protocol_error",
        "connection.start",
    ),
    row(
        "no-mechanism",
        HEADER,
        [spec.Connection.Start(0, 9, {}, "GSSAPI", "en_US")],
        "connect_rejected",
        "the logins GSSAPI, needed is PLAIN",
    ),
    row("mute-start", HEADER, mute, "connect_timeout"),
    row("mute-login", LOGIN, mute, "connect_timeout"),
    row("mute-open", "Connection.Open", mute, "connect_timeout"),
    row("mute-channel", "Channel.Open", mute, "subscribe_timeout"),
    row("mute-queue", "Queue.Declare", mute, "subscribe_timeout"),
    row("mute-consumer", "Basic.Consume", mute, "subscribe_timeout"),
    row("gone-login", LOGIN, gone, "connect_closed"),
    row("secure", LOGIN, [spec.Connection.Secure("?")], "protocol_error", "connection.secure"),
    row("small-frames", LOGIN, [spec.Connection.Tune(0, 100, 0)], "protocol_error", "100 bytes"),
    row(
        "few-channels",
        LOGIN,
        [spec.Connection.Tune(1, 0, 0)],
        "connect_rejected",
        "at most 1 channels",
        "channels: 2",
    ),
    row("frame-end", PUBLISH, raw(8, 0, b"", end=0), "protocol_error", "ends with 0"),
    row(
        "frame-max", PUBLISH, raw(3, 1, b"", size=1 << 31), "protocol_error", "frame of 2147483656"
    ),
    row("frame-type", PUBLISH, raw(4, 0, b""), "protocol_error", "type 4"),
    row("unasked", PUBLISH, [spec.Queue.BindOk()], "protocol_error", "queue.bind-ok"),
    row("unknown", PUBLISH, raw(1, 1, b"\0\x5a\0\x0a"), "protocol_error", "90.10"),
    row("stranger", PUBLISH, stranger, "protocol_error", "no consumer"),
    row("other-channel", PUBLISH, other_channel, "protocol_error", "channel 7"),
    row("endless", PUBLISH, endless, "protocol_error", "9223372036854775808"),
    row("longer", PUBLISH, longer, "protocol_error", "more than the 5 bytes"),
    row("shorter", PUBLISH, shorter, "protocol_error", "within a message"),
    row("content-alone", PUBLISH, content(b"x"), "protocol_error", "without a method"),
    row(
        "return-alone",
        PUBLISH,
        [spec.Basic.Return(312, "NO_ROUTE", "", "q"), spec.Basic.Ack(1)],
        "protocol_error",
        "within a message",
    ),
    row("heartbeat-1", PUBLISH, raw(8, 1, b""), "protocol_error", "heartbeat"),
    row("torn", PUBLISH, torn, "closed_by_broker"),
    row("close", PUBLISH, closes(541, "\x1b[2J INTERNAL\n"), "amqp_internal_error", "INTERNAL"),
    row(
        "close-channel", PUBLISH, [spec.Channel.Close(404, "no q", 0, 0)], "amqp_not_found", "no q"
    ),
    row("cancel", PUBLISH, [spec.Basic.Cancel("0")], "consumer_cancelled"),
    row("ack-twice", PUBLISH, twice, "unexpected_ack"),
    row("ack-zero", PUBLISH, zero, "unexpected_ack"),
    row("ack-future", PUBLISH, future, "unexpected_ack"),
    row("ack-future-all", PUBLISH, future_multiple, "unexpected_ack"),
    row("nack", PUBLISH, refuses, "nacked"),
    row("mute-beats", PUBLISH, mute, "keep_alive_timeout", "", "keep_alive: 1s"),
]
SCENARIO = """\
target: TARGETS
clean_start: skip
monitors: {host: false}
stages: [FIRST{connect: {timeout: 2s}}, {publish: 3s}, disconnect]
thresholds: ["ok.lost == 0", "ok.sent == 30"]
defaults: "off"
populations:
"""
OK_FIRST = "{connect: {name: first, populations: [ok]}}, "
POPULATION = """\
  NAME:
    {clients: 1, reconnect: {after: 300ms, up_to: 300ms},
     at: {brokers: target, first: FIRST, count: 1}, subscriptions: [NAME],
     publications: [{key: NAME, rate: 10/s, confirm: true, size: 100B}], KEYS}
"""


def scenario(names: dict[str, str], ports: list[int]) -> str:
    """Returns a scenario with a population for each name, with further keys, at a port."""
    targets = [f"amqp://127.0.0.1:{port}" for port in ports]
    parts = [
        POPULATION.replace("NAME", name).replace("FIRST", str(first)).replace("KEYS", keys)
        for first, (name, keys) in enumerate(names.items())
    ]
    text = SCENARIO.replace("FIRST", OK_FIRST if "ok" in names else "")
    return text.replace("TARGETS", str(targets).replace("'", "")) + "".join(parts)


@pytest.fixture(scope="module")
def found(shared_run: Play) -> tuple[int, dict[str, Any]]:
    """Exit code and result of a run at all peers, and at one that is right."""
    names = {"ok": "", **{row.breach.name: row.population for row in ROWS}}
    with amqp_peers([None, *(row.breach for row in ROWS)]) as ports:
        return shared_run(scenario(names, ports))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.breach.name)
def test_a_breach_has_a_name_and_words(found: tuple[int, dict[str, Any]], row: Row) -> None:
    population = found[1]["populations"][row.breach.name]
    assert population["outcomes"].get(row.outcome, 0) >= 1, population["outcomes"]
    assert row.words in str(population["explanations"]), population["explanations"]


async def blocks(connection: Connection) -> None:
    await connection.send(spec.Connection.Blocked("no room"))
    await connection.carry()


async def stops(connection: Connection) -> None:
    await connection.send(spec.Channel.Flow(False))
    await connection.carry()


WAITS = {
    "blocked": Breach("blocked", PUBLISH, blocks),
    "flow": Breach("flow", PUBLISH, stops),
    "deaf": Breach("deaf", PUBLISH, deaf),
    "unconfirmed": Breach("unconfirmed", PUBLISH, mute),
    "flood": Breach("flood", PUBLISH, flood),
    "copies": Breach("copies", PUBLISH, copies),
}
"""Breaches that no outcome counts."""


def test_clients_at_a_right_peer_lose_nothing(found: tuple[int, dict[str, Any]]) -> None:
    ok = found[1]["populations"]["ok"]
    assert ok["sent_total"] == ok["acked_total"] == ok["received_total"] == 30
    assert ok["outcomes"] == {}
    assert all(each["passed"] for each in found[1]["verdict"]["thresholds"])


@pytest.fixture(scope="module")
def waited(shared_run: Play) -> dict[str, Any]:
    """Result of a run at the peers whose breach no outcome counts."""
    with amqp_peers([None, *WAITS.values()]) as ports:
        return shared_run(scenario(dict.fromkeys(("ok", *WAITS), ""), ports))[1]


@pytest.mark.parametrize("name", ["blocked", "flow"])
def test_a_peer_that_never_takes_messages_again_blocks(waited: dict[str, Any], name: str) -> None:
    population = waited["populations"][name]
    assert population["blocked_total"] == 1
    assert population["skipped_total"] == 30 - population["sent_total"] > 0
    assert population["lost_total"] == 0
    assert waited["verdict"]["limited_by"] == "broker"


@pytest.mark.parametrize("name", ["deaf", "unconfirmed"])
def test_what_a_peer_never_confirms_is_not_acknowledged(waited: dict[str, Any], name: str) -> None:
    population = waited["populations"][name]
    assert population["sent_total"] == 30
    assert population["acked_total"] == population["received_total"] == 2
    assert population["lost_total"] == 28


def test_a_flood_of_heartbeats_takes_no_memory(waited: dict[str, Any]) -> None:
    population = waited["populations"]["flood"]
    assert population["acked_total"] == population["received_total"] == 30
    assert population["bytes_received_total"] > len(HEARTBEAT) * FLOOD
    assert max(agent["rss_max_bytes"] for agent in waited["fleet"]["agents"]) < 40e6


def test_copies_of_a_peer_are_duplicates(waited: dict[str, Any]) -> None:
    assert waited["populations"]["copies"]["duplicate_total"] == 28


def test_a_run_at_breaking_peers_alone_does_not_pass(run: Play) -> None:
    rows = {row.breach.name: row for row in ROWS if row.breach.name in {"http", "mute-login"}}
    with amqp_peers([row.breach for row in rows.values()]) as ports:
        text = scenario({name: row.population for name, row in rows.items()}, ports)
        rules = text.index("thresholds"), text.index("populations:")
        code, result = run(text[: rules[0]] + text[rules[1] :])
    assert code == 3, result["verdict"]
    assert result["verdict"]["limited_by"] == "target"

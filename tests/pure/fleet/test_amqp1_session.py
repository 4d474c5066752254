"""A connection of AMQP 1.0 without a socket, against the server side of Proton and against bytes
that no server should send: each end has its name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import proton
import pytest

from pubstorm.contract.reasons import Reason
from pubstorm.fleet.amqp1_agent.clients import pattern_of
from pubstorm.fleet.amqp1_agent.session import (
    Amqp1Attached,
    Amqp1Ended,
    Amqp1Refused,
    Amqp1Session,
    Amqp1Setup,
    ClientSource,
    outcome_of,
)

SASL = b"AMQP\x03\x01\x00\x00"


def setup(*addresses: str, settled: bool = False, credit: int = 10) -> Amqp1Setup:
    sources = [
        ClientSource(
            address=each,
            name=each.replace("*", "x"),
            pattern=pattern_of(each) if "*" in each else None,
            capability=None,
            settled=settled,
            credit=credit,
        )
        for each in addresses
    ]
    return Amqp1Setup(
        container_id="reader-0",
        hostname="broker",
        mechanism="anonymous",
        username="",
        password="",
        idle_timeout_s=10,
        message_bytes_max=1000,
        sources=sources,
    )


@dataclass
class Server:
    """The other side: it accepts all logins, and answers links as `answer` does."""

    answer: Callable[[proton.Sender], None]
    accepted: int = 0
    senders: list[proton.Sender] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.collect(self.collector)
        self.transport = proton.Transport(proton.Transport.SERVER)
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.connection)
        self.connection.open()

    def handle(self, data: bytes) -> bytes:
        """Takes bytes and returns the answer."""
        if data:
            self.transport.push(data)
        while (event := self.collector.peek()) is not None:
            kind, at = event.type, cast(Any, event.context)
            if kind == proton.Event.SESSION_REMOTE_OPEN:
                at.open()
            elif kind == proton.Event.LINK_REMOTE_OPEN:
                self.answer(at)
                self.senders.append(at)
            elif kind == proton.Event.DELIVERY and at.updated:
                self.accepted += at.remote_state == proton.Delivery.ACCEPTED
                at.settle()
            elif kind == proton.Event.CONNECTION_REMOTE_CLOSE:
                self.connection.close()
            self.collector.pop()
        pending = self.transport.pending()
        if pending <= 0:
            return b""
        found = bytes(self.transport.peek(pending) or b"")
        self.transport.pop(pending)
        return found


def accept(link: proton.Sender) -> None:
    link.source.address = link.remote_source.address or ""
    link.open()


def refuse(link: proton.Sender) -> None:
    link.source.type = proton.Terminus.UNSPECIFIED
    link.open()
    link.condition = proton.Condition("amqp:not-found", "no such queue")
    link.close()


def exchange(session: Amqp1Session, server: Server) -> None:
    """Carries bytes until both sides are silent."""
    while True:
        sent = session.output()
        session.sent(len(sent))
        answer = server.handle(sent)
        session.handle(answer)
        if not sent and not answer:
            return


def connected(
    address: str, *, settled: bool = False, credit: int = 10
) -> tuple[Amqp1Session, Server]:
    own = setup(address, settled=settled, credit=credit)
    session, server = Amqp1Session(own), Server(accept)
    exchange(session, server)
    assert session.is_ready
    session.events.clear()
    return session, server


def send(server: Server, body: Any, settled: bool = False) -> None:
    message = proton.Message(body, inferred=isinstance(body, bytes))
    delivery = message.send(server.senders[0], tag=str(random.random()))
    if settled:
        delivery.settle()


def test_a_client_is_ready_when_each_link_is_answered() -> None:
    session, server = Amqp1Session(setup("a", "b")), Server(accept)
    assert (session.is_ready, session.step) == (False, "login and Open")
    exchange(session, server)
    assert [*session.events] == [Amqp1Attached(), Amqp1Attached()]
    assert session.is_ready
    assert min(session.frames) > 2


def test_a_link_without_an_answer_is_named() -> None:
    def answer(link: proton.Sender) -> None:
        if link.remote_source.address == "a":
            accept(link)

    session, server = Amqp1Session(setup("a", "b")), Server(answer)
    exchange(session, server)
    assert (session.is_ready, session.step) == (False, "Attach of b")


def test_a_refused_login_has_its_name() -> None:
    session, server = Amqp1Session(setup("a")), Server(accept)
    server.transport.sasl().allowed_mechs("PLAIN")
    exchange(session, server)
    (ended,) = session.events
    assert isinstance(ended, Amqp1Ended)
    assert ended.outcome == Reason.BAD_CREDENTIALS
    assert "Authentication failed" in ended.words


def test_a_refused_link_has_the_name_of_its_condition_and_the_connection_continues() -> None:
    def answer(link: proton.Sender) -> None:
        (refuse if link.remote_source.address == "b" else accept)(link)

    session, server = Amqp1Session(setup("a", "b")), Server(answer)
    exchange(session, server)
    words = "b: amqp:not-found: no such queue"
    assert [*session.events] == [Amqp1Attached(), Amqp1Refused("subscribe_not_found", words)]
    assert session.is_ready
    assert not session.is_over


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b"bytes", b"bytes"),
        ("text", b"text"),
        (b"", b""),
        ({"a": 1}, b""),
        (7, b""),
        (None, b""),
    ],
)
def test_a_message_is_its_bytes_or_its_text(body: object, payload: bytes) -> None:
    session, server = connected("a")
    send(server, body)
    exchange(session, server)
    assert [*session.messages] == [("a", payload)]


@pytest.mark.parametrize(
    ("source", "address", "name"),
    [
        ("a.b", "queue://c", "a.b"),
        ("a.*", "a.7", "a.7"),
        ("a.*", None, "a.x"),
        ("a.*", "queue://a.7", "a.x"),
    ],
)
def test_a_message_has_its_own_address_where_that_of_the_source_has_wildcards(
    source: str, address: str | None, name: str
) -> None:
    session, server = connected(source)
    proton.Message("text", address=address).send(server.senders[0], tag="1")
    exchange(session, server)
    assert [*session.messages] == [(name, b"text")]


@pytest.mark.parametrize(
    ("address", "name", "is_match"),
    [
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#", "a.b", True),
        ("*", "a.b", False),
        ("a+.*", "aa.b", False),
    ],
)
def test_wildcards_match_as_the_ledger_has_them(address: str, name: str, is_match: bool) -> None:
    assert bool(pattern_of(address).fullmatch(name)) == is_match


@pytest.mark.parametrize("settled", [False, True])
def test_messages_beyond_the_credit_come_when_others_were_taken(settled: bool) -> None:
    session, server = connected("a", settled=settled)
    for number in range(100):
        send(server, b"%d" % number, settled)
    exchange(session, server)
    assert [payload for _, payload in session.messages] == [b"%d" % n for n in range(100)]
    assert server.accepted == (0 if settled else 100)


@pytest.mark.parametrize("credit", [1, 2, 10])
def test_deliveries_that_the_broker_aborts_take_no_credit(credit: int) -> None:
    session, server = connected("a", credit=credit)
    (link,) = server.senders
    for number in range(3 * credit):
        aborted = link.delivery(f"aborted-{number}")
        link.stream(b"begin")
        exchange(session, server)
        aborted.abort()
        exchange(session, server)
    send(server, b"whole")
    exchange(session, server)
    assert [*session.messages] == [("a", b"whole")]


def test_what_arrives_after_the_close_is_not_accepted() -> None:
    session, server = connected("a")
    send(server, b"late")
    session.close()
    exchange(session, server)
    assert not session.messages
    assert server.accepted == 0
    assert session.is_over


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        ("detach", "disconnect_resource_deleted"),
        ("detach without a condition", Reason.CONSUMER_CANCELLED),
        ("end the session", "disconnect_resource_deleted"),
        ("close", "disconnect_resource_deleted"),
        ("close without a condition", Reason.CLOSED_BY_BROKER),
        ("close the socket", Reason.CLOSED_BY_BROKER),
        ("send too much", Reason.PACKET_TOO_LARGE),
        ("send nonsense", Reason.PROTOCOL_ERROR),
        ("be silent", Reason.KEEP_ALIVE_TIMEOUT),
    ],
)
def test_each_end_of_a_connection_has_its_name(act: str, outcome: str) -> None:
    session, server = connected("a")
    session.tick(1000.0)
    condition = proton.Condition("amqp:resource-deleted", "gone")
    link = server.senders[0]
    action, _, without = act.partition(" without ")
    found = {"detach": link, "end the session": link.session, "close": server.connection}
    if action in found:
        found[action].condition = None if without else condition
        found[action].close()
    if act == "send too much":
        send(server, b"." * 1001)
    exchange(session, server)
    if act == "close the socket":
        session.handle_end()
    elif act == "send nonsense":
        session.handle(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    elif act == "be silent":
        session.tick(1001.0)
        session.tick(1012.0)
    (ended,) = session.events
    assert isinstance(ended, Amqp1Ended)
    assert ended.outcome == outcome
    assert ("gone" in ended.words) == (outcome == "disconnect_resource_deleted")
    session.handle(b"more")
    session.handle_end()
    assert not session.output().startswith(b"more")
    assert [*session.events] == [ended]


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (b"", Reason.CONNECT_CLOSED),
        (b"AM", Reason.CONNECT_CLOSED),
        (SASL, Reason.CONNECT_CLOSED),
        (b"AMQP\x00\x00\x09\x01", Reason.PROTOCOL_ERROR),
        (b"AMQP\x00\x01\x00\x00", Reason.PROTOCOL_ERROR),
        (b"\x15\x03\x03\x00\x02\x02\x28", Reason.PROTOCOL_ERROR),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Reason.PROTOCOL_ERROR),
        (SASL + b"\x00" * 8, Reason.PROTOCOL_ERROR),
        (SASL + b"\xff" * 64, Reason.PROTOCOL_ERROR),
    ],
)
def test_bytes_of_another_protocol_end_the_attempt(data: bytes, outcome: Reason) -> None:
    session = Amqp1Session(setup("a"))
    session.output()
    session.handle(data)
    session.handle_end()
    (ended,) = session.events
    assert isinstance(ended, Amqp1Ended)
    assert ended.outcome == outcome, ended


def test_no_bytes_of_a_broker_raise() -> None:
    drawn = random.Random(1)
    answers = recorded()
    for number in range(2000):
        session = Amqp1Session(setup("a"))
        broken = bytearray(answers)
        for _ in range(drawn.randint(1, 5)):
            broken[drawn.randrange(len(broken))] = drawn.randrange(256)
        cut = drawn.randrange(len(broken))
        session.output()
        session.handle(bytes(broken[:cut]))
        session.tick(1000.0 + number)
        session.output()
        session.handle_end()
        assert session.is_over
        assert isinstance(session.events[-1], Amqp1Ended)


def recorded() -> bytes:
    """Returns all bytes of a server that accepts a link and sends some messages."""
    session, server, found = Amqp1Session(setup("a")), Server(accept), b""
    for turn in range(10):
        sent = session.output()
        session.sent(len(sent))
        answer = server.handle(sent)
        session.handle(answer)
        found += answer
        if turn == 5:
            for body in (b"one", "two", {"three": [3]}):
                send(server, body)
    assert len(session.messages) == 3
    return found


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("amqp:not-found", "subscribe_not_found"),
        ("amqp:link:detach-forced", "subscribe_detach_forced"),
        ("amqp:unauthorized-access", "subscribe_unauthorized_access"),
        ("com.microsoft:timeout", "subscribe_other"),
        ("amqp:" + "x" * 1000, "subscribe_other"),
        ("", None),
    ],
)
def test_an_outcome_has_the_name_of_a_condition_of_the_standard(
    name: str, outcome: str | None
) -> None:
    assert outcome_of("subscribe", proton.Condition(name)) == outcome
    assert outcome_of("subscribe", None) is None

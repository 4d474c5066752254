"""The publisher of pyzmq as a real process, before real SUB sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from pubstorm.contract.commands import ApplyChange, Close, Failure
from pubstorm.contract.flows import ClosedPace, FixedPayload, OpenPace
from pubstorm.contract.plan import Change, ChangeRate, DisconnectAction, Plan, PublishAction
from pubstorm.contract.protocol import Zmtp
from pubstorm.fleet.zmq_agent.messages import STAMP
from tests.system.publishers.conftest import (
    CONNECT,
    PUBLISH,
    Agent,
    AgentMaker,
    feed,
    plan,
    publication,
)

PATIENCE_MS = 20_000
LONG = PublishAction(duration_ns=10**12)
Context = zmq.Context[zmq.Socket[bytes]]


@pytest.fixture
def context() -> Iterator[Context]:
    with zmq.Context() as made:
        yield made


def listener(context: Context, plan: Plan, **credentials: str) -> zmq.Socket[bytes]:
    """A SUB socket at the publisher, which gives up after a while."""
    made = context.socket(zmq.SUB)
    made.setsockopt(zmq.RCVHWM, 0)
    made.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
    made.setsockopt(zmq.LINGER, 0)
    for name, value in credentials.items():
        made.setsockopt_string(getattr(zmq, name), value)
    made.setsockopt_string(zmq.SUBSCRIBE, "")
    made.connect(f"tcp://{plan.targets[0]}")
    return made


def begin(agent: Agent, stage: int, sub: zmq.Socket[bytes]) -> list[bytes]:
    """Enters a publish stage and waits for its first message: subscribed."""
    agent.hello()
    agent.enter(stage)
    return sub.recv_multipart()


def sequences(sub: zmq.Socket[bytes], last: int) -> list[int]:
    """The places of all messages up to one."""
    found: list[int] = []
    while not found or found[-1] < last:
        found.append(STAMP.unpack_from(sub.recv())[1])
    return found


def test_it_greets_and_settles_all_but_publish_stages_at_once(agent: AgentMaker) -> None:
    publisher = agent(plan(feed(), actions=(CONNECT, DisconnectAction(rate_per_s=None))))
    hello = publisher.hello()
    assert (hello.agent, hello.agents, hello.clients) == (1, 2, (1,))
    assert hello.library is not None
    assert hello.library.startswith("pyzmq ")
    publisher.enter(0)
    assert publisher.settle(0).populations[0].gauges.ready == 1
    publisher.enter(1)
    assert publisher.settle(1).populations[0].gauges.connected == 0
    assert publisher.stop() == 0


def test_it_sends_all_that_is_due_and_stamps_it(agent: AgentMaker, context: Context) -> None:
    played = plan(feed(), actions=(LONG, PublishAction(duration_ns=10**9)))
    publisher, sub = agent(played), listener(context, played)
    begin(publisher, 0, sub)
    publisher.send(Close())
    publisher.settle(0)
    first = publisher.count("sent_total", 0)
    publisher.enter(1)
    publisher.settle(1)
    sent = publisher.count("sent_total", 0)
    assert sent - first + publisher.totals.stage(1).sum_of("skipped_total") == 1000
    places = sequences(sub, sent - 1)
    assert places == list(range(places[0], sent))
    assert publisher.count("bytes_sent_total", 0) == 32 * sent
    assert publisher.totals.agents[1].lateness.value().count == sent
    sub.close()


def test_a_burst_is_due_at_once(agent: AgentMaker, context: Context) -> None:
    pace = OpenPace(period_ns=10**5, spread=0, jitter=0, phase="aligned", late="send", burst=100)
    played = plan(feed(publication(pace=pace)), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    begin(publisher, 0, sub)
    stamps = [STAMP.unpack_from(sub.recv()) for _ in range(1000)]
    by_due: dict[int, list[int]] = {}
    for _, place, _, intended_ns, _ in stamps:
        by_due.setdefault(intended_ns, []).append(place)
    whole = list(by_due.values())[1:-1]
    assert whole
    assert all(len(places) == 100 and places[0] % 100 == 0 for places in whole)
    sub.close()


def test_a_rate_changes_as_planned_and_as_asked(agent: AgentMaker) -> None:
    faster = Change(
        name="faster", after_ns=5 * 10**8, population=0, action=ChangeRate(kind="rate", factor=2.0)
    )
    played = plan(feed(), actions=(PublishAction(duration_ns=10**9, changes=(faster,)), LONG))
    publisher = agent(played)
    publisher.hello()
    publisher.enter(0)
    publisher.settle(0)
    whole = publisher.totals.whole()
    assert whole.sum_of("sent_total") + whole.sum_of("skipped_total") == 1500
    publisher.enter(1)
    publisher.until(lambda snapshot: snapshot.populations[0].counters.sent_total > 0)
    pause = ChangeRate(kind="rate", factor=0.0)
    publisher.send(ApplyChange(at_ns=time.monotonic_ns(), population=0, action=pause))
    publisher.until(lambda snapshot: snapshot.populations[0].counters.sent_total == 0)
    sent = publisher.count("sent_total", 0)
    publisher.send(Close())
    publisher.settle(1)
    assert publisher.count("sent_total", 0) == sent


def test_topics_are_a_frame_of_their_own(agent: AgentMaker, context: Context) -> None:
    topic = publication(topic="a/{n}/{0..2}", payload=FixedPayload(bytes=40))
    played = plan(feed(topic, first=5), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    begin(publisher, 0, sub)
    messages = [sub.recv_multipart() for _ in range(6)]
    assert {bytes(message[0]) for message in messages} == {b"a/5/0", b"a/5/1", b"a/5/2"}
    assert all(len(message) == 2 and len(message[1]) == 40 for message in messages)
    sub.close()


def test_as_fast_as_it_can_it_still_listens(agent: AgentMaker, context: Context) -> None:
    fast = publication(pace=ClosedPace(), payload=FixedPayload(bytes=8))
    played = plan(feed(fast), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    begin(publisher, 0, sub)
    publisher.until(lambda snapshot: snapshot.sequence > 3)
    publisher.send(Close())
    publisher.settle(0)
    assert publisher.count("skipped_total", 0) == 0
    assert publisher.count("sent_total", 0) > 0
    assert publisher.stop() == 0
    sub.close()


def test_what_a_close_cuts_off_is_skipped(agent: AgentMaker) -> None:
    paused = OpenPace(period_ns=10**12, spread=0, jitter=0, phase="spread", late="send")
    publisher = agent(plan(feed(publication(pace=paused)), actions=(LONG,)))
    publisher.hello()
    publisher.enter(0)
    publisher.until(lambda snapshot: snapshot.stage == 0 and not snapshot.settled)
    publisher.send(Close())
    publisher.settle(0)
    whole = publisher.totals.whole()
    assert whole.sum_of("sent_total") + whole.sum_of("skipped_total") == 1


def test_a_wrong_password_gets_nothing(agent: AgentMaker, context: Context) -> None:
    plain = Zmtp(player="pyzmq", high_water_mark=10, security="plain")
    guarded = feed(username="user-{n}", password="secret", protocol=plain)
    played = plan(guarded, actions=(LONG,))
    publisher = agent(played)
    right = {"PLAIN_USERNAME": "user-0", "PLAIN_PASSWORD": "secret"}
    wrong = listener(context, played, **{**right, "PLAIN_PASSWORD": "guessed"})
    refused = wrong.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    sub = listener(context, played, **right)
    begin(publisher, 0, sub)
    assert refused.poll(PATIENCE_MS)
    assert not wrong.poll(0)
    wrong.disable_monitor()
    for each in (refused, wrong, sub):
        each.close()


def test_a_port_that_is_taken_is_reported_in_words(agent: AgentMaker) -> None:
    played = plan(feed())
    with socket.socket() as other:
        other.bind((played.targets[0].host, played.targets[0].port))
        other.listen()
        publisher = agent(played)
        said = publisher.read()
    assert isinstance(said, Failure)
    assert f"cannot listen on tcp://{played.targets[0]}" in said.message
    assert "publisher.port" in said.hint
    assert publisher.process.wait(20) == 1


def test_it_ends_with_its_stdin(agent: AgentMaker) -> None:
    publisher = agent(plan(feed(), actions=(LONG,)))
    publisher.hello()
    publisher.enter(0)
    assert publisher.process.stdin is not None
    publisher.process.stdin.close()
    assert publisher.process.wait(20) == 0


def test_a_plan_that_is_none_is_reported_in_words(agent: AgentMaker) -> None:
    played = plan(feed(), actions=(PUBLISH,))
    publisher = agent(played.model_copy(update={"seed": -1}))
    said = publisher.read()
    assert isinstance(said, Failure)
    assert "the plan is not valid" in said.message

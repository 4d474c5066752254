"""The publisher of pyzmq as a real process, before real SUB sockets."""

from __future__ import annotations

import signal
import socket
import time

import pytest
import zmq

from pubstorm.contract.commands import ApplyChange, Close, EnterStage, Failure, Resume
from pubstorm.contract.plan import ChangeRate, DisconnectAction, Plan, PlannedChange, PublishAction
from pubstorm.contract.protocol import ClosedPace, FixedPayload, OpenPace, Zmtp
from pubstorm.fleet.agents.frame import STAMP
from tests.system.publishers.conftest import (
    CONNECT,
    EXIT_TIMEOUT_S,
    AgentMaker,
    Context,
    feed,
    plan,
    publication,
)

LONG = PublishAction(duration_ns=10**12)


def listener(context: Context, plan: Plan, **credentials: str) -> zmq.Socket[bytes]:
    """A SUB socket at the publisher, which gives up after a while."""
    made = context.socket(zmq.SUB)
    made.setsockopt(zmq.RCVHWM, 0)
    made.setsockopt(zmq.RCVTIMEO, EXIT_TIMEOUT_S * 1000)
    made.setsockopt(zmq.LINGER, 0)
    for name, value in credentials.items():
        made.setsockopt_string(getattr(zmq, name), value)
    made.setsockopt_string(zmq.SUBSCRIBE, "")
    made.connect(f"tcp://{plan.targets[0]}")
    return made


def test_it_plays_all_stages_and_sends_all_that_is_due(agent: AgentMaker, context: Context) -> None:
    """Its rate changes as planned and as asked."""
    faster, pause = (ChangeRate(kind="rate", factor=factor) for factor in (2.0, 0.0))
    change = PlannedChange(name="faster", after_ns=5 * 10**8, population=0, action=faster)
    changing = PublishAction(duration_ns=10**9, changes=(change,))
    # However far the listener is behind, nothing is dropped.
    unlimited = feed(protocol=Zmtp(player="pyzmq", high_water_mark=0))
    played = plan(unlimited, actions=(CONNECT, LONG, changing, DisconnectAction(rate_per_s=None)))
    publisher, sub = agent(played), listener(context, played)
    hello = publisher.hello()
    assert (hello.agent, hello.agents, hello.clients) == (1, 2, (1,))
    assert hello.library is not None and hello.library.startswith("pyzmq ")
    publisher.enter(0)
    assert publisher.settle(0).populations[0].gauges.ready == 1
    publisher.enter(1)
    sub.recv()
    publisher.until(lambda snapshot: snapshot.populations[0].counters.sent_total > 0)
    publisher.send(ApplyChange(at_ns=time.monotonic_ns(), population=0, action=pause))
    publisher.until(lambda snapshot: snapshot.populations[0].counters.sent_total == 0)
    paused = publisher.count("sent_total", 0)
    publisher.send(Close())
    publisher.settle(1)
    assert publisher.count("sent_total", 0) == paused
    publisher.enter(2)
    publisher.settle(2)
    sent = publisher.count("sent_total", 0)
    skipped = publisher.sums.population([0], [2]).counters.skipped_total
    assert sent - paused + skipped == 1500
    places: list[int] = []
    while not places or places[-1] < sent - 1:
        places.append(STAMP.unpack_from(sub.recv())[1])
    assert places == list(range(places[0], sent))
    assert publisher.count("bytes_sent_total", 0) == 32 * sent
    assert publisher.sums.agent([1]).lateness.count == sent
    publisher.enter(3)
    assert publisher.settle(3).populations[0].gauges.connected == 0
    assert publisher.stop() == 0
    sub.close()


def test_a_publisher_that_is_started_again_continues_its_streams(
    agent: AgentMaker, context: Context
) -> None:
    """Of 2000 messages due before it continues, its former process has sent or skipped 700."""
    two = publication(topic="{0..1}")
    played = plan(feed(two), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    publisher.hello()
    from_ns = time.monotonic_ns() + 10**8
    start_ns = from_ns - 2 * 10**9
    publisher.send(Resume(from_ns=from_ns, sent=5001, scheduled=700))
    publisher.send(EnterStage(index=0, at_ns=start_ns))
    messages = [sub.recv_multipart() for _ in range(20)]
    publisher.send(Close())
    publisher.settle(0)
    for topic, payload in messages:
        _, place, stream, intended_ns, _ = STAMP.unpack_from(payload)
        number = 2 * place + (stream >> 32 & 1)
        assert topic == str(number % 2).encode()
        assert number >= 5001
        assert intended_ns >= from_ns
        done = publisher.sums.population([0]).counters
        assert intended_ns == start_ns + (number - 5001 + 2000) * 10**6
    assert done.skipped_total >= 1300
    assert publisher.stop() == 0
    sub.close()


def test_a_publisher_that_is_closed_before_it_continues_skips_the_rest(agent: AgentMaker) -> None:
    played = plan(feed(), actions=(PublishAction(duration_ns=10**9),))
    publisher = agent(played)
    publisher.hello()
    now_ns = time.monotonic_ns()
    publisher.send(Resume(from_ns=now_ns + 10**12, sent=100, scheduled=100))
    publisher.send(EnterStage(index=0, at_ns=now_ns - 10**9))
    publisher.settle(0)
    assert (publisher.count("sent_total", 0), publisher.count("skipped_total", 0)) == (0, 900)
    assert publisher.stop() == 0


def test_a_burst_is_due_at_once_and_topics_are_a_frame_of_their_own(
    agent: AgentMaker, context: Context
) -> None:
    pace = OpenPace(period_ns=10**5, spread=0, jitter=0, phase="aligned", late="send", burst=100)
    topical = publication(topic="a/{n}/{0..2}", payload=FixedPayload(bytes=40), pace=pace)
    played = plan(feed(topical, first=5), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    publisher.begin()
    sub.recv_multipart()
    messages = [sub.recv_multipart() for _ in range(1000)]
    assert {message[0] for message in messages} == {b"a/5/0", b"a/5/1", b"a/5/2"}
    assert all(len(message) == 2 and len(message[1]) == 40 for message in messages)
    by_due: dict[int, int] = {}
    for message in messages:
        intended_ns = STAMP.unpack_from(message[1])[3]
        by_due[intended_ns] = by_due.get(intended_ns, 0) + 1
    whole = [*by_due.values()][1:-1]
    assert whole and set(whole) == {100}
    sub.close()


def test_as_fast_as_it_can_it_still_listens(agent: AgentMaker, context: Context) -> None:
    fast = publication(pace=ClosedPace(), payload=FixedPayload(bytes=8))
    played = plan(feed(fast), actions=(LONG,))
    publisher, sub = agent(played), listener(context, played)
    publisher.begin()
    sub.recv_multipart()
    publisher.until(lambda snapshot: snapshot.sequence > 3)
    publisher.send(Close())
    publisher.settle(0)
    assert publisher.count("skipped_total", 0) == 0
    assert publisher.count("sent_total", 0) > 0
    assert publisher.stop() == 0
    sub.close()


def test_what_a_close_cuts_off_is_skipped_and_it_ends_with_its_stdin(agent: AgentMaker) -> None:
    paused = OpenPace(period_ns=10**12, spread=0, jitter=0, phase="spread", late="send")
    publisher = agent(plan(feed(publication(pace=paused)), actions=(LONG,)))
    publisher.begin()
    publisher.until(lambda snapshot: snapshot.stage == 0 and not snapshot.settled)
    publisher.send(Close())
    publisher.settle(0)
    assert publisher.count("sent_total", 0) + publisher.count("skipped_total", 0) == 1
    assert publisher.process.stdin is not None
    publisher.process.stdin.close()
    assert publisher.process.wait(EXIT_TIMEOUT_S) == 0


def test_what_is_due_as_a_stage_ends_without_a_processor_is_sent_late(agent: AgentMaker) -> None:
    few = OpenPace(period_ns=10**8, spread=0, jitter=0, phase="aligned", late="send")
    second = PublishAction(duration_ns=10**9)
    publisher = agent(plan(feed(publication(pace=few)), actions=(second,)))
    publisher.begin()
    publisher.until(lambda snapshot: snapshot.stage == 0)
    publisher.process.send_signal(signal.SIGSTOP)
    time.sleep(1.1)
    publisher.process.send_signal(signal.SIGCONT)
    publisher.settle(0)
    assert (publisher.count("sent_total", 0), publisher.count("skipped_total", 0)) == (10, 0)


def test_a_wrong_password_gets_nothing(agent: AgentMaker, context: Context) -> None:
    plain = Zmtp(player="pyzmq", high_water_mark=10, security="plain")
    guarded = feed(username="user-{n}", password="secret", protocol=plain)
    played = plan(guarded, actions=(LONG,))
    publisher = agent(played)
    right = {"PLAIN_USERNAME": "user-0", "PLAIN_PASSWORD": "secret"}
    wrong = listener(context, played, **{**right, "PLAIN_PASSWORD": "guessed"})
    refused = wrong.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    sub = listener(context, played, **right)
    publisher.begin()
    sub.recv_multipart()
    assert refused.poll(EXIT_TIMEOUT_S * 1000)
    assert not wrong.poll(0)
    wrong.disable_monitor()
    for each in (refused, wrong, sub):
        each.close()


@pytest.mark.parametrize("is_taken", [True, False], ids=["port that is taken", "invalid plan"])
def test_what_cannot_be_played_is_reported_in_words(agent: AgentMaker, is_taken: bool) -> None:
    played = plan(feed())
    with socket.socket() as other:
        if is_taken:
            other.bind((played.targets[0].host, played.targets[0].port))
            other.listen()
        publisher = agent(played if is_taken else played.model_copy(update={"seed": -1}))
        said = publisher.read()
    assert isinstance(said, Failure)
    named = f"tcp://{played.targets[0]}" if is_taken else "the plan"
    assert named in said.message
    assert ("publisher.port" in said.hint) == is_taken
    assert publisher.process.wait(EXIT_TIMEOUT_S) == 1

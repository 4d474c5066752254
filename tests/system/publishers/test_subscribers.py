"""Subscribers of pyzmq as a process, before a real PUB socket; a run uses them for CURVE."""

from __future__ import annotations

import zmq

from pubstorm.contract.commands import ApplyChange
from pubstorm.contract.plan import (
    AddClients,
    DisconnectAction,
    Plan,
    PlannedChange,
    PlannedStage,
    PublishAction,
    RemoveClients,
)
from pubstorm.contract.protocol import FixedPayload, PlannedSubscription, Zmtp
from pubstorm.fleet.agents.frame import STAMP
from pubstorm.fleet.programs import CurveKeys
from tests.system.publishers.conftest import (
    CONNECT,
    EXIT_TIMEOUT_S,
    AgentMaker,
    Context,
    feed,
    plan,
    population,
    publication,
    subscriber,
)

SUBSCRIBER = 1
LONG = PublishAction(duration_ns=10**12)
ACTIONS = (CONNECT, LONG, DisconnectAction(rate_per_s=None))


def server(context: Context, plan: Plan) -> zmq.Socket[bytes]:
    """A socket like PUB that also receives each subscription."""
    made = context.socket(zmq.XPUB)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.XPUB_VERBOSE, 1)
    made.setsockopt(zmq.RCVTIMEO, EXIT_TIMEOUT_S * 1000)
    made.bind(f"tcp://{plan.targets[0]}")
    return made


def stamped(place: int) -> bytes:
    return STAMP.pack(77, place, 0, 1, 2)


def test_each_client_has_what_is_sent_and_knows_what_is_missing(
    agent: AgentMaker, context: Context
) -> None:
    played = plan(feed(), subscriber(clients=3), actions=ACTIONS)
    pub = server(context, played)
    clients = agent(played, SUBSCRIBER)
    assert clients.hello().clients == (0, 3)
    clients.enter(0)
    clients.settle(0)
    assert [pub.recv() for _ in range(3)] == [b"\x01"] * 3
    clients.enter(1)
    for place in (0, 1, 5, 4, 4):
        pub.send(stamped(place))
    pub.send(b"of no one")

    def flow() -> tuple[int, ...]:
        counters = clients.sums.flows()[0, SUBSCRIBER].counters
        names = ("received", "missing", "reordered", "duplicate")
        return tuple(getattr(counters, f"{name}_total") for name in names)

    clients.until(lambda _: clients.count("foreign_total", SUBSCRIBER) == 3)
    assert flow() == (12, 6, 3, 3)
    assert clients.sums.flows()[0, SUBSCRIBER].latency_intended.count == 15
    clients.enter(2)
    assert clients.settle(2).populations[SUBSCRIBER].gauges.connected == 0
    assert clients.count("connected_total", SUBSCRIBER) == 3
    assert clients.stop() == 0
    pub.close()


def test_payloads_without_room_for_a_stamp_are_counted(agent: AgentMaker, context: Context) -> None:
    played = plan(
        feed(publication(topic="a/{0..1}", payload=FixedPayload(bytes=8))),
        subscriber(),
        actions=ACTIONS,
    )
    pub = server(context, played)
    clients = agent(played, SUBSCRIBER)
    clients.begin()
    pub.recv()
    for topic in (b"a/0", b"a/1", b"a/2"):
        pub.send_multipart([topic, b"short"])
    clients.until(lambda _: clients.count("foreign_total", SUBSCRIBER) == 1)
    assert clients.sums.flows()[0, SUBSCRIBER].counters.received_total == 2
    pub.close()


def test_a_client_has_more_prefixes_than_a_high_water_mark_has_places(
    agent: AgentMaker, context: Context
) -> None:
    prefixes = (PlannedSubscription(filter="{1..3000}/", qos=0),)
    played = plan(feed(), population("subscriber", subscriptions=prefixes), actions=ACTIONS)
    pub = server(context, played)
    clients = agent(played, SUBSCRIBER)
    clients.begin()
    assert len({pub.recv() for _ in range(3000)}) == 3000
    pub.close()


def test_connect_stages_of_equal_size_are_distinguished(
    agent: AgentMaker, context: Context
) -> None:
    both = (subscriber(clients=2), subscriber(clients=2))
    played = plan(feed(), *both, actions=(CONNECT, CONNECT))
    one = CONNECT.model_copy(update={"clients": (1,)})
    stages = (
        PlannedStage(name=name, action=one, populations=(index,))
        for index, name in ((1, "first"), (2, "second"))
    )
    played = played.model_copy(update={"stages": tuple(stages)})
    pub = server(context, played)
    clients = agent(played, 2)
    clients.begin()
    assert clients.settle(0).populations[2].gauges.ready == 0
    clients.enter(1)
    assert clients.settle(1).populations[2].gauges.ready == 1
    pub.close()


def test_clients_join_and_leave_in_a_stage_and_expect_what_they_receive(
    agent: AgentMaker, context: Context
) -> None:
    """A change that is asked for expects what was received before it in the stage, too."""
    some = CONNECT.model_copy(update={"clients": (2,)})
    join = AddClients(clients=3, over_ns=10**8)
    planned = PlannedChange(name="+3 subscriber", after_ns=0, population=SUBSCRIBER, action=join)
    changing = PublishAction(duration_ns=10**12, changes=(planned,))
    leave = ApplyChange(at_ns=0, population=SUBSCRIBER, action=RemoveClients(clients=4, over_ns=0))
    played = plan(feed(), subscriber(clients=5), actions=(some, LONG, changing))
    stages = [stage.model_copy(update={"populations": (SUBSCRIBER,)}) for stage in played.stages]
    played = played.model_copy(update={"stages": tuple(stages)})
    pub = server(context, played)
    clients = agent(played, SUBSCRIBER)
    clients.begin()
    assert [pub.recv() for _ in range(2)] == [b"\x01"] * 2

    def counted() -> tuple[int, int]:
        flow = clients.sums.flows().get((0, SUBSCRIBER))
        return (flow.counters.received_total, flow.counters.expected_total) if flow else (0, 0)

    clients.enter(1)
    clients.until(lambda snapshot: snapshot.stage == 1)
    pub.send(stamped(0))
    clients.until(lambda _: counted() == (2, 0))
    clients.send(leave.model_copy(update={"action": RemoveClients(clients=1, over_ns=0)}))
    clients.until(lambda snapshot: snapshot.populations[SUBSCRIBER].gauges.ready == 1)
    assert counted() == (2, 2)
    clients.enter(2)
    assert [pub.recv() for _ in range(3)] == [b"\x01"] * 3
    clients.until(lambda snapshot: snapshot.populations[SUBSCRIBER].gauges.ready == 4)
    pub.send(stamped(1))
    clients.until(lambda _: counted() == (6, 6))
    clients.send(leave)
    clients.until(lambda snapshot: snapshot.populations[SUBSCRIBER].gauges.ready == 0)
    assert pub.recv() == b"\x00"
    assert clients.stop() == 0
    pub.close()


def test_curve_lets_in_those_with_keys_of_the_run(agent: AgentMaker) -> None:
    curve = Zmtp(player="pyzmq", high_water_mark=10, security="curve")
    played = plan(feed(protocol=curve), subscriber(protocol=curve, reconnect=None), actions=ACTIONS)
    keys = CurveKeys(played)
    guests, others = (each.environment(SUBSCRIBER) for each in (keys, CurveKeys(played)))
    strangers = {name: guests[name] if "SERVER" in name else others[name] for name in guests}
    agent(played, 0, **keys.environment(0)).hello()
    for variables, is_let_in in ((guests, 1), (strangers, 0)):
        clients = agent(played, SUBSCRIBER, **variables)
        clients.begin()
        assert clients.settle(0).populations[SUBSCRIBER].gauges.ready == is_let_in

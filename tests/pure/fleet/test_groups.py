"""Consumer groups with members in several populations: who expects a message, and the counts of an
agent that receives it."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest

from pubstorm.contract.commands import ApplyChange
from pubstorm.contract.plan import Plan, RemoveClients
from pubstorm.fleet.agents.frame import STAMP, AgentShard, AgentTally, Pipes, ShardArguments
from pubstorm.fleet.agents.receivers import Receiver, Receivers, lateness_of
from pubstorm.fleet.kafka_agent.groups import Groups, client_id, subscribed
from tests.pure.scenario.bases import plan_of

SCENARIO = """\
target: {mqtt: mqtt://m, log: kafka://one, other: kafka://two}
populations:
  sensor: {clients: 1, at: mqtt, publications: [{topic: t, rate: 1/s, size: 100B}]}
  worker: {clients: 2, at: log, subscriptions: [{topic: a, group: g}, {topic: b, group: g}]}
  helper:
    clients: 3
    first: 5
    at: log
    subscriptions: [{topic: b, group: g}, {topic: c, group: g}]
  away: {clients: 1, at: other, subscriptions: [{topic: b, group: g}]}
  own: {clients: 2, at: log, subscriptions: [{topic: b, group: solo}]}
  plain: {clients: 1, at: log, subscriptions: [b], settings: {client.id: "c-{n}"}}
flows:
  - {from: t, of: sensor, to: b, at: helper}
stages: [connect, {publish: 1s}]
"""
CARRIED = """\
target: {mqtt: mqtt://m, log: kafka://one}
populations:
  sensor:
    clients: 2
    first: 5
    at: mqtt
    publications:
      - {topic: other, rate: 1/s, size: 100B}
      - {topic: "t/{n}/{red|green}", rate: 1/s, size: 100B}
  reader: {clients: 1, at: log, subscriptions: [y, "x-{n}-red", "x-{n}-green"]}
flows:
  - {from: "t/{n}/{red|green}", of: sensor, to: "x-{n}-{red|green}", at: reader}
stages: [connect, {publish: 1s}]
"""
SENSOR, WORKER, HELPER, AWAY, OWN, PLAIN = range(6)
LOG, OTHER = 1, 2


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(SCENARIO)


@pytest.mark.parametrize(
    ("population", "target", "topic", "expecting"),
    [
        (WORKER, LOG, "a", WORKER),
        (WORKER, LOG, "b", WORKER),
        (HELPER, LOG, "b", WORKER),
        (HELPER, LOG, "c", HELPER),
        (AWAY, OTHER, "b", AWAY),
        (OWN, LOG, "b", OWN),
    ],
)
def test_the_first_population_of_a_group_expects_its_messages(
    plan: Plan, population: int, target: int, topic: str, expecting: int
) -> None:
    assert Groups(plan, population).expecting(target, topic) == expecting


def test_a_group_is_shared_with_populations_at_its_target(plan: Plan) -> None:
    shared = [Groups(plan, at).is_shared(LOG) for at in (WORKER, HELPER, OWN)]
    assert shared == [True, True, False]
    assert not Groups(plan, AWAY).is_shared(OTHER)


def test_members_of_a_group_have_the_names_of_their_clients(plan: Plan) -> None:
    members = Groups(plan, HELPER).members("g", LOG)
    names = ["worker-0", "worker-1", "helper-5", "helper-6", "helper-7"]
    assert members == Counter(names)
    assert Groups(plan, OWN).members("solo", LOG) == Counter(["own-0", "own-1"])
    assert client_id(plan.populations[PLAIN], 0) == "c-0"
    assert [*subscribed(plan.populations[OWN], 1)] == [("solo", "b")]
    assert [*subscribed(plan.populations[PLAIN], 0)] == [(None, "b")]


class Members(Receivers[Receiver]):
    """Members of the group that receive what a test hands them."""

    library = ""
    group: ClassVar[Groups]

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        pass

    def end(self) -> None:
        pass

    def _start(self, number: int) -> None:
        pass

    def _stop(self, number: int) -> None:
        pass

    def _read_some(self) -> bool:
        return False

    def _expecting(self, client: Receiver, name: str) -> int:
        return self.group.expecting(client.target, name)

    def take(self, place: int, run_tag: int, name: str = "b", key: int = 0) -> None:
        """Receives the message at a place of a stream."""
        stamp = STAMP.pack(run_tag, place, key, 0, 0)
        self._note(Receiver(LOG, 0), (name, stamp), 1, {})


def test_what_a_later_population_receives_is_not_expected_of_the_first(plan: Plan) -> None:
    Members.group = Groups(plan, HELPER)
    part = AgentShard(plan, ShardArguments(1, 2, HELPER, 0, 1))
    tally = AgentTally(part)
    members = Members(part, tally)
    members.take(0, plan.run_tag)
    members.take(1, plan.run_tag)
    assert counts(tally) == {(SENSOR, WORKER): (-2, 0), (SENSOR, HELPER): (2, 2)}
    # The first population is excluded from loss from now on: it expects what it receives.
    members.take(2, plan.run_tag)
    change = ApplyChange(at_ns=1, population=WORKER, action=RemoveClients(clients=1, over_ns=0))
    members.change(change)
    members.take(3, plan.run_tag)
    assert counts(tally) == {(SENSOR, WORKER): (2, 0), (SENSOR, HELPER): (2, 2)}
    tally.begin_stage()
    members.change(change.model_copy(update={"population": HELPER}))
    members.take(4, plan.run_tag)
    assert counts(tally) == {(SENSOR, HELPER): (1, 1)}


def test_a_population_that_is_excluded_expects_what_it_has_received_in_the_stage(
    plan: Plan,
) -> None:
    Members.group = Groups(plan, OWN)
    part = AgentShard(plan, ShardArguments(1, 2, OWN, 0, 1))
    tally = AgentTally(part)
    members = Members(part, tally)
    members.take(0, plan.run_tag)
    assert counts(tally) == {(SENSOR, OWN): (0, 1)}
    members.take(1, plan.run_tag)
    leave = RemoveClients(clients=1, over_ns=0)
    members.change(ApplyChange(at_ns=1, population=OWN, action=leave))
    assert counts(tally) == {(SENSOR, OWN): (2, 1)}


def test_a_message_of_a_flow_counts_under_the_name_that_the_flow_gives_it() -> None:
    plan = plan_of(CARRIED)
    Members.group = Groups(plan, 1)
    tally = AgentTally(part := AgentShard(plan, ShardArguments(1, 2, 1, 0, 1)))
    members = Members(part, tally)
    green_of_6 = 1 << 48 | 1 << 32 | 1
    for place, (name, key) in enumerate(
        [
            ("x-6-green", green_of_6),
            ("", green_of_6),
            ("x-6-red", green_of_6),
            ("x-5-green", green_of_6),
            ("x-6-green", green_of_6 + (1 << 32)),
            ("y", green_of_6),
            ("x-6-green", 1),
        ]
    ):
        members.take(place, plan.run_tag, name, key)
    counted = tally.now.counters
    assert (counted["unstamped_total"], counted["foreign_total"]) == (4, 1)
    assert counts(tally) == {(0, 1): (0, 2)}


@pytest.mark.parametrize(
    ("sent", "lateness_ns"),
    [(5_000, 0), (4_000, -1_000), (9_000, 4_000), (2 << 62 | 47 << 56 | 9_000, 4_000)],
)
def test_a_wait_of_the_publisher_is_no_part_of_the_instant_of_its_send(
    sent: int, lateness_ns: int
) -> None:
    assert lateness_of(sent, 5_000) == lateness_ns
    later_ns = 7 << 56
    assert lateness_of((sent + later_ns) % (1 << 64), 5_000 + later_ns) == lateness_ns


def counts(tally: AgentTally) -> dict[tuple[int, int], tuple[int, int]]:
    """Expected and received deliveries of each flow since the last call."""
    flows = tally.snapshot(1, settled=True).flows
    return {
        (flow.source, flow.to): (flow.counters.expected_total, flow.counters.received_total)
        for flow in flows
    }

"""Consumers of Kafka without a broker: settings that librdkafka refuses, and a member that has to
end while its group forms."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pubstorm.contract.reasons import Reason
from pubstorm.fleet.agents.frame import AgentError, AgentShard, AgentTally, ShardArguments
from tests.pure.scenario.bases import plan_of

consumers = pytest.importorskip("pubstorm.fleet.kafka_agent.consumers")

SCENARIO = """\
target: kafka://127.0.0.1:1
populations:
  reader: {{clients: 1, subscriptions: [t], settings: {{{settings}}}}}
stages: [connect]
"""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("fetch.wait.max: 1", "fetch.wait.max"),
        ("isolation.level: dirty", "dirty"),
        ("session.timeout.ms: 0", "allowed range"),
        ("security.protocol: ssl, ssl.ca.location: /none/ca.crt", "ssl.ca.location"),
        ("stats_cb: print", "stats_cb"),
    ],
)
def test_a_setting_that_librdkafka_refuses_ends_the_agent(settings: str, words: str) -> None:
    plan = plan_of(SCENARIO.format(settings=settings))
    tally = AgentTally(part := AgentShard(plan, ShardArguments(0, 1, 0, 0, 1)))
    played = consumers.Consumers(part, tally)
    played.enter(plan.stages[0], 0)
    with pytest.raises(AgentError) as refused:
        played.turn(1)
    assert words in refused.value.message
    assert "\n" not in refused.value.message


class Joining:
    """A consumer of librdkafka whose group forms after some polls. The client has to end before."""

    def __init__(self) -> None:
        self.polls = 0
        self.closed_after = 0
        self.events = list[Any]()

    def play(self, group: str | None, *topics: str) -> None:
        self.client = consumers.Consumer(
            target=0,
            began_ns=0,
            settings={},
            topics=topics,
            group=group,
            mark="",
            members=Counter(),
            timeout_s=1.0,
            begins=threading.Event(),
            is_first=False,
            report=lambda _, event: self.events.append(event),
            is_member=True,
        )
        self.client.begins.set()
        self.client.play(self)

    def assign(self, _partitions: object) -> None:
        pass

    def subscribe(self, _topics: object, **calls: Callable[..., None]) -> None:
        self.calls = calls

    def poll(self, _timeout: float) -> None:
        self.polls += 1
        self.client.ends.set()
        if self.polls == 3 and self.client.group:
            self.calls["on_assign"](self, [])

    def close(self) -> None:
        self.closed_after = self.polls


@pytest.mark.parametrize(("group", "polls"), [("g", 3), (None, 1)])
def test_a_member_that_has_to_end_while_it_joins_leaves_afterwards(
    group: str | None, polls: int
) -> None:
    joining = Joining()
    joining.play(group)
    assert joining.closed_after == polls


@pytest.mark.parametrize("group", ["g", None])
def test_a_broker_that_restarts_while_a_consumer_begins_is_asked_again(group: str | None) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    joining, answers = Joining(), iter([True, True, False])

    def answer(*_: object, **__: object) -> tuple[int, int]:
        if next(answers):
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._DESTROY))
        return 0, 5

    known = SimpleNamespace(error=None, partitions={0: None})
    own = {
        "list_topics": lambda topic, **_: SimpleNamespace(topics={topic: known}),
        "get_watermark_offsets": answer,
    }
    vars(joining).update(own)
    joining.play(group, "t")
    assert joining.events == [consumers.Connected()]


def test_what_a_broker_refused_is_no_timeout_if_it_is_late_afterwards() -> None:
    kafka = pytest.importorskip("confluent_kafka")
    joining = Joining()
    refusal = kafka.KafkaError(kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    refused = SimpleNamespace(error=refusal, partitions={})

    def answer(topic: str, **_: object) -> SimpleNamespace:
        if joining.polls:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={topic: refused})

    def poll(_timeout: float) -> None:
        joining.polls += 1
        if joining.polls == 2:
            joining.client.ends.set()

    vars(joining).update({"list_topics": answer, "poll": poll})
    joining.play(None, "t")
    assert [event.reason for event in joining.events] == [Reason.NOT_AUTHORIZED]

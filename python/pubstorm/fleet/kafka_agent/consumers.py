"""Consumers of librdkafka, one for each client. A thread of its own reads each consumer and notes
the instant at which messages come; the agent's thread counts them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient

from pubstorm.contract.offered_load import target_of, template_of
from pubstorm.contract.reasons import Reason
from pubstorm.fleet.agents.frame import STDIN, AgentError, AgentShard, AgentTally, Pipes
from pubstorm.fleet.agents.receivers import Latencies, Places, Receiver, Receivers
from pubstorm.fleet.kafka_agent.groups import Groups, client_id, subscribed
from pubstorm.output import name_of
from pubstorm.quantities import SECOND_NS

LIBRARY = f"confluent-kafka {kafka.version()} (librdkafka {kafka.libversion()[0]})"
POLL_S = 0.1
"""Longest wait for a message until a thread looks whether its consumer has to end."""
READ_MAX = 500
"""Messages that are taken from a consumer at once."""
CLOSE_S = 10.0
"""Longest wait for the end of a consumer: it leaves its group."""
REASONS = {
    kafka.KafkaError._RESOLVE: Reason.CONNECT_UNREACHABLE,
    kafka.KafkaError._TRANSPORT: Reason.CONNECT_CLOSED,
    kafka.KafkaError._DESTROY: Reason.CONNECT_CLOSED,
    kafka.KafkaError._ALL_BROKERS_DOWN: Reason.CONNECT_TIMEOUT,
    kafka.KafkaError._TIMED_OUT: Reason.CONNECT_TIMEOUT,
    kafka.KafkaError._AUTHENTICATION: Reason.BAD_CREDENTIALS,
    kafka.KafkaError._SSL: Reason.TLS_FAILED,
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    kafka.KafkaError.GROUP_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    kafka.KafkaError.UNKNOWN_TOPIC_OR_PART: Reason.SUBSCRIBE_REFUSED,
}
"""Reasons of failures by the code of librdkafka; all others are errors of the protocol."""
FINAL = frozenset({kafka.KafkaError._AUTHENTICATION, kafka.KafkaError._SSL})
"""Codes of failures that another attempt meets again."""
ACTIVE = frozenset(
    {
        kafka.KafkaError.UNKNOWN_MEMBER_ID,
        kafka.KafkaError.ILLEGAL_GENERATION,
        kafka.KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""Codes of refused offsets: the group has members."""
NO_PORT = "Connection refused"
"""Words of librdkafka where nothing listens: the code is that of all failures of a connection."""


@dataclass(frozen=True)
class Connected:
    """A consumer knows where it begins in each of its partitions, or has a broker again."""


@dataclass(frozen=True)
class Failed:
    """A consumer could not begin."""

    reason: Reason
    words: str
    """Words of librdkafka, without times."""


@dataclass(frozen=True)
class Disconnected:
    """A consumer has no connection to any broker any more."""


@dataclass(frozen=True)
class Arrived:
    """Messages that came at an instant."""

    messages: Sequence[tuple[str, bytes]]
    now_ns: int


Event = Connected | Failed | Disconnected | Arrived
Asked = TypeVar("Asked")
"""Answer of a broker."""


@dataclass(kw_only=True)
class Consumer(Receiver):
    """A client with its thread."""

    settings: Mapping[str, str | bool]
    topics: Sequence[str]
    group: str | None
    mark: str
    """Metadata of offsets that this run has committed."""
    members: Counter[str]
    """Names of the members of its group, with the number of each."""
    timeout_s: float
    begins: threading.Event
    """Set once the first member here has tried to begin the group anew."""
    is_first: bool
    """True if no other client here is a member."""
    report: Reporter
    ends: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    cause: kafka.KafkaError | None = None
    """Why there is no connection to a broker; an error that stays wins over others."""
    is_down: bool = False
    """True from the loss of all connections until a broker answers."""
    is_member: bool = False
    """True once its group has given it partitions, or none."""
    joins: bool = False
    """True while its group forms: it waits for all members."""

    def made(self) -> kafka.Consumer:
        """Makes the consumer of librdkafka. Raises AgentError for settings that it refuses."""
        try:
            return kafka.Consumer({**self.settings, "error_cb": self._note_error})
        except (kafka.KafkaException, TypeError) as error:
            cause = error.args[0]
            words = cause.str() if isinstance(cause, kafka.KafkaError) else str(cause)
            text = f"librdkafka refuses the settings of a consumer: {name_of(words.strip())}"
            raise AgentError(text, "look at settings of the population") from error

    def play(self, consumer: kafka.Consumer) -> None:
        """Reads until the client has to end; a failure is an event."""
        try:
            if self.group is None:
                consumer.assign(self._ends_of(consumer))
                self.report(self, Connected())
            else:
                self._join(consumer)
            while not self.ends.is_set():
                self._read(consumer)
            # librdkafka cannot leave while it joins: the group would wait for session.timeout.ms.
            deadline_s = time.monotonic() + CLOSE_S
            while self.joins and time.monotonic() < deadline_s:
                self._read(consumer)
        except kafka.KafkaException as error:
            self.report(self, failure(self.cause or error.args[0]))
        except StrangersError as error:
            self.report(self, Failed(Reason.SUBSCRIBE_REFUSED, str(error)))
        finally:
            self.begins.set()
            consumer.close()

    def _ends_of(self, consumer: kafka.Consumer) -> list[kafka.TopicPartition]:
        """The partitions of all topics, each with the offset after its last message. A topic that
        does not exist is created, if the broker creates topics."""
        partitions = (
            kafka.TopicPartition(topic, partition)
            for topic in self.topics
            for partition in self._partitions(consumer, topic)
        )
        return [self._end_of(consumer, partition) for partition in partitions]

    def _end_of(
        self, consumer: kafka.Consumer, partition: kafka.TopicPartition
    ) -> kafka.TopicPartition:
        _, end = self._asked(
            lambda: consumer.get_watermark_offsets(partition, timeout=self.timeout_s)
        )
        return kafka.TopicPartition(partition.topic, partition.partition, end, self.mark)

    def _asked(self, ask: Callable[[], Asked]) -> Asked:
        """Returns the answer to a question, which is asked again as long as the beginning may last:
        the broker may restart, and a partition of a new topic may have no leader."""
        deadline_s = self._deadline_s()
        while True:
            try:
                return ask()
            except kafka.KafkaException:
                if self._gives_up(deadline_s):
                    raise
            self.ends.wait(POLL_S)

    def _deadline_s(self) -> float:
        """The instant up to which a step of the beginning may last."""
        return time.monotonic() + self.timeout_s

    def _gives_up(self, deadline_s: float) -> bool:
        """Returns True if a step that failed is not tried again."""
        is_final = self.cause is not None and self.cause.code() in FINAL
        return is_final or time.monotonic() > deadline_s or self.ends.is_set()

    def _partitions(self, consumer: kafka.Consumer, topic: str) -> list[int]:
        """Asks for the partitions of a topic. Raises KafkaException with the last answer of a
        broker, if there was one."""
        deadline_s, refusal = self._deadline_s(), None
        while True:
            try:
                known = consumer.list_topics(topic, timeout=POLL_S).topics[topic]
                if known.error is None and known.partitions:
                    return sorted(known.partitions)
                unknown = kafka.KafkaError(kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)
                error = refusal = known.error or unknown
            except kafka.KafkaException as failed:
                error = failed.args[0]
            # Only a poll lets librdkafka say why: a password, a certificate.
            consumer.poll(POLL_S)
            if self._gives_up(deadline_s):
                raise kafka.KafkaException(refusal or error)

    def _join(self, consumer: kafka.Consumer) -> None:
        """Joins the group. One without members begins at the ends of its topics: nothing is
        expected of what came before. Kafka refuses such offsets while the group has members, which
        may be in other agents."""
        ends = self._ends_of(consumer)
        if self.is_first:
            self._commits(consumer, ends)
            self.begins.set()
        else:
            self.begins.wait(self.timeout_s)
        self.joins = True
        consumer.subscribe(list(self.topics), on_assign=self._begin, on_revoke=self._give_back)

    def _give_back(self, _consumer: kafka.Consumer, _parts: Sequence[kafka.TopicPartition]) -> None:
        """Gives its partitions back, since its group forms anew."""
        self.joins = True

    def _begin(self, consumer: kafka.Consumer, partitions: Sequence[kafka.TopicPartition]) -> None:
        """Takes partitions that the group has given the client, which continue at their committed
        offsets. A partition without an offset of this run begins at its end."""
        if not self.is_member:
            self._check_members()
            self.is_member = True
        known = list[kafka.TopicPartition]()
        if partitions:
            ask = partial(consumer.committed, list(partitions), timeout=self.timeout_s)
            known = self._asked(ask)
        new = [self._end_of(consumer, each) for each in known if each.metadata != self.mark]
        if new and not self._commits(consumer, new):
            return  # The group forms anew already.
        self.joins = False
        self.report(self, Connected())

    def _commits(self, consumer: kafka.Consumer, offsets: Sequence[kafka.TopicPartition]) -> bool:
        """Commits offsets. Returns False if the group refuses them for its members."""

        def commit() -> bool:
            try:
                done = consumer.commit(offsets=list(offsets), asynchronous=False)
                if failed := [each.error for each in done or () if each.error is not None]:
                    raise kafka.KafkaException(failed[0])
            except kafka.KafkaException as refused:
                if refused.args[0].code() not in ACTIVE:
                    raise
                return False
            return True

        return self._asked(commit)

    def _check_members(self) -> None:
        """Raises StrangersError if the group has members that are not of this run: they would take
        its messages. A broker that describes no groups hides them."""
        group = self.group or ""
        admin = AdminClient({**self.settings, "log_level": "0"})
        with contextlib.suppress(kafka.KafkaException):
            asked = admin.describe_consumer_groups([group], request_timeout=self.timeout_s)
            found = Counter(member.client_id for member in asked[group].result().members)
            if strangers := (found - self.members).total():
                noun, verb = ("members", "are") if strangers > 1 else ("member", "is")
                text = f"the group {group} has {strangers} {noun} that {verb} not of this run"
                raise StrangersError(text)

    def _read(self, consumer: kafka.Consumer) -> None:
        first = consumer.poll(POLL_S)
        if first is None:
            self._look_for_a_broker(consumer)
            return
        self._note(consumer, [first], time.monotonic_ns())
        # Some may have come since the first one: their instant is not before they were taken.
        rest = consumer.consume(READ_MAX, timeout=0)
        self._note(consumer, rest, time.monotonic_ns())

    def _look_for_a_broker(self, consumer: kafka.Consumer) -> None:
        """After the loss of all brokers: librdkafka does not say when one has returned."""
        if not self.is_down:
            return
        try:
            consumer.list_topics(self.topics[0], timeout=POLL_S)
        except kafka.KafkaException:
            return
        self.is_down = False
        self.report(self, Connected())

    def _note(
        self, consumer: kafka.Consumer, messages: Sequence[kafka.Message], now_ns: int
    ) -> None:
        """Hands messages on, and stores the offsets after them, which librdkafka commits."""
        found = [message for message in messages if message.error() is None]
        if not found:
            return
        self.report(self, Arrived([(m.topic() or "", m.value() or b"") for m in found], now_ns))
        if self.group is not None:
            ends = {(m.topic() or "", m.partition() or 0): (m.offset() or 0) + 1 for m in found}
            parts = [kafka.TopicPartition(*part, end, self.mark) for part, end in ends.items()]
            # The group may have taken a partition back: its next member receives it again.
            with contextlib.suppress(kafka.KafkaException):
                consumer.store_offsets(offsets=parts)

    def _note_error(self, error: kafka.KafkaError) -> None:
        if error.code() == kafka.KafkaError._ALL_BROKERS_DOWN:
            self.is_down = True
            self.report(self, Disconnected())
        elif self.cause is None or error.code() in FINAL:
            self.cause = error


class StrangersError(Exception):
    """A group has members that are not of this run."""


def failure(error: kafka.KafkaError) -> Failed:
    """The reason of a failure, and its words without the address in front and the times behind."""
    words = re.sub(r"^\S+: | \(after [^)]*\)", "", error.str())
    if error.code() == kafka.KafkaError._TRANSPORT and NO_PORT in words:
        return Failed(Reason.CONNECT_REFUSED, words)
    return Failed(REASONS.get(error.code(), Reason.PROTOCOL_ERROR), words)


class Reporter:
    """Takes events of all threads, and wakes the agent's thread."""

    def __init__(self) -> None:
        self.events = deque[tuple[Consumer, Event]]()
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)

    def __call__(self, consumer: Consumer, event: Event) -> None:
        """Takes an event of a thread."""
        self.events.append((consumer, event))
        os.eventfd_write(self.wake, 1)

    def forget(self) -> None:
        """Takes back that it woke the agent's thread, which looks at all events now."""
        if select.select([self.wake], [], [], 0)[0]:
            os.eventfd_read(self.wake)


class Consumers(Receivers[Consumer]):
    """The clients of an agent."""

    library = LIBRARY

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        super().__init__(part, tally)
        self._reporter = Reporter()
        self._groups = Groups(part.plan, part.place.population)
        self._places: defaultdict[tuple[str, int], dict[int, Places]] = defaultdict(dict)
        """Places of the streams that members of a group here receive at a target."""
        self._begins: dict[str | None, threading.Event] = {}
        self._leaving: list[Consumer] = []

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Waits for a command or an event of a consumer."""
        if not (pipes.has_commands or self._reporter.events):
            select.select([STDIN, self._reporter.wake], [], [], wait_s)

    def end(self) -> None:
        """Ends every consumer."""
        self._disconnect()
        deadline_s = time.monotonic() + CLOSE_S
        for consumer in self._leaving:
            if consumer.thread is not None:
                consumer.thread.join(max(deadline_s - time.monotonic(), 0))

    def _read_some(self) -> bool:
        self._reporter.forget()
        latencies: Latencies = {}
        events, number = self._reporter.events, 0
        while events and number < READ_MAX:
            client, event = events.popleft()
            number += 1
            match event:
                case Arrived():
                    self._count(client, event, latencies)
                case Connected() if not (client.connected or client.ends.is_set()):
                    self._note_ready(client)
                case Disconnected() if client.connected:
                    self._note_lost(client, Reason.CLOSED_BY_BROKER)
                case Failed() if not (client.gave_up or client.ends.is_set()):
                    note = self._note_lost if client.connected else self._note_failed
                    note(client, event.reason, name_of(event.words))
                    client.gave_up = True
        self._note_latencies(latencies)
        return number > 0

    def _count(self, client: Consumer, event: Arrived, latencies: Latencies) -> None:
        """Counts messages. A client that receives is connected again: librdkafka does not say when
        its connection has returned. What a member of a group took as it left, no other gets."""
        if client.ends.is_set() and client.group is None:
            return
        if not (client.connected or client.ends.is_set()):
            self._note_ready(client)
        counters = self._tally.now.counters
        counters["packets_received_total"] += len(event.messages)
        for topic, payload in event.messages:
            counters["bytes_received_total"] += len(payload)
            self._note(client, (topic, payload), event.now_ns, latencies)

    def _note_ready(self, client: Consumer) -> None:
        self._tally.now.counters["subscribed_total"] += len(client.topics)
        self._note_connected(client)

    def _start(self, number: int) -> None:
        population, plan = self._part.population, self._part.plan
        target = target_of(plan, self._part.place.population, number)
        filters = [*subscribed(population, number)]
        group = next((group for group, _ in filters), None)
        is_first = all(client.group != group for client in self._clients.values())
        if is_first:
            self._begins[group] = threading.Event()
        consumer = Consumer(
            target,
            time.monotonic_ns(),
            settings=self._settings(number, target, group),
            topics=[topic for _, topic in filters],
            group=group,
            mark=f"pubstorm-{plan.run_tag:08x}",
            members=Counter() if group is None else self._groups.members(group, target),
            timeout_s=population.connect_timeout_ns / SECOND_NS,
            begins=self._begins[group],
            is_first=is_first,
            report=self._reporter,
        )
        if group is not None:
            consumer.streams = self._places[group, target]
        self._clients[number] = consumer
        self._tally.now.counters["connect_attempts_total"] += 1
        reads = (consumer.made(),)
        consumer.thread = threading.Thread(target=consumer.play, args=reads, daemon=True)
        consumer.thread.start()

    def _stop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._set_connected(client, there=False)
        client.ends.set()
        self._leaving.append(client)

    def _expecting(self, client: Consumer, name: str) -> int:
        return self._own if client.group is None else self._groups.expecting(client.target, name)

    def _follows(self, client: Consumer) -> bool:
        return client.group is None or not self._groups.is_shared(client.target)

    def _settings(self, number: int, target: int, group: str | None) -> Mapping[str, str | bool]:
        part, population = self._part, self._part.population
        where, n = part.plan.targets[target], population.first + number
        logins = {"sasl.username": population.username, "sasl.password": population.password}
        login = {k: template_of(population, v).text(n) for k, v in logins.items() if v is not None}
        plain = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        own = getattr(population.protocol, "settings", {})
        return {
            "allow.auto.create.topics": True,
            "fetch.wait.max.ms": "10",
            "auto.offset.reset": "earliest",
            **(plain if login else {}),
            **{key: template_of(population, text).text(n) for key, text in own.items()},
            **login,
            "client.id": client_id(population, number),
            "bootstrap.servers": f"{where.host_in_url}:{where.port}",
            "group.id": group or f"pubstorm-{part.plan.run_tag:08x}-{population.name}-{n}",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
        }

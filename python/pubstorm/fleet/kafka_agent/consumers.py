"""Consumers of librdkafka, one for each client. A thread of its own reads each consumer and notes
the instant at which messages come; the agent's thread counts them."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import confluent_kafka as kafka

from pubstorm.contract.offered_load import target_of, template_of
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Explanation
from pubstorm.fleet.agents.frame import STDIN, AgentShard, AgentTally, Pipes
from pubstorm.fleet.agents.receivers import Latencies, Places, Receiver, Receivers
from pubstorm.output import name_of
from pubstorm.quantities import SECOND_NS

LIBRARY = f"confluent-kafka {kafka.version()} (librdkafka {kafka.libversion()[0]})"
POLL_S = 0.1
"""Longest wait for a message until a thread looks whether its consumer has to end."""
READ_MAX = 500
"""Messages that are taken from a consumer at once."""
TEXT_MAX = 200
"""Characters of a text that are kept."""
CLOSE_S = 10.0
"""Longest wait for the end of a consumer: it leaves its group."""
REASONS = {
    kafka.KafkaError._RESOLVE: Reason.CONNECT_UNREACHABLE,
    kafka.KafkaError._TRANSPORT: Reason.CONNECT_CLOSED,
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


@dataclass(kw_only=True)
class Consumer(Receiver):
    """A client with its thread."""

    settings: Mapping[str, str | bool]
    topics: Sequence[str]
    group: str | None
    timeout_s: float
    begins: threading.Event
    """Set once the group has its offsets; the first member of the group sets it."""
    is_first: bool
    report: Reporter
    ends: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    cause: kafka.KafkaError | None = None
    """Why there is no connection to a broker; an error that stays wins over others."""
    is_down: bool = False
    """True from the loss of all connections until a broker answers."""

    def play(self) -> None:
        """Reads until the client has to end; a failure is an event."""
        consumer = kafka.Consumer({**self.settings, "error_cb": self._note_error})
        try:
            if self.group is None:
                consumer.assign(self._ends_of(consumer))
                self.report(self, Connected())
            else:
                self._join(consumer)
            while not self.ends.is_set():
                self._read(consumer)
        except kafka.KafkaException as error:
            self.report(self, failure(self.cause or error.args[0]))
        finally:
            self.begins.set()
            consumer.close()

    def _ends_of(self, consumer: kafka.Consumer) -> list[kafka.TopicPartition]:
        """The partitions of all topics, each with the offset after its last message. A topic that
        does not exist is created, if the broker creates topics."""
        found = []
        for topic in self.topics:
            for partition in self._partitions(consumer, topic):
                own = kafka.TopicPartition(topic, partition)
                _, end = consumer.get_watermark_offsets(own, timeout=self.timeout_s)
                found.append(kafka.TopicPartition(topic, partition, end))
        return found

    def _partitions(self, consumer: kafka.Consumer, topic: str) -> list[int]:
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            try:
                known = consumer.list_topics(topic, timeout=POLL_S).topics[topic]
                if known.error is None and known.partitions:
                    return sorted(known.partitions)
                error = known.error or kafka.KafkaError(kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)
            except kafka.KafkaException as failed:
                error = failed.args[0]
            # Only a poll lets librdkafka say why: a password, a certificate.
            consumer.poll(POLL_S)
            is_final = self.cause is not None and self.cause.code() in FINAL
            if is_final or time.monotonic() > deadline_s or self.ends.is_set():
                raise kafka.KafkaException(error)

    def _join(self, consumer: kafka.Consumer) -> None:
        """Joins the group, whose first member here sets its offsets to the ends of the topics. The
        client is ready when it has its first partitions, or none."""
        if self.is_first:
            consumer.commit(offsets=self._ends_of(consumer), asynchronous=False)
            self.begins.set()
        else:
            self.begins.wait(self.timeout_s)
        consumer.subscribe(list(self.topics), on_assign=self._note_assigned)

    def _read(self, consumer: kafka.Consumer) -> None:
        first = consumer.poll(POLL_S)
        if first is None:
            self._look_for_a_broker(consumer)
            return
        self._note([first], time.monotonic_ns())
        # Some may have come since the first one: their instant is not before they were taken.
        rest = consumer.consume(READ_MAX, timeout=0)
        self._note(rest, time.monotonic_ns())

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

    def _note(self, messages: Sequence[kafka.Message], now_ns: int) -> None:
        own = [(m.topic() or "", m.value() or b"") for m in messages if m.error() is None]
        if own:
            self.report(self, Arrived(own, now_ns))

    def _note_assigned(self, _consumer: object, _partitions: object) -> None:
        self.report(self, Connected())

    def _note_error(self, error: kafka.KafkaError) -> None:
        if error.code() == kafka.KafkaError._ALL_BROKERS_DOWN:
            self.is_down = True
            self.report(self, Disconnected())
        elif self.cause is None or error.code() in FINAL:
            self.cause = error


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
        self._places: dict[int, Places] = {}
        """Places of the streams that a group receives."""
        self._begins = threading.Event()
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
                case Connected() if not client.connected:
                    self._note_connected(client)
                case Disconnected() if client.connected:
                    self._tally.now.counters["disconnected_total"] += 1
                    self._tally.now.outcomes[Reason.CLOSED_BY_BROKER] += 1
                    self._set_connected(client, there=False)
                    client.began_ns = time.monotonic_ns()
                case Failed() if not (client.connected or client.gave_up):
                    self._note_failed(client, event)
        self._note_latencies(latencies)
        return number > 0

    def _count(self, client: Consumer, event: Arrived, latencies: Latencies) -> None:
        """Counts messages. A client that receives is connected again: librdkafka does not say when
        its connection has returned."""
        if client.ends.is_set():
            return
        if not client.connected:
            self._note_connected(client)
        counters = self._tally.now.counters
        counters["packets_received_total"] += len(event.messages)
        for topic, payload in event.messages:
            counters["bytes_received_total"] += len(payload)
            self._note(client, (topic, payload), event.now_ns, latencies)

    def _note_connected(self, client: Consumer) -> None:
        if client.ends.is_set():
            return
        now = self._tally.now
        now.counters["connected_total"] += 1
        now.counters["subscribed_total"] += len(client.topics)
        now.connect_time.record(time.monotonic_ns() - client.began_ns)
        self._set_connected(client, there=True)
        self._at(client)["connected_total"] += 1

    def _note_failed(self, client: Consumer, failed: Failed) -> None:
        now = self._tally.now
        now.counters["connect_failed_total"] += 1
        now.outcomes[failed.reason] += 1
        text = name_of(failed.words)[:TEXT_MAX]
        words = Explanation(outcome=failed.reason, property="detail", text=text, count=1)
        now.explanations.add([words])
        client.gave_up = True
        self._at(client)["connect_failed_total"] += 1

    def _start(self, number: int) -> None:
        population, plan = self._part.population, self._part.plan
        target = target_of(plan, self._part.place.population, number)
        filters = [*self._filters(number)]
        groups = {group for group, _ in filters}
        group = next(iter(groups), None)
        is_first = group is not None and not self._clients
        if is_first:
            self._begins = threading.Event()
        consumer = Consumer(
            target,
            time.monotonic_ns(),
            settings=self._settings(number, target, group),
            topics=[topic for _, topic in filters],
            group=group,
            timeout_s=population.connect_timeout_ns / SECOND_NS,
            begins=self._begins,
            is_first=is_first,
            report=self._reporter,
        )
        if group is not None:
            consumer.streams = self._places
        self._clients[number] = consumer
        self._tally.now.counters["connect_attempts_total"] += 1
        consumer.thread = threading.Thread(target=consumer.play, daemon=True)
        consumer.thread.start()

    def _stop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._set_connected(client, there=False)
        client.ends.set()
        self._leaving.append(client)

    def _filters(self, number: int) -> list[tuple[str | None, str]]:
        """The topics of a client, each with its group."""
        population, found = self._part.population, list[tuple[str | None, str]]()
        n = population.first + number
        for subscription in population.subscriptions:
            template = template_of(population, subscription.filter)
            for variant in range(template.variants):
                text = template.text(n, variant)
                group, _, topic = text.removeprefix("$share/").rpartition("/")
                found.append((group or None, topic))
        return found

    def _settings(self, number: int, target: int, group: str | None) -> Mapping[str, str | bool]:
        part, population = self._part, self._part.population
        where, n = part.plan.targets[target], population.first + number
        logins = {"sasl.username": population.username, "sasl.password": population.password}
        login = {k: template_of(population, v).text(n) for k, v in logins.items() if v is not None}
        plain = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        own = getattr(population.protocol, "settings", {})
        return {
            "client.id": f"{population.name}-{n}",
            "allow.auto.create.topics": True,
            "fetch.wait.max.ms": "10",
            "auto.offset.reset": "earliest",
            **(plain if login else {}),
            **{key: template_of(population, text).text(n) for key, text in own.items()},
            **login,
            "bootstrap.servers": f"{where.host_in_url}:{where.port}",
            "group.id": group or f"pubstorm-{part.plan.run_tag:08x}-{population.name}-{n}",
            "enable.auto.commit": group is not None,
        }

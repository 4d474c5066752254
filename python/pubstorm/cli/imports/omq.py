"""Command lines of RabbitMQ's omq (`mqtt`), and the values that PerfTest writes as omq does. An
option without an equal becomes a comment."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    address,
    limit,
    literal,
    mean_rate,
    milliseconds,
    template,
)
from pubstorm.cli.imports.words import GivenCommand, Grammar, Option, parsed
from pubstorm.errors import UsageError
from pubstorm.quantities import MILLISECOND_NS, duration_ns

DISPLAY = "the display and the run directory show what a run does"
AMQP = "only AMQP has it"
QUEUES = "a subscription makes its queue by itself"
LEDGER = "the ledger counts lost, doubled and disordered messages"
STREAMS = "only streams have it"
SLOW = "read_rate: of a population makes slow subscribers"
CONNECTS = "rate: of a connect stage spreads the connections"
FLEET = "fleet: plays a scenario on many hosts"
ENDS = "a stage ends after a time, or with the messages of publishers"
TTL = "expiry: of a publication, with MQTT 5"
SESSIONS = {
    f"mqtt-{role}-{name}": Option("", default, is_flag=default == "true")
    for role in ("publisher", "consumer")
    for name, default in (
        ("version", "5"),
        ("qos", "0"),
        ("clean-session", "true"),
        ("session-expiry-interval", "0s"),
    )
}
OMQ = Grammar(
    "omq",
    frozenset({"omq"}),
    {
        "uri": Option(),
        "publisher-uri": Option(),
        "consumer-uri": Option(),
        "publishers": Option("x", "1"),
        "consumers": Option("y", "1"),
        "publish-to": Option("t", "/queues/omq-%d"),
        "consume-from": Option("T", "/queues/omq-%d"),
        "publisher-id": Option("", "omq-publisher-%d"),
        "consumer-id": Option("", "omq-consumer-%d"),
        "size": Option("s", "12"),
        "rate": Option("r", "-1"),
        "max-in-flight": Option("c", "1"),
        "time": Option("z", "0s"),
        "pmessages": Option("C", "0"),
        "tls-skip-verify": Option(is_flag=True),
        "mqtt-user-property": Option(),
        "mqtt-subscriptions-per-consumer": Option("", "1"),
        **SESSIONS,
        "spread-connections": Option(
            is_flag=True, unless="true", remark="clients take the targets in turn"
        ),
        "cmessages": Option("D", remark=ENDS),
        "message-ttl": Option(remark=TTL),
        "message-priority": Option(remark=AMQP),
        "message-durability": Option("d", is_flag=True, remark=AMQP),
        "binding-key": Option(remark=AMQP),
        "exchange": Option(remark=AMQP),
        "consumer-credits": Option(remark=AMQP),
        "consumer-priority": Option(remark=AMQP),
        "management-uri": Option(remark=QUEUES),
        "queues": Option(remark=QUEUES),
        "queue-args": Option(remark=QUEUES),
        "queue-durability": Option(remark=QUEUES),
        "cleanup-queues": Option(is_flag=True, remark=QUEUES),
        "consumer-latency": Option("L", remark=SLOW),
        "consumer-startup-delay": Option(remark="a persistent session keeps messages"),
        "detect-out-of-order-messages": Option(is_flag=True, remark=LEDGER),
        "detect-gaps-in-messages": Option(is_flag=True, remark=LEDGER),
        "requeue-rate": Option(remark=AMQP),
        "requeue-when-priority": Option(remark=AMQP),
        "discard-rate": Option(remark=AMQP),
        "discard-when-priority": Option(remark=AMQP),
        "stream-offset": Option(remark=STREAMS),
        "stream-filter-values": Option(remark=STREAMS),
        "stream-filter-value-set": Option(remark=STREAMS),
        "parallel-publisher-start": Option(is_flag=True, remark=CONNECTS),
        "parallel-consumer-start": Option(is_flag=True, remark=CONNECTS),
        "publisher-batch-size": Option(remark=CONNECTS),
        "publisher-batch-wait": Option(remark=CONNECTS),
        "consumer-batch-size": Option(remark=CONNECTS),
        "consumer-batch-wait": Option(remark=CONNECTS),
        "expected-instances": Option(remark=FLEET),
        "expected-instances-endpoint": Option(remark=FLEET),
        "metric-tags": Option(remark=DISPLAY),
        "log-level": Option("l", remark=DISPLAY),
        "print-all-metrics": Option(is_flag=True, remark=DISPLAY),
        "use-millis": Option("m", is_flag=True, remark="stamps have nanoseconds"),
    },
    'pubstorm import omq "omq mqtt --publishers 10 --publish-to sensor/%d --rate 1"',
    ("mqtt", "mqtt-mqtt"),
)
URL = re.compile(
    r"(?:(?P<scheme>[a-z0-9]+)://)?(?:(?P<user>[^/:@]*)(?::(?P<password>[^/]*))?@)?"
    r"(?P<host>\[[^]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)?",
    re.DOTALL,
)
SECURE = frozenset({"mqtts", "ssl", "tls", "amqps"})
VERSIONS = {"3": "3.1", "4": "3.1.1", "5": "5"}
QOS = {"0": "0", "1": "1", "2": "2"}
GUEST = "guest"
SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(b|kb|mb)?", re.IGNORECASE)
FACTORS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20}
SMALLEST = 12
"""Bytes of the smallest message of both tools."""
PREFIXES = ("/exchange/amq.topic/", "/topic/")
"""Beginnings of a topic that omq removes."""


def read(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line of omq. Raises UsageError."""
    line = parsed(OMQ, words)
    scenario = ImportedScenario([f"# {line.comment}", *line.remarks(), DEFAULT_USER])
    names = {
        "consumer": ("consumers", "consumer-uri", "consumer-id"),
        "publisher": ("publishers", "publisher-uri", "publisher-id"),
    }
    for role, (count, uri, client_id) in names.items():
        if not line.number(count):
            continue
        uris = [each for text in line.all(uri) or line.all("uri") for each in text.split(",")]
        brokers = [_broker(line, each) for each in uris or ["mqtt://localhost:1883"]]
        keys: Keys = {"clients": line.number(count)}
        keys["client_id"] = template(line.text(client_id), {"%d": "{n}"})
        keys |= dict(_session(line, role))
        keys |= brokers[0][1]
        if line.is_on("tls-skip-verify") and "s://" in brokers[0][0]:
            keys["tls"] = {"verify": False}
        clients = ImportedClients(role, [broker for broker, _ in brokers], keys)
        if line.duration_ms("time"):
            clients.length = milliseconds(line.duration_ms("time"))
        scenario.clients.append(clients)
        if role == "consumer":
            clients.subscriptions = [*_subscriptions(line)]
        elif line.decimal("rate"):
            clients.publications = [_publication(line)]
            limit_messages(clients, line)
    if not scenario.clients:
        raise UsageError(
            "found no publishers and no consumers", "write --publishers or --consumers"
        )
    return scenario


def _session(line: GivenCommand, role: str) -> Iterator[tuple[str, object]]:
    yield "version", line.one_of(f"mqtt-{role}-version", VERSIONS, "3, 4 or 5")
    if not line.is_on(f"mqtt-{role}-clean-session"):
        yield "session", Plain("persistent")
    name = f"mqtt-{role}-session-expiry-interval"
    if expiry_ms := line.duration_ms(name):
        yield "session_expiry", Plain(f"{expiry_ms // 1000}s")


def _subscriptions(line: GivenCommand) -> Iterator[Keys]:
    topic, qos = _topic(line, "consume-from"), line.one_of("mqtt-consumer-qos", QOS, "0, 1 or 2")
    number = line.number("mqtt-subscriptions-per-consumer")
    if number:
        yield {"topic": f"{topic}/{{1..{number}}}" if number > 1 else topic, "qos": int(qos)}


def _publication(line: GivenCommand) -> Keys:
    keys: Keys = {
        "topic": _topic(line, "publish-to"),
        **message_rate(line),
        "size": message_size(line),
    }
    keys["qos"] = int(line.one_of("mqtt-publisher-qos", QOS, "0, 1 or 2"))
    if keys["qos"]:
        keys["window"] = line.number("max-in-flight")
    if line.has("mqtt-user-property") and line.text("mqtt-publisher-version") == "5":
        pairs = (each.partition("=") for each in line.all("mqtt-user-property"))
        keys["user_properties"] = {literal(name): literal(value) for name, _, value in pairs}
    return keys


def _topic(line: GivenCommand, name: str) -> str:
    text = line.text(name)
    if "{{" in text:
        raise line.unfit(name, "is a topic with %d", "topic: has templates such as {n%2}")
    prefix = next((each for each in PREFIXES if text.startswith(each)), "")
    return template(text.removeprefix(prefix), {"%d": "{n}"})


DEFAULT_USER = "# a URI without a user means guest, with the password guest"


def _broker(line: GivenCommand, text: str) -> tuple[str, Keys]:
    """Returns the address of a URI for MQTT and its credentials. AMQP's port becomes MQTT's."""
    found = URL.fullmatch(text)
    if found is None:
        name = "uri"
        raise line.unfit(name, "is SCHEME://[USER:PASSWORD@]HOST[:PORT]")
    scheme = "mqtts" if found["scheme"] in SECURE else "mqtt"
    is_mqtt = not (found["scheme"] or "").startswith("amqp")
    port = (found["port"] if is_mqtt else None) or (8883 if scheme == "mqtts" else 1883)
    user, password = literal(found["user"] or GUEST), literal(found["password"] or GUEST)
    host = found["host"] or "localhost"
    return address(scheme, host, port), {"username": user, "password": password}


def message_rate(line: GivenCommand) -> Keys:
    """Returns the key of a publication for its rate; without one messages follow at once."""
    rate = line.decimal("rate")
    return {"rate": mean_rate(rate, 1) if rate > 0 else Plain("max")}


def limit_messages(clients: ImportedClients, line: GivenCommand) -> None:
    """Makes the load as long as a number of messages of each publisher takes."""
    messages, rate = line.number("pmessages"), line.decimal("rate")
    time_ms = duration_ns(clients.length) / MILLISECOND_NS if line.has("time") else math.inf
    interval_ms = 1000 / rate if rate > 0 else 0
    is_first = messages * interval_ms < time_ms if interval_ms else time_ms == math.inf
    if messages and is_first:
        limit(clients, f"-C {messages} messages of each client", messages, interval_ms)


def message_size(line: GivenCommand) -> int:
    """Returns the size of a message in bytes. Raises UsageError."""
    found = SIZE.fullmatch(line.text("size"))
    if found is None:
        raise line.unfit(
            "size", "is one size such as 100 or 10kb", "size: {mean: 1kB, spread: 50%}"
        )
    return max(SMALLEST, round(float(found[1]) * FACTORS[(found[2] or "").lower()]))

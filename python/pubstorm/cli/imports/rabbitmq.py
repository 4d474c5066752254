"""Command lines of RabbitMQ's omq (`mqtt`) and PerfTest. An option without an equal becomes a
comment."""

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
    pace,
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
        "cmessages": Option("D", remark="a stage has a time, and not a number of messages"),
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
ARGUMENTS = "arguments: of a subscription has it"
BINDINGS = "a queue of a subscription is bound, that of the default exchange is not"
CHANNELS = "channels: and a publication or subscription for each"
KEYS = "a range {1..N} in the key"
LATE = "acknowledge: {after: TIME} makes acknowledgements late"
PATTERN = 'queue: "NAME-{n}" or {n%N} in it'
REFUSALS = "refuse: of a subscription is the share of refused deliveries"
TRANSACTIONS = "confirm: and acknowledge: stand for transactions"
OWN_TLS = "tls: of a population has the files"
RECOVERY = "reconnect: of a population has the waits"
THREADS = "the engine has one thread for each agent"
BODIES = "payload: has texts, and templates for JSON"
PERF_TEST = Grammar(
    "perf-test",
    frozenset({"perf-test", "runjava", "com.rabbitmq.perf.PerfTest"}),
    {
        "uri": Option("h", "amqp://localhost"),
        "uris": Option("H"),
        "producers": Option("x", "1"),
        "consumers": Option("y", "1"),
        "rate": Option("r", "-1"),
        "consumer-rate": Option("R", "-1"),
        "size": Option("s", "12"),
        "time": Option("z", "0"),
        "pmessages": Option("C", "0"),
        "routing-key": Option("k"),
        "queue": Option("u"),
        "confirm": Option("c", "-1"),
        "publishing-interval": Option("P"),
        "heartbeat": Option("b", "0"),
        "id": Option("d", "perf-test"),
        "cmessages": Option("D", remark="a stage has a time, and not a number of messages"),
        "type": Option("t", "direct"),
        "exchange": Option("e"),
        "random-routing-key": Option("K", is_flag=True, remark=KEYS),
        "routing-key-cache-size": Option("rkcs", remark=KEYS),
        "skip-binding-queues": Option("sb", is_flag=True, remark=BINDINGS),
        "interval": Option("i", remark="snapshot_interval: is the interval of samples"),
        "slow-start": Option("S", is_flag=True, remark=CONNECTS),
        "producer-channel-count": Option("X", remark=CHANNELS),
        "consumer-channel-count": Option("Y", remark=CHANNELS),
        "ptxsize": Option("m", remark=TRANSACTIONS),
        "ctxsize": Option("n", remark=TRANSACTIONS),
        "confirm-timeout": Option("ct", remark="drain: is the longest wait"),
        "autoack": Option("a", is_flag=True),
        "multi-ack-every": Option("A", "1"),
        "qos": Option("q", "0"),
        "global-qos": Option("Q", remark="prefetch: is that of a queue"),
        "flag": Option("f"),
        "framemax": Option("M", remark="the broker proposes the size of a frame"),
        "predeclared": Option("p", is_flag=True, remark="clients declare what they use"),
        "body": Option("B", remark=BODIES),
        "body-content-type": Option("T", remark="headers: of a publication"),
        "json-body": Option("jb", is_flag=True, remark=BODIES),
        "body-field-count": Option("bfc", remark=BODIES),
        "body-count": Option("bc", remark=BODIES),
        "output-file": Option("o", remark=DISPLAY),
        "auto-delete": Option("ad", "true"),
        "use-millis": Option("ms", is_flag=True, remark="stamps have nanoseconds"),
        "queue-args": Option("qa"),
        "consumer-latency": Option("L", remark=LATE),
        "use-default-ssl-context": Option("udsc", is_flag=True, remark=OWN_TLS),
        "sasl-external": Option("se", is_flag=True),
        "server-name-indication": Option("sni", remark="tls: {server_name: NAME}"),
        "queue-pattern": Option("qp", remark=PATTERN),
        "queue-pattern-from": Option("qpf", remark=PATTERN),
        "queue-pattern-to": Option("qpt", remark=PATTERN),
        "queue-file": Option("qf", remark="rows: has a file of values"),
        "heartbeat-sender-threads": Option("hst", remark=THREADS),
        "message-properties": Option("mp", remark="headers: of a publication"),
        "exclusive": Option("E", is_flag=True),
        "producer-random-start-delay": Option("prsd", remark="clients are spread evenly"),
        "producer-scheduler-threads": Option("pst", remark=THREADS),
        "nio-threads": Option("niot", remark=THREADS),
        "nio-thread-pool": Option("niotp", remark=THREADS),
        "netty": Option("nty", is_flag=True, remark=THREADS),
        "netty-threads": Option("ntyt", remark=THREADS),
        "netty-epoll": Option("ntyep", is_flag=True, remark=THREADS),
        "netty-kqueue": Option("ntykq", is_flag=True, remark=THREADS),
        "consumers-thread-pools": Option("ctp", remark=THREADS),
        "shutdown-timeout": Option("st", remark="drain: is the longest wait"),
        "servers-startup-timeout": Option("sst", remark="timeout: of a connect stage"),
        "servers-up-limit": Option("sul", remark="timeout: of a connect stage"),
        "disable-connection-recovery": Option("dcr", is_flag=True, remark=RECOVERY),
        "connection-recovery-interval": Option("cri", remark=RECOVERY),
        "connection-allocation": Option("cal", remark="clients take the targets in turn"),
        "variable-rate": Option("vr", remark="rate_profile: of a publish stage has points"),
        "variable-size": Option("vs", remark="size: {mean: SIZE, spread: SHARE}"),
        "variable-latency": Option("vl", remark=LATE),
        "polling": Option("po", is_flag=True, remark="consumers get messages as they come"),
        "polling-interval": Option("pi", remark="consumers get messages as they come"),
        "nack": Option("na", is_flag=True, remark=REFUSALS),
        "requeue": Option("re", remark=REFUSALS),
        "consumer-args": Option("ca", remark="consumers have no arguments"),
        "quorum-queue": Option("qq", is_flag=True),
        "stream-queue": Option("sq", is_flag=True),
        "leader-locator": Option("ll", remark=ARGUMENTS),
        "max-length-bytes": Option("mlb", remark=ARGUMENTS),
        "max-age": Option("ma", remark=ARGUMENTS),
        "stream-max-segment-size-bytes": Option("smssb", remark=ARGUMENTS),
        "stream-consumer-offset": Option("sco", remark="consumers read from their start on"),
        "exit-when": Option("ew", remark="a stage has a time"),
        "consumer-start-delay": Option("csd", remark="a stage connects consumers later"),
        "exposed-metrics": Option("em", remark=DISPLAY),
        "metrics-format": Option("mf", remark=DISPLAY),
        "verbose": Option(is_flag=True, remark=DISPLAY),
        "verbose-full": Option(is_flag=True, remark=DISPLAY),
        "expected-instances": Option("ei", remark=FLEET),
        "instance-sync-namespace": Option("isn", remark=FLEET),
        "instance-sync-timeout": Option("ist", remark=FLEET),
        "oauth2-token-endpoint": Option("o2uri", remark="password: has a token"),
        "oauth2-client-id": Option("o2id", remark="password: has a token"),
        "oauth2-client-secret": Option("o2sec", is_secret=True, remark="password: has a token"),
        "oauth2-grant-type": Option("o2gr", remark="password: has a token"),
        "oauth2-parameters": Option("o2p", is_secret=True, remark="password: has a token"),
        "tcp-send-buffer-size": Option("tsbs", remark="the kernel chooses the buffers"),
        "tcp-receive-buffer-size": Option("trbs", remark="the kernel chooses the buffers"),
        "tcp-no-delay": Option("tnd", remark="the clients do so always", unless="true"),
    },
    'pubstorm import perf-test "perf-test -x 10 -y 1 --rate 100 --size 256"',
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


def read_omq(words: Sequence[str]) -> ImportedScenario:
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
            _messages(clients, line)
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
    keys: Keys = {"topic": _topic(line, "publish-to"), **_rate(line), "size": _size(line)}
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


def read_perf_test(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line of PerfTest. Raises UsageError."""
    line = parsed(PERF_TEST, words)
    uris = [each.strip() for text in line.all("uris") for each in text.split(",")]
    brokers = [_amqp_broker(line, each) for each in uris or [line.text("uri")]]
    kind = line.one_of("type", {each: each for each in TYPES}, "direct, topic or fanout")
    exchange = kind if line.value("exchange") is None else line.text("exchange")
    exchange = "" if exchange == "amq.default" else exchange
    scenario = ImportedScenario([f"# {line.comment}", *line.remarks(), DEFAULT_USER])
    if exchange and not exchange.startswith("amq."):
        scenario.exchanges[exchange] = {"type": Plain(kind)}
    for role, count in (("consumer", "consumers"), ("producer", "producers")):
        if not line.number(count):
            continue
        keys: Keys = {"clients": line.number(count), **brokers[0][1]}
        if line.number("heartbeat"):
            keys["keep_alive"] = Plain(f"{line.number('heartbeat')}s")
        if line.is_on("sasl-external"):
            keys = {"clients": line.number(count), "mechanism": Plain("external")}
        clients = ImportedClients(role, [broker for broker, _ in brokers], keys)
        if line.number("time"):
            clients.length = Plain(f"{line.number('time')}s")
        if role == "consumer":
            if line.decimal("consumer-rate") > 0:
                keys["read_rate"] = mean_rate(line.decimal("consumer-rate"), 1)
            clients.subscriptions = [_queue(line, exchange, kind)]
        else:
            clients.publications = [_to_exchange(line, exchange)]
            _messages(clients, line)
        scenario.clients.append(clients)
    if not scenario.clients:
        raise UsageError("found no producers and no consumers", "write -x or -y")
    return scenario


TYPES = ("direct", "topic", "fanout")
"""Types of exchanges that the ledger follows."""
OWN_QUEUE = "perf-test"
"""Queue of consumers at the default exchange, and routing key, where PerfTest draws one."""


def _amqp_broker(line: GivenCommand, text: str) -> tuple[str, Keys]:
    """Returns the address of a URI and its credentials."""
    found = URL.fullmatch(text)
    if found is None:
        raise line.unfit("uri", "is amqp://[USER:PASSWORD@]HOST[:PORT][/VHOST]")
    scheme = "amqps" if found["scheme"] in SECURE else "amqp"
    port = found["port"] or (5671 if scheme == "amqps" else 5672)
    user, password = literal(found["user"] or GUEST), literal(found["password"] or GUEST)
    path = (found["path"] or "").rstrip("/")
    host = address(scheme, found["host"] or "localhost", port, path)
    return host, {"username": user, "password": password}


def _key(line: GivenCommand) -> str:
    return literal(line.value("routing-key") or line.value("queue") or OWN_QUEUE)


def _queue(line: GivenCommand, exchange: str, kind: str) -> Keys:
    """Returns the queue of each consumer: without a name, each has one of its own."""
    keys: Keys = {}
    if exchange:
        keys["exchange"] = exchange
        keys |= {} if kind == "fanout" else {"key": _key(line)}
    if line.has("queue") or not exchange:
        keys["queue"] = literal(line.value("queue") or OWN_QUEUE)
    replicated = {"quorum-queue": "quorum", "stream-queue": "stream"}
    kinds = [each for name, each in replicated.items() if line.is_on(name)]
    if kinds:
        keys["type"] = Plain(kinds[0])
    elif "queue" in keys:
        keys["durable"] = "persistent" in line.all("flag")
        keys["auto_delete"] = line.is_on("auto-delete")
    if line.is_on("exclusive"):
        keys["exclusive"] = True
    if line.number("qos"):
        keys["prefetch"] = line.number("qos")
    if line.is_on("autoack"):
        keys["acknowledge"] = Plain("none")
    elif line.number("multi-ack-every") > 1:
        keys["acknowledge"] = {"every": line.number("multi-ack-every")}
    pairs = (each.partition("=") for text in line.all("queue-args") for each in text.split(","))
    if arguments := {name: _argument(value) for name, _, value in pairs}:
        keys["arguments"] = arguments
    return keys


def _argument(text: str) -> object:
    """Returns the value of an argument, as PerfTest reads it: a number if it is one."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _to_exchange(line: GivenCommand, exchange: str) -> Keys:
    keys: Keys = {"exchange": exchange} if exchange else {}
    keys |= {"key": _key(line), **_rate(line), "size": _size(line)}
    flags = line.all("flag")
    keys |= {name: True for name in ("mandatory", "persistent") if name in flags}
    if line.decimal("confirm") > 0:
        keys |= {"confirm": True, "window": line.number("confirm")}
    return keys


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


def _rate(line: GivenCommand) -> Keys:
    has_interval = "publishing-interval" in line.grammar.options and line.has("publishing-interval")
    if has_interval:
        return pace(1000 * line.decimal("publishing-interval"))
    rate = line.decimal("rate")
    return {"rate": mean_rate(rate, 1) if rate > 0 else Plain("max")}


def _messages(clients: ImportedClients, line: GivenCommand) -> None:
    """Makes the load as long as a number of messages of each publisher takes."""
    messages, rate = line.number("pmessages"), line.decimal("rate")
    time_ms = duration_ns(clients.length) / MILLISECOND_NS if line.has("time") else math.inf
    interval_ms = 1000 / rate if rate > 0 else 0
    is_first = messages * interval_ms < time_ms if interval_ms else time_ms == math.inf
    if messages and is_first:
        limit(clients, f"-C {messages} messages of each client", messages, interval_ms)


def _size(line: GivenCommand) -> int:
    found = SIZE.fullmatch(line.text("size"))
    if found is None:
        raise line.unfit(
            "size", "is one size such as 100 or 10kb", "size: {mean: 1kB, spread: 50%}"
        )
    return max(SMALLEST, round(float(found[1]) * FACTORS[(found[2] or "").lower()]))

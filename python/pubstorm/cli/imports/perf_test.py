"""Command lines of RabbitMQ's PerfTest, with the environment of a container and the properties of a
JVM before them. An option without an equal becomes a comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pubstorm.cli.imports.omq import (
    CONNECTS,
    DEFAULT_USER,
    DISPLAY,
    ENDS,
    FLEET,
    GUEST,
    SECURE,
    SMALLEST,
    URL,
    limit_messages,
    message_rate,
    message_size,
)
from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    Remarked,
    address,
    literal,
    mean_rate,
    pace,
)
from pubstorm.cli.imports.words import GivenCommand, Grammar, Option, parsed, printable
from pubstorm.contract.target import parse_targets
from pubstorm.errors import REDACTED, UsageError
from pubstorm.quantities import UnfitError
from pubstorm.scenario.queues import queue_name, routing_key
from pubstorm.scenario.stores import arguments, exchange_name

BINDINGS = "a queue of a subscription is bound, that of the default exchange is not"
CHANNELS = "a client consumes a queue once: more consumers (-y) are more connections"
KEYS = "a range {1..N} in the key"
LATE = "read_rate: of a population is the same all the time"
REFUSALS = "refuse: 50% refuses half of the deliveries once; refused for ever, none would arrive"
TRANSACTIONS = "confirm: and acknowledge: stand for transactions"
PROPERTIES = "messages have the properties delivery-mode and headers"
OWN_TLS = "tls: of a population has the files"
RECOVERY = "reconnect: of a population has the waits"
THREADS = "the engine has one thread for each agent"
BODIES = "payload: of a publication has texts and JSON with variables, data: has files"
EXPORTED = "--prometheus, --otlp and --influx of pubstorm run hand figures to other programs"
METRICS = {
    **{
        f"metrics-{name}": Option(short, is_flag=True, remark=EXPORTED)
        for name, short in (
            ("prometheus", "mpr"),
            ("command-line-arguments", "mcla"),
            ("client", "mc"),
            ("class-loader", "mcl"),
            ("jvm-memory", "mjm"),
            ("jvm-gc", "mjgc"),
            ("jvm-thread", "mjt"),
            ("processor", "mjp"),
            ("datadog", "mda"),
            ("datadog-descriptions", "mdd"),
            ("jmx", "mjx"),
        )
    },
    **{
        f"metrics-{name}": Option(short, is_secret=name.endswith("key"), remark=EXPORTED)
        for name, short in (
            ("prometheus-endpoint", "mpe"),
            ("prometheus-port", "mpp"),
            ("tags", "mt"),
            ("prefix", "mpx"),
            ("datadog-api-key", "mdk"),
            ("datadog-application-key", "mdak"),
            ("datadog-step-size", "mds"),
            ("datadog-host-tag", "mdh"),
            ("datadog-uri", "mdu"),
        )
    },
}
"""Options of figures for other programs."""
PERF_TEST = Grammar(
    "perf-test",
    frozenset({"perf-test", "runjava", "com.rabbitmq.perf.PerfTest", "PerfTest"}),
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
        "id": Option("d", remark="a run directory names a run"),
        "cmessages": Option("D", remark=ENDS),
        "type": Option("t", "direct"),
        "exchange": Option("e"),
        "random-routing-key": Option("K", is_flag=True, remark=KEYS),
        "routing-key-cache-size": Option("rkcs", remark=KEYS),
        "skip-binding-queues": Option("sb", is_flag=True, remark=BINDINGS),
        "interval": Option("i", remark="snapshot_interval: is the interval of samples"),
        "slow-start": Option("S", is_flag=True, remark=CONNECTS),
        "producer-channel-count": Option("X", "1"),
        "consumer-channel-count": Option("Y", "1"),
        "ptxsize": Option("m", remark=TRANSACTIONS),
        "ctxsize": Option("n", remark=TRANSACTIONS),
        "confirm-timeout": Option("ct", remark="drain: is the longest wait"),
        "autoack": Option("a", is_flag=True),
        "multi-ack-every": Option("A", "1"),
        "qos": Option("q", "0"),
        "global-qos": Option("Q", "0"),
        "flag": Option("f", is_many=True),
        "framemax": Option("M", remark="the broker proposes the size of a frame"),
        "predeclared": Option("p", is_flag=True),
        "body": Option("B", remark=BODIES),
        "body-content-type": Option("T", remark=PROPERTIES),
        "json-body": Option("jb", is_flag=True, remark=BODIES),
        "body-field-count": Option("bfc", remark=BODIES),
        "body-count": Option("bc", remark=BODIES),
        "output-file": Option("o", remark=DISPLAY),
        "auto-delete": Option("ad", "true"),
        "use-millis": Option("ms", is_flag=True, remark="stamps have nanoseconds"),
        "queue-args": Option("qa", is_many=True),
        "consumer-latency": Option("L", "0"),
        "use-default-ssl-context": Option("udsc", is_flag=True, remark=OWN_TLS),
        "sasl-external": Option("se", is_flag=True),
        "server-name-indication": Option("sni"),
        "queue-pattern": Option("qp"),
        "queue-pattern-from": Option("qpf"),
        "queue-pattern-to": Option("qpt"),
        "queue-file": Option("qf", remark="rows: has a file of values"),
        "heartbeat-sender-threads": Option("hst", remark=THREADS),
        "message-properties": Option("mp"),
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
        "variable-rate": Option("vr", is_many=True),
        "variable-size": Option("vs", is_many=True),
        "variable-latency": Option("vl", is_many=True, remark=LATE),
        "polling": Option("po", is_flag=True, remark="consumers get messages as they come"),
        "polling-interval": Option("pi", remark="consumers get messages as they come"),
        "nack": Option("na", is_flag=True, remark=REFUSALS),
        "requeue": Option("re", remark="a refused delivery comes again", unless="true"),
        "consumer-args": Option("ca", remark="consumers have no arguments"),
        "quorum-queue": Option("qq", is_flag=True),
        "stream-queue": Option("sq", is_flag=True),
        "leader-locator": Option("ll"),
        "max-length-bytes": Option("mlb"),
        "max-age": Option("ma"),
        "stream-max-segment-size-bytes": Option("smssb"),
        "stream-consumer-offset": Option(
            "sco", remark="consumers read from their start on", unless="next"
        ),
        "exit-when": Option("ew", remark=ENDS),
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
        "oauth2-parameters": Option(
            "o2p", is_many=True, is_secret=True, remark="password: has a token"
        ),
        "tcp-send-buffer-size": Option("tsbs", remark="the kernel chooses the buffers"),
        "tcp-receive-buffer-size": Option("trbs", remark="the kernel chooses the buffers"),
        "tcp-no-delay": Option("tnd", remark="the clients do so always", unless="true"),
        **METRICS,
    },
    'pubstorm import perf-test "perf-test -x 10 -y 1 --rate 100 --size 256"',
    has_one_dash=True,
)

TYPES = ("direct", "topic", "fanout")
"""Types of exchanges that the ledger follows."""
OWN_KEY = "perf-test"
"""Routing key, and queue of consumers at the default exchange, where PerfTest draws one."""
VARIABLE = re.compile(r"(?:-e|--env=)?([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
"""A variable of the environment, as shells and containers write it."""
PREFIX = "RABBITMQ_PERF_TEST_ENV_PREFIX"
JVM_TLS = re.compile(r"(-D(?:javax\.net\.ssl|jdk\.tls)[\w.]*)=?")
INDEX = re.compile(r"%(?:0[0-9]+)?[ds]")
"""The number of a queue in a pattern of Java."""
STEP = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
STEPS_MAX = 1000
CAPACITY = re.compile(r"([0-9]{1,15})(kb|mb|gb|tb)?", re.IGNORECASE)
CAPACITIES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
AGE = re.compile(
    r"P(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,9})(?:\.[0-9]*)?S)?)?"
)
AGE_UNITS_S = (86_400, 3600, 60, 1)
STREAM: Mapping[str, object] = {
    "x-max-length-bytes": 20 * 10**9,
    "x-stream-max-segment-size-bytes": 500 * 10**6,
}
"""Arguments that PerfTest gives a stream."""
STREAM_PREFETCH = 200
OF_MESSAGES = frozenset(
    {
        *("contentType", "contentEncoding", "priority", "correlationId", "replyTo", "expiration"),
        *("messageId", "timestamp", "type", "userId", "appId", "clusterId"),
    }
)
"""Properties of messages beside `deliveryMode`; other names are those of headers."""


@dataclass(frozen=True, slots=True)
class _Names:
    """Names that producers and consumers have in common."""

    exchange: str
    kind: str
    """Type of the exchange."""
    key: str
    queues: tuple[str, ...] = ()
    """Queues of each consumer; empty: the broker names one for each."""
    first: int = 0
    """The number of the first client."""


def read(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line of PerfTest. Raises UsageError."""
    line = parsed(PERF_TEST, words)
    _take_environment(line)
    if not (line.number("producers") or line.number("consumers")):
        raise UsageError("found no producers and no consumers", "write -x or -y")
    notes: list[str] = []
    names = _names(line, notes)
    uris = [each.strip() for text in line.all("uris") for each in text.split(",")]
    brokers = [_broker(line, each, notes) for each in uris or [line.text("uri")]]
    scenario = ImportedScenario()
    is_made = not (names.exchange.startswith("amq.") or line.is_on("predeclared"))
    if names.exchange and is_made:
        scenario.exchanges[names.exchange] = {"type": Plain(names.kind), "durable": True}
    for role, count in (("consumer", "consumers"), ("producer", "producers")):
        if not line.number(count):
            continue
        keys: Keys = {"clients": line.number(count), **brokers[0][1], **_tls(line, brokers[0][0])}
        if line.is_on("sasl-external"):
            for secret in ("username", "password"):
                del keys[secret]
            keys["mechanism"] = Plain("external")
        if names.first:
            keys["first"] = names.first
        if line.number("heartbeat"):
            keys["keep_alive"] = Plain(f"{line.number('heartbeat')}s")
        clients = ImportedClients(role, [broker for broker, _ in brokers], keys)
        if line.number("time"):
            clients.length = Plain(f"{line.number('time')}s")
        (_consume if role == "consumer" else _produce)(line, names, clients)
        scenario.clients.append(clients)
    notes += _without_consumers(line, names)
    remarks = line.remarks(_reasons(line, names))
    scenario.comments = [f"# {line.comment}", *_of_jvm(line), *remarks, *notes, DEFAULT_USER]
    return scenario


def _take_environment(line: GivenCommand) -> None:
    """Adds the options that variables of the environment set: these precede the command line."""
    found = (VARIABLE.fullmatch(word) for word in line.before)
    variables = {each[1]: each[2] for each in found if each is not None}
    prefix = variables.get(PREFIX, "").rstrip("_")
    shown = []
    for name, value in variables.items():
        option = name.removeprefix(f"{prefix}_" * bool(prefix)).lower().replace("_", "-")
        known = line.grammar.options.get(option)
        if known is None:
            continue
        line.given[option] = value.split(",") if known.is_many else [value]
        if known.is_flag:
            line.given[option] = [value.lower()]
        shown.append(f"{name}={REDACTED if known.is_secret else value}")
    line.shown[:0] = shown


def _of_jvm(line: GivenCommand) -> Iterator[str]:
    """Yields a comment for each property of the JVM about TLS, without its value."""
    for word in line.before:
        if (found := JVM_TLS.match(word)) is not None:
            yield f"# without {printable(found[1])}: {OWN_TLS}"


def _reasons(line: GivenCommand, names: _Names) -> dict[str, str]:
    """Returns the reasons that options have no equal in this command line, by name."""
    reasons: dict[str, str] = {}
    if names.queues and line.number("consumer-channel-count") > 1:
        reasons["consumer-channel-count"] = CHANNELS
    if len(names.queues) > 1 and line.number("global-qos"):
        reasons["global-qos"] = "prefetch: is that of a queue"
    if line.is_on("exclusive") and len(names.queues) and line.number("consumers") > 1:
        reasons["exclusive"] = "an exclusive queue belongs to one connection, not to all consumers"
    properties = {name for name, _ in _pairs(line, "message-properties")}
    if kept := sorted(properties & OF_MESSAGES):
        reasons["message-properties"] = f"{PROPERTIES}, and not {', '.join(kept)}"
    if line.is_on("sasl-external"):
        reasons["server-name-indication"] = "tls: {server_name: NAME}, beside certificate and key"
        reasons["sasl-external"] = "tls: of a population has the certificate and the key"
    if line.is_on("predeclared") and line.number("consumers") and not names.queues:
        reasons["predeclared"] = "a queue without a name (-u) does not exist before the run"
    if line.has("variable-rate"):
        reasons |= dict.fromkeys(("rate", "pmessages"), "-vr has the rates, and -z the time")
    return reasons


def _without_consumers(line: GivenCommand, names: _Names) -> Iterator[str]:
    """Yields a comment about queues that no consumer declares."""
    if names.queues and not line.number("consumers") and not line.is_on("predeclared"):
        yield (
            "# consumers make queues, and -y 0 has none: declare the queue before the run, or the"
        )
        yield "# broker drops the messages (mandatory: true of the publication counts them)"


def _broker(line: GivenCommand, text: str, notes: list[str]) -> tuple[str, Keys]:
    """Returns the address of a URI and its credentials."""
    bare, _, query = text.partition("?")
    found = URL.fullmatch(bare)
    if found is None:
        raise line.unfit("uri", "is amqp://[USER:PASSWORD@]HOST[:PORT][/VHOST]")
    if query:
        names = ", ".join(each.partition("=")[0] for each in query.split("&"))
        notes.append(f"# without ?{printable(names)} of the URI: keep_alive: is the heartbeat")
    scheme = "amqps" if found["scheme"] in SECURE else "amqp"
    port = found["port"] or (5671 if scheme == "amqps" else 5672)
    user, password = (literal(unquote(found[each] or GUEST)) for each in ("user", "password"))
    path = (found["path"] or "").rstrip("/")
    host = address(scheme, found["host"] or "localhost", port, path)
    _checked(line, "uri", parse_targets, host)
    return host, {"username": user, "password": password}


def _tls(line: GivenCommand, broker: str) -> Keys:
    """Returns the keys of TLS: PerfTest trusts every server, unless the JVM has its own keys."""
    if not broker.startswith("amqps") or line.is_on("sasl-external"):
        return {}
    is_own = line.is_on("use-default-ssl-context") or any(map(JVM_TLS.match, line.before))
    keys: Keys = {} if is_own else {"verify": False}
    if line.has("server-name-indication"):
        keys["server_name"] = literal(line.text("server-name-indication").partition(",")[0])
    return {"tls": keys} if keys else {}


def _names(line: GivenCommand, notes: list[str]) -> _Names:
    hint = (
        "a scenario has direct, topic and fanout exchanges: the ledger knows a message by its key"
    )
    kind = line.text("type")
    if kind not in TYPES:
        raise line.unfit("type", "is direct, topic or fanout", hint)
    exchange = kind if line.value("exchange") is None else line.text("exchange")
    exchange = "" if exchange == "amq.default" else exchange
    _checked(line, "exchange", exchange_name, exchange)
    own = line.value("routing-key")
    if own is not None:
        _checked(line, "routing-key", routing_key, own := literal(own))
    if line.has("queue-pattern"):
        return _sequence(line, _Names(exchange, kind, own or ""), notes)
    queues = tuple(literal(each) for each in line.text("queue").split(",") if each)
    for queue in queues:
        _checked(line, "queue", queue_name, queue)
    if not queues and not exchange:
        queues = (OWN_KEY,)
    if line.is_on("predeclared") and not line.has("exchange") and len(queues) == 1:
        # PerfTest binds the queue to an exchange, and so it gets what has its name as a key.
        return _Names("", kind, queues[0], queues)
    if own is None and len(queues) == 1:
        _checked(line, "queue", routing_key, queues[0])
    return _Names(exchange, kind, own or (queues[0] if len(queues) == 1 else OWN_KEY), queues)


def _sequence(line: GivenCommand, names: _Names, notes: list[str]) -> _Names:
    """Returns the names with a sequence of queues. Client n has queue n, if there are as many."""
    pattern = line.text("queue-pattern")
    first, last = line.number("queue-pattern-from"), line.number("queue-pattern-to")
    if len(INDEX.findall(pattern)) != 1 or "%" in INDEX.sub("", pattern):
        raise line.unfit("queue-pattern", "is a name with one %d", "such as 'perf-test-%d'")
    if not (line.has("queue-pattern-from") and line.has("queue-pattern-to")) or first > last:
        message = "found -qp without -qpf and -qpt, or with -qpf above -qpt, needed are all"
        raise UsageError(message, "such as -qp 'perf-test-%d' -qpf 1 -qpt 10")
    queues = last - first + 1
    front, back = map(literal, INDEX.split(pattern))
    is_shared = max(line.number("producers"), line.number("consumers")) > queues
    queue = f"{front}{{n%{queues}}}{back}" if is_shared else f"{front}{{n}}{back}"
    _checked(line, "queue-pattern", queue_name, queue)
    _checked(line, "queue-pattern", routing_key, queue)
    if is_shared and first:
        notes.append(
            f"# -qpf {first}: {{n%{queues}}} counts from 0, so the first queue has number 0"
        )
    if INDEX.findall(pattern) not in (["%d"], ["%s"]):
        notes.append(f"# -qp {printable(pattern)}: the numbers of queues have no zeros in front")
    if 0 < line.number("consumers") < queues:
        notes.append(f"# {queues} queues for {line.number('consumers')} consumers: no client makes")
        notes.append("# the queues without a consumer, and the broker drops what goes there")
    exchange = names.exchange
    if line.is_on("predeclared") and not line.has("exchange"):
        exchange = ""
    own_first = 0 if is_shared else first
    return _Names(exchange, names.kind, names.key or queue, (queue,), own_first)


def _checked(line: GivenCommand, name: str, check: Callable[[Any], object], value: object) -> None:
    """Raises UsageError for a name that a scenario cannot have."""
    try:
        check(value)
    except UnfitError as unfit:
        raise line.unfit(name, unfit.allowed, unfit.hint) from unfit


def _consume(line: GivenCommand, names: _Names, clients: ImportedClients) -> None:
    """Adds the queues of consumers, and the rate at which a consumer takes messages."""
    rates = [line.decimal("consumer-rate")]
    if line.number("consumer-latency"):
        # A consumer works on one message at a time.
        rates.append(1e6 / line.number("consumer-latency"))
    if limits := [rate for rate in rates if rate > 0]:
        clients.keys["read_rate"] = mean_rate(min(limits), 1)
    channels = line.number("consumer-channel-count")
    if channels > 1 and not names.queues:
        clients.keys["channels"] = channels
        clients.subscriptions = [_queue(line, names, None)] * channels
        return
    clients.subscriptions = [_queue(line, names, each) for each in names.queues or (None,)]


def _queue(line: GivenCommand, names: _Names, queue: str | None) -> Keys:
    """Returns a queue of each consumer: without a name, each has one of its own."""
    keys: Keys = {}
    given = dict(_pairs(line, "queue-args"))
    kind = "stream" if line.is_on("stream-queue") else given.pop("x-queue-type", "classic")
    kind = "quorum" if line.is_on("quorum-queue") else kind
    if kind != "classic" and queue is None:
        message = f"found a {kind} queue without a name, needed are both"
        raise UsageError(message, "write -u NAME: the broker names classic queues only")
    if names.exchange:
        keys["exchange"] = names.exchange
        keys |= {} if names.kind == "fanout" else {"key": names.key}
    if queue is not None:
        keys["queue"] = queue
        if line.is_on("exclusive") and line.number("consumers") == 1:
            keys |= {"exclusive": True, "shared": False}
    if kind != "classic":
        keys["type"] = Plain(str(kind))
    if queue is not None and line.is_on("predeclared"):
        keys = {key: value for key, value in keys.items() if key != "exclusive"} | {
            "declare": False
        }
    elif kind == "classic" and queue is not None:
        keys["durable"] = "persistent" in line.all("flag")
        keys["auto_delete"] = line.is_on("auto-delete")
    prefetches = [line.number("qos"), line.number("global-qos") if len(names.queues) < 2 else 0]
    if kind == "stream":
        prefetches[0] = prefetches[0] or STREAM_PREFETCH
    if line.is_on("autoack"):
        keys["acknowledge"] = Plain("none")
    elif limits := [each for each in prefetches if each]:
        keys["prefetch"] = min(limits)
    if line.number("multi-ack-every") > 1 and not line.is_on("autoack"):
        keys["acknowledge"] = {"every": line.number("multi-ack-every")}
    given = {**(STREAM if kind == "stream" else {}), **given, **dict(_limits(line))}
    if given and "declare" not in keys:
        keys["arguments"] = {name: each for name, each in given.items() if each is not None}
        _checked(line, "queue-args", arguments, keys["arguments"])
    return keys


def _limits(line: GivenCommand) -> Iterator[tuple[str, object]]:
    """Yields the arguments of a queue that have options; None takes one away."""
    for name in ("max-length-bytes", "stream-max-segment-size-bytes"):
        if line.has(name):
            found = CAPACITY.fullmatch(line.text(name))
            if found is None:
                raise line.unfit(name, "is a size such as 1000, 500mb or 20gb")
            yield f"x-{name}", int(found[1]) * CAPACITIES[(found[2] or "").lower()] or None
    if line.has("max-age"):
        age = AGE.fullmatch(line.text("max-age"))
        if age is None or not any(age.groups()):
            raise line.unfit("max-age", "is a duration such as PT10M30S or P5DT8H")
        parts = zip(age.groups(), AGE_UNITS_S, strict=True)
        yield "x-max-age", f"{sum(int(number or 0) * unit for number, unit in parts)}s"
    if line.has("leader-locator"):
        yield "x-queue-leader-locator", line.text("leader-locator")


def _pairs(line: GivenCommand, name: str) -> Iterator[tuple[str, object]]:
    """Yields the pairs of an option as PerfTest reads them: numbers, flags and texts."""
    for each in (each for text in line.all(name) for each in text.split(",") if each):
        key, _, text = each.partition("=")
        value: object = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text
        if text in {"true", "false"} and name == "queue-args":
            value = text == "true"
        elif (key, text) == ("x-dead-letter-exchange", "amq.default"):
            value = ""
        yield key, value


def _produce(line: GivenCommand, names: _Names, clients: ImportedClients) -> None:
    """Adds the publications of producers, one for each channel, and their end."""
    keys: Keys = {"exchange": names.exchange} if names.exchange else {}
    keys |= {"key": names.key, **_rate(line), **_size(line)}
    properties = dict(_pairs(line, "message-properties"))
    mode = properties.pop("deliveryMode", None)
    flags = set(line.all("flag"))
    if mode == 2 or line.is_on("quorum-queue") or line.is_on("stream-queue"):
        flags.add("persistent")
    keys |= {name: True for name in ("mandatory", "persistent") if name in flags}
    if line.decimal("confirm") >= 0:
        keys["confirm"] = True
        keys |= {"window": line.number("confirm")} if line.number("confirm") else {}
    headers = {key: str(value) for key, value in properties.items() if key not in OF_MESSAGES}
    if headers:
        keys["headers"] = {literal(key): literal(text) for key, text in headers.items()}
    channels = line.number("producer-channel-count")
    if channels > 1:
        clients.keys["channels"] = channels
    clients.publications = [keys] * max(channels, 1)
    if line.has("variable-rate"):
        _vary_rate(line, clients)
        return
    limit_messages(clients, line)
    if clients.messages is not None and channels > 1:
        messages = line.number("pmessages") * channels
        clients.messages = Remarked(Plain(f"{messages}/client"), "-C messages of each channel (-X)")


def _rate(line: GivenCommand) -> Keys:
    if line.has("publishing-interval"):
        return pace(1000 * line.decimal("publishing-interval"))
    if line.has("variable-rate"):
        return {"rate": Plain("1/s")}
    return message_rate(line)


def _size(line: GivenCommand) -> Keys:
    if not line.has("variable-size"):
        return {"size": message_size(line)}
    weights: dict[str, object] = {}
    for bytes_, seconds in _steps(line, "variable-size"):
        size = f"{max(SMALLEST, bytes_)}B"
        weights[size] = int(str(weights.get(size, 0))) + seconds
    return {"size": Remarked({"histogram": weights}, "sizes of -vs by their seconds, mixed")}


def _steps(line: GivenCommand, name: str) -> list[tuple[int, int]]:
    """Returns values with the seconds that each lasts. Raises UsageError."""
    found = [STEP.fullmatch(each) for each in line.all(name)]
    steps = [(int(each[1]), int(each[2])) for each in found if each is not None]
    if len(steps) < len(found) or not all(seconds for _, seconds in steps):
        raise line.unfit(name, "is VALUE:SECONDS such as 100:60")
    return steps


def _vary_rate(line: GivenCommand, clients: ImportedClients) -> None:
    """Gives the load the rates of `-vr`, again and again, as factors of 1/s."""
    steps = _steps(line, "variable-rate")
    end = line.number("time") or sum(seconds for _, seconds in steps)
    points: list[object] = []
    at = 0
    while at < end:
        rate, seconds = steps[len(points) // 2 % len(steps)]
        for instant in (at, min(at + seconds, end)):
            points.append({"at": Plain(f"{instant}s"), "factor": rate})
        at += seconds
        if len(points) > 2 * STEPS_MAX:
            raise line.unfit("time", f"has up to {STEPS_MAX} steps of -vr", "write a shorter -z")
    clients.length = Plain(f"{end}s")
    clients.profile = {"rate_profile": {"points": points}}

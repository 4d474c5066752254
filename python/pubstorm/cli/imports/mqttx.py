"""Command lines of MQTTX: `conn`, `pub`, `sub`, their `bench` and `simulate`."""

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
from pubstorm.cli.imports.words import (
    GivenCommand,
    Grammar,
    Option,
    parsed,
    program_of,
    tls_keys,
)
from pubstorm.errors import UsageError

PROGRAMS = frozenset({"mqttx", "mqttx-cli"})
MESSAGE = "Hello From MQTTX CLI"
PUBLISH = ("pub", "simulate")
FILES = "payload: has the text, and rows: the values of a file"
FORMATS = "payload: has texts and JSON, and no other encoding"
DISPLAY = "the display and the run directory show what a run does"
SETTINGS = "the scenario is the file of the settings"
NOT_ASKED = "the clients do not ask for this information"
TOPIC_ALIAS = "topic_alias: true of a publication uses aliases"
OPTIONS = {
    "mqtt-version": Option("V", "5"),
    "hostname": Option("h", "localhost"),
    "port": Option("p", "1883"),
    "client-id": Option("i"),
    "no-clean": Option(is_flag=True),
    "keepalive": Option("k", "30"),
    "username": Option("u"),
    "password": Option("P", is_secret=True),
    "protocol": Option("l", "mqtt"),
    "path": Option("", "/mqtt"),
    "ws-headers": Option("wh", is_many=True, is_secret=True),
    "key": Option(),
    "cert": Option(),
    "ca": Option(),
    "insecure": Option(is_flag=True),
    "reconnect-period": Option("rp", "1000"),
    "session-expiry-interval": Option("se"),
    "receive-maximum": Option("rcv-max"),
    "maximum-packet-size": Option(),
    "topic-alias-maximum": Option(),
    "conn-user-properties": Option("Cup", is_many=True, of=(*PUBLISH, "sub")),
    "user-properties": Option("up", is_many=True),
    "will-topic": Option("Wt"),
    "will-message": Option("Wm", ""),
    "will-qos": Option("Wq", "0"),
    "will-retain": Option("Wr", is_flag=True),
    "will-delay-interval": Option("Wd"),
    "will-payload-format-indicator": Option("Wpf", is_flag=True),
    "will-message-expiry-interval": Option("We"),
    "will-content-type": Option("Wct"),
    "will-response-topic": Option("Wrt"),
    "will-correlation-data": Option("Wcd"),
    "will-user-properties": Option("Wup", is_many=True),
    "topic": Option("t", is_many=True, of=(*PUBLISH, "sub")),
    "qos": Option("q", "0", is_many=True, of=(*PUBLISH, "sub")),
    "message": Option("m", MESSAGE, of=("pub",)),
    "payload-size": Option("S", of=("pub",)),
    "retain": Option("r", is_flag=True, of=PUBLISH),
    "payload-format-indicator": Option("pf", is_flag=True, of=PUBLISH),
    "message-expiry-interval": Option("e", of=PUBLISH),
    "response-topic": Option("rt", of=PUBLISH),
    "correlation-data": Option("cd", of=PUBLISH),
    "content-type": Option("ct", of=PUBLISH),
    "no_local": Option("nl", is_flag=True, is_many=True, of=("sub",)),
    "retain-as-published": Option("rap", is_flag=True, is_many=True, of=("sub",)),
    "retain-handling": Option("rh", "0", is_many=True, of=("sub",)),
    "subscription-identifier": Option("si", is_many=True, of=(*PUBLISH, "sub")),
    "alpn": Option(is_many=True),
    "maximum-reconnect-times": Option(remark="clients try until the run ends, or never"),
    "req-response-info": Option(is_flag=True, remark=NOT_ASKED),
    "no-req-problem-info": Option(is_flag=True, remark=NOT_ASKED),
    "save-options": Option("so", is_flag=True, is_many=True, remark=SETTINGS),
    "load-options": Option("lo", is_flag=True, is_many=True, remark=SETTINGS),
    "authentication-method": Option("am", remark="authentication: has steps of your own"),
    "dup": Option("d", is_flag=True, of=PUBLISH, remark="MQTT sets it where a client sends again"),
    "topic-alias": Option("ta", of=PUBLISH, remark=TOPIC_ALIAS),
    "verbose": Option("v", is_flag=True, of=(*PUBLISH, "sub"), remark=DISPLAY),
    "debug": Option(is_flag=True, remark=DISPLAY),
    "file-read": Option(of=("pub",), remark=FILES),
}
SINGLE_OPTIONS = OPTIONS | {
    "stdin": Option("s", is_flag=True, of=("pub",), remark=FILES),
    "multiline": Option("M", is_flag=True, of=("pub",), remark=FILES),
    "line-mode": Option("lm", is_flag=True, of=("pub",), remark=FILES),
    "format": Option("f", of=("pub", "sub"), remark=FORMATS),
    "protobuf-path": Option("Pp", of=("pub", "sub"), remark=FORMATS),
    "protobuf-message-name": Option("Pmn", of=("pub", "sub"), remark=FORMATS),
    "avsc-path": Option("Ap", of=("pub", "sub"), remark=FORMATS),
    "output-mode": Option(of=("sub",), remark=DISPLAY),
    "file-write": Option(of=("sub",), remark=DISPLAY),
    "file-save": Option(of=("sub",), remark=DISPLAY),
    "delimiter": Option(is_flag=True, is_many=True, of=("sub",), remark=DISPLAY),
}
BENCH_OPTIONS = OPTIONS | {
    "client-id": Option("I"),
    "count": Option("c", "1000"),
    "interval": Option("i", "10"),
    "message-interval": Option("im", "1000", of=PUBLISH),
    "limit": Option("L", "0", of=PUBLISH),
    "split": Option(is_flag=True, is_many=True, of=("pub",), remark=FILES),
    "scenario": Option("sc", of=("simulate",), remark="payload: has templates for such data"),
    "file": Option("f", of=("simulate",), remark="payload: has templates for such data"),
}
EXAMPLE = 'pubstorm import mqttx "mqttx bench pub -c 100 -t bench/%i"'
SINGLE = Grammar("mqttx", PROGRAMS, SINGLE_OPTIONS, EXAMPLE, ("conn", "pub", "sub", "bench"))
BENCH = Grammar("mqttx bench", PROGRAMS, BENCH_OPTIONS, EXAMPLE, ("conn", "pub", "sub"))
SIMULATE = Grammar("mqttx", PROGRAMS, BENCH_OPTIONS, EXAMPLE, ("simulate",))
VERSIONS = {"3.1": "3.1", "3.1.1": "3.1.1", "5": "5", "5.0": "5"}
VERSION_WORDS = "3.1, 3.1.1 or 5"
PROTOCOLS = {name: name for name in ("mqtt", "mqtts", "ws", "wss")}
HANDLINGS = {"0": "send", "1": "send_if_new", "2": "never"}
RANDOM_ID = "mqttx"
"""Text of `%c` in place of one with random digits."""
SIMULATED_BYTES = 256
OF_MQTT_5 = (
    "session-expiry-interval",
    "receive-maximum",
    "maximum-packet-size",
    "topic-alias-maximum",
    "conn-user-properties",
    "user-properties",
    "message-expiry-interval",
    "payload-format-indicator",
    "response-topic",
    "correlation-data",
    "content-type",
    "no_local",
    "retain-as-published",
    "retain-handling",
    "subscription-identifier",
    *(name for name in OPTIONS if name.startswith("will-") and name.count("-") > 1),
)
SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([BKMG]?)B?", re.IGNORECASE)
FACTORS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def read(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line. Raises UsageError."""
    rest = [*words]
    start = next((at + 1 for at, word in enumerate(rest) if program_of(word) in PROGRAMS), 0)
    head = rest[start] if start < len(rest) else ""
    if head == "bench":
        line = parsed(BENCH, rest[start + 1 :])
        line.shown[:0] = ["mqttx", "bench"]
    else:
        line = parsed(SIMULATE if head == "simulate" else SINGLE, rest)
    if line.action != "conn" and not (line.has("topic") or line.action == "simulate"):
        raise UsageError(f"found no -t with {line.action}, which needs a topic")
    is_bench = line.grammar is not SINGLE
    name = "pub" if line.action in PUBLISH else line.action
    clients = ImportedClients(name, [_address(line)], dict(_keys(line, is_bench=is_bench)))
    remarks = [*line.remarks(dict(_reasons(line)))]
    if line.action == "simulate":
        remarks.append(f"# messages of the simulation are {SIMULATED_BYTES} bytes of any content")
    scenario = ImportedScenario([f"# {line.comment}", *remarks], [clients])
    if is_bench and line.number("interval"):
        clients.connect = {"rate": mean_rate(1000, line.number("interval"))}
    if line.action == "sub":
        clients.subscriptions = [*_subscriptions(line, is_bench=is_bench)]
    if line.action in PUBLISH:
        clients.publications = [_publication(line, is_bench=is_bench)]
        _length(clients, line, is_bench=is_bench)
    return scenario


def _reasons(line: GivenCommand) -> Iterator[tuple[str, str]]:
    """Yields the options that this command line does not need, with the reason."""
    protocol = line.text("protocol")
    if line.one_of("mqtt-version", VERSIONS, VERSION_WORDS) != "5":
        yield from ((name, "only MQTT 5 has it") for name in OF_MQTT_5)
    if protocol not in {"mqtts", "wss"}:
        yield from ((name, "only mqtts and wss have TLS") for name in ("key", "cert", "ca"))
        yield "insecure", "only mqtts and wss have TLS"
    if not protocol.startswith("ws"):
        yield from ((name, "only ws and wss have it") for name in ("path", "ws-headers"))
    if not line.has("will-topic"):
        wills = (name for name in OPTIONS if name.startswith("will-"))
        yield from ((name, "a will needs -Wt") for name in wills)
    if line.action == "sub":
        yield "user-properties", "a subscription has no user properties"
        if len(_no_local(line)) > 1:
            yield "no_local", "all subscriptions of a population have it, or none"
    if line.action in PUBLISH:
        yield "subscription-identifier", "a client does not send it"


def _address(line: GivenCommand) -> str:
    protocol = line.one_of("protocol", PROTOCOLS, "mqtt, mqtts, ws or wss")
    path = line.text("path") if protocol.startswith("ws") else ""
    path = path if not path or path.startswith("/") else f"/{path}"
    return address(protocol, line.text("hostname"), line.number("port"), path)


def _keys(line: GivenCommand, *, is_bench: bool) -> Iterator[tuple[str, object]]:
    yield "clients", line.number("count") if is_bench else 1
    yield "first", 1
    if line.has("client-id"):
        yield "client_id", _client_id(line, is_bench=is_bench)
    version = line.one_of("mqtt-version", VERSIONS, VERSION_WORDS)
    yield "version", version
    yield "keep_alive", Plain(f"{line.number('keepalive')}s")
    if line.is_on("no-clean"):
        yield "session", Plain("persistent")
    if not line.number("reconnect-period"):
        yield "reconnect", Plain("never")
    elif line.has("reconnect-period"):
        wait = milliseconds(line.number("reconnect-period"))
        yield "reconnect", {"after": wait, "up_to": wait}
    for key in ("username", "password"):
        if (text := line.value(key)) is not None:
            yield key, literal(text)
    if line.text("protocol") in {"mqtts", "wss"} and (tls := dict(_tls(line))):
        yield "tls", tls
    if line.text("protocol").startswith("ws") and line.has("ws-headers"):
        yield "headers", _pairs(line, "ws-headers")
    if version == "5":
        yield from _properties(line)
    if line.has("will-topic"):
        yield "will", dict(_will(line, version))


def _properties(line: GivenCommand) -> Iterator[tuple[str, object]]:
    if line.has("session-expiry-interval"):
        yield "session_expiry", Plain(f"{line.number('session-expiry-interval')}s")
    for key, name in (
        ("receive_maximum", "receive-maximum"),
        ("maximum_packet_size", "maximum-packet-size"),
        ("topic_aliases", "topic-alias-maximum"),
    ):
        if line.has(name):
            number = line.number(name)
            yield key, Plain(f"{number}B") if key == "maximum_packet_size" else number
    name = "user-properties" if line.action == "conn" else "conn-user-properties"
    if line.has(name):
        yield "user_properties", _pairs(line, name)


def _will(line: GivenCommand, version: str) -> Iterator[tuple[str, object]]:
    yield "topic", literal(line.text("will-topic"))
    yield "payload", literal(line.text("will-message"))
    yield "qos", _qos(line, "will-qos", line.text("will-qos"))
    if line.is_on("will-retain"):
        yield "retain", True
    if version != "5":
        return
    for key, name in (("delay", "will-delay-interval"), ("expiry", "will-message-expiry-interval")):
        if line.has(name):
            yield key, Plain(f"{line.number(name)}s")
    yield from _message_properties(line, "will-", "will-user-properties")


def _message_properties(
    line: GivenCommand, prefix: str, user_properties: str
) -> Iterator[tuple[str, object]]:
    """Yields the properties of MQTT 5 that messages and wills have."""
    if line.has(f"{prefix}payload-format-indicator"):
        yield "payload_format", Plain("text")
    for key in ("content_type", "response_topic", "correlation_data"):
        name = prefix + key.replace("_", "-")
        if line.has(name):
            yield key, literal(line.text(name))
    if line.has(user_properties):
        yield "user_properties", _pairs(line, user_properties)


def _subscriptions(line: GivenCommand, *, is_bench: bool) -> Iterator[Keys]:
    is_5 = line.one_of("mqtt-version", VERSIONS, VERSION_WORDS) == "5"
    for number, topic in enumerate(line.all("topic")):
        qos = _each(line, "qos", number)
        keys: Keys = {"topic": _topic(topic, line, is_bench=is_bench)}
        keys["qos"] = _qos(line, "qos", qos)
        if is_5 and _no_local(line) == {"true"}:
            keys["no_local"] = True
        if is_5 and _each(line, "retain-as-published", number) == "true":
            keys["retain_as_published"] = True
        if is_5 and line.has("retain-handling"):
            handling = HANDLINGS.get(_each(line, "retain-handling", number))
            if handling is None:
                raise line.unfit("retain-handling", "is 0, 1 or 2")
            keys["retain_handling"] = Plain(handling)
        if is_5 and line.has("subscription-identifier"):
            keys["identifier"] = Plain(_each(line, "subscription-identifier", number))
            line.number("subscription-identifier")
        yield keys


def _no_local(line: GivenCommand) -> set[str]:
    return {_each(line, "no_local", number) for number in range(len(line.all("topic")))}


def _publication(line: GivenCommand, *, is_bench: bool) -> Keys:
    keys: Keys = {"topic": _topic(_bench_topic(line), line, is_bench=is_bench)}
    keys |= pace(line.number("message-interval") if is_bench else 1000)
    if line.action == "simulate":
        keys["size"] = SIMULATED_BYTES
    elif line.has("payload-size") and not line.has("message"):
        keys["size"] = _size(line)
    else:
        keys["payload"] = literal(line.text("message"))
    keys["qos"] = _qos(line, "qos", line.text("qos"))
    if line.is_on("retain"):
        keys["retain"] = True
    if line.one_of("mqtt-version", VERSIONS, VERSION_WORDS) == "5":
        if line.has("message-expiry-interval"):
            keys["expiry"] = Plain(f"{line.number('message-expiry-interval')}s")
        keys |= dict(_message_properties(line, "", "user-properties"))
    return keys


def _length(clients: ImportedClients, line: GivenCommand, *, is_bench: bool) -> None:
    if not is_bench:
        limit(clients, "one message", 1, 1000)
        return
    if total := line.number("limit"):
        each = math.ceil(total / max(line.number("count"), 1))
        shown = f"-L {total} messages of all clients"
        limit(clients, shown, each, line.number("message-interval"), total)


def _client_id(line: GivenCommand, *, is_bench: bool) -> str:
    given = line.text("client-id")
    if is_bench and "%i" not in given and line.number("count") > 1:
        return f"{literal(given)}_{{n}}"
    return template(given, {"%i": "{n}"}) if is_bench else literal(given)


def _bench_topic(line: GivenCommand) -> str:
    topics = line.all("topic")
    return topics[-1] if topics else "mqttx/simulate/%sc/%c"


def _topic(text: str, line: GivenCommand, *, is_bench: bool) -> str:
    """Returns a topic as a template: `%c` is the client identifier as it is given."""
    if not is_bench:
        return literal(text)
    known = {"%i": "{n}", "%c": literal(line.value("client-id") or RANDOM_ID)}
    if line.has("username"):
        known["%u"] = literal(line.text("username"))
    if line.action == "simulate":
        known = {"%sc": literal(line.value("scenario") or "simulate"), **known}
    return template(text, known)


def _size(line: GivenCommand) -> int:
    found = SIZE.fullmatch(line.text("payload-size"))
    if found is None:
        raise line.unfit("payload-size", "is a size such as 512B, 1KB or 2MB")
    return round(float(found[1]) * FACTORS[found[2].upper()])


def _qos(line: GivenCommand, name: str, text: str) -> int:
    if text not in {"0", "1", "2"}:
        raise line.unfit(name, "is 0, 1 or 2")
    return int(text)


def _each(line: GivenCommand, name: str, number: int) -> str:
    """Returns the value of an option for topic `number`: its own, or the first one."""
    values = line.all(name) or ["false"]
    return values[number] if number < len(values) else values[0]


def _tls(line: GivenCommand) -> Iterator[tuple[str, object]]:
    yield from tls_keys(line, "ca")
    if names := line.all("alpn"):
        yield "alpn", names


def _pairs(line: GivenCommand, name: str) -> Keys:
    pairs: Keys = {}
    for text in line.all(name):
        key, colon, value = text.partition(": ")
        if not colon:
            raise line.unfit(name, 'is "NAME: VALUE"')
        pairs[key] = literal(value)
    return pairs

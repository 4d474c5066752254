"""Command lines of mqtt-stresser and mqtt-benchmark, which send a number of messages each."""

from __future__ import annotations

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
    pace,
)
from pubstorm.cli.imports.words import GivenCommand, Grammar, Option, parsed
from pubstorm.errors import UsageError

DISPLAY = "the display and the run directory show what a run does"
ANSWERS = "drain: is the longest wait for messages in flight"
STRESSER = Grammar(
    "mqtt-stresser",
    frozenset({"mqtt-stresser"}),
    {
        "broker": Option(),
        "num-clients": Option("", "10"),
        "num-messages": Option("", "10"),
        "pause-between-messages": Option("", "0s"),
        "rampup-size": Option("", "100"),
        "rampup-delay": Option("", "500ms"),
        "publisher-qos": Option("", "0"),
        "subscriber-qos": Option("", "0"),
        "retain": Option(is_flag=True),
        "constant-payload": Option(),
        "topic-base-path": Option("", "internal/mqtt-stresser"),
        "username": Option(),
        "password": Option(is_secret=True),
        "cafile": Option(),
        "cert": Option(),
        "key": Option(),
        "skip-tls-verification": Option(is_flag=True),
        "timeout": Option(remark=ANSWERS),
        "global-timeout": Option(remark=ANSWERS),
        "log-level": Option(remark=DISPLAY),
        "no-progress": Option(is_flag=True, remark=DISPLAY),
        "profile-cpu": Option(remark=DISPLAY),
        "profile-mem": Option(remark=DISPLAY),
    },
    'pubstorm import mqtt-stresser "mqtt-stresser -broker tcp://HOST:1883 -num-clients 100"',
    has_one_dash=True,
)
BENCHMARK = Grammar(
    "mqtt-benchmark",
    frozenset({"mqtt-benchmark"}),
    {
        "broker": Option("", "tcp://localhost:1883"),
        "clients": Option("", "10"),
        "count": Option("", "100"),
        "message-interval": Option("", "1"),
        "ramp-up-time": Option("", "0"),
        "topic": Option("", "/test"),
        "payload": Option(),
        "size": Option("", "100"),
        "qos": Option("", "1"),
        "client-prefix": Option("", "mqtt-benchmark"),
        "username": Option(),
        "password": Option(is_secret=True),
        "client-cert": Option(),
        "client-key": Option(),
        "broker-ca-cert": Option(),
        "insecure": Option(is_flag=True),
        "wait": Option(remark=ANSWERS),
        "format": Option(remark=DISPLAY),
        "quiet": Option(is_flag=True, remark=DISPLAY),
    },
    'pubstorm import mqtt-benchmark "mqtt-benchmark --broker tcp://HOST:1883 --clients 100"',
    has_one_dash=True,
)
SCHEMES = {
    "tcp": "mqtt",
    "mqtt": "mqtt",
    "ssl": "mqtts",
    "tls": "mqtts",
    "mqtts": "mqtts",
    "ws": "ws",
    "wss": "wss",
}
"""Schemes of Paho, by which both tools connect."""
URL = re.compile(r"([a-z]+)://(?:[^/@]*@)?(\[[^]]*\]|[^:/]*)(?::([0-9]{1,5}))?(/.*)?", re.DOTALL)
QOS = {"0": "0", "1": "1", "2": "2"}
VERSION = "3.1.1"
GENERATED = "this is msg #{seq}!"
"""Payload of mqtt-stresser without one of its own."""


def read_stresser(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line of mqtt-stresser. Raises UsageError."""
    line = parsed(STRESSER, words)
    if not line.has("broker"):
        raise UsageError(
            "found no -broker, which mqtt-stresser needs", f"such as {STRESSER.example}"
        )
    target, has_tls = broker(line)
    number, base = line.number("num-clients"), literal(line.text("topic-base-path"))
    files = {"ca": "cafile", "certificate": "cert", "key": "key"}
    keys = dict(_keys(line, number, files if has_tls else {}, "skip-tls-verification"))
    topic = f"{base}/worker{{n}}"
    subscriber = ImportedClients("subscriber", [target], keys)
    qos = int(line.one_of("subscriber-qos", QOS, "0, 1 or 2"))
    subscriber.subscriptions = [{"topic": topic, "qos": qos}]
    publisher = ImportedClients("publisher", [target], keys)
    publication: Keys = {"topic": topic}
    pause_ms = line.duration_ms("pause-between-messages")
    publication |= pace(pause_ms)
    text = line.value("constant-payload")
    publication["payload"] = GENERATED if text is None else literal(text)
    publication["qos"] = int(line.one_of("publisher-qos", QOS, "0, 1 or 2"))
    if line.is_on("retain"):
        publication["retain"] = True
    if publication["qos"]:
        publication["window"] = 1
    publisher.publications = [publication]
    messages = line.number("num-messages")
    limit(publisher, f"-num-messages {messages} of each client", messages, pause_ms)
    size, delay_ms = line.number("rampup-size"), line.duration_ms("rampup-delay")
    connect: Keys = {"rate": mean_rate(size * 1000, delay_ms)} if size and delay_ms else {}
    subscriber.connect = publisher.connect = connect
    remarks = [*line.remarks({} if has_tls else dict(_without_tls(files, line)))]
    if text is not None and text.startswith("@"):
        remarks.append("# -constant-payload names a file: payload: has its text")
    return ImportedScenario([f"# {line.comment}", *remarks], [subscriber, publisher])


def read_benchmark(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line of mqtt-benchmark. Raises UsageError."""
    line = parsed(BENCHMARK, words)
    target, has_tls = broker(line)
    number, qos = line.number("clients"), int(line.one_of("qos", QOS, "0, 1 or 2"))
    files = {"ca": "broker-ca-cert", "certificate": "client-cert", "key": "client-key"}
    keys: Keys = {"client_id": f"{literal(line.text('client-prefix'))}-{{n}}"}
    keys = dict(_keys(line, number, files if has_tls else {}, "insecure")) | keys
    publisher = ImportedClients("publisher", [target], keys)
    interval_ms = 1000 * line.number("message-interval")
    publication: Keys = {"topic": literal(line.text("topic"))}
    publication |= pace(interval_ms)
    text = line.value("payload")
    publication |= {"payload": literal(text)} if text else {"size": line.number("size")}
    publication["qos"] = qos
    if qos:
        publication["window"] = 1
    publisher.publications = [publication]
    messages = line.number("count")
    limit(publisher, f"-count {messages} messages of each client", messages, interval_ms)
    ramp_s = line.number("ramp-up-time")
    publisher.connect = {"over": Plain(f"{ramp_s}s")} if ramp_s else {}
    remarks = line.remarks({} if has_tls else dict(_without_tls(files, line)))
    return ImportedScenario([f"# {line.comment}", *remarks], [publisher])


def broker(line: GivenCommand) -> tuple[str, bool]:
    """Returns the address of a broker as Pubstorm writes it, and True if it has TLS. Raises
    UsageError."""
    found = URL.fullmatch(line.text("broker"))
    scheme = SCHEMES.get(found[1]) if found else None
    if found is None or scheme is None:
        raise line.unfit("broker", "is tcp://HOST:PORT, ssl://HOST:PORT or ws://HOST:PORT")
    has_tls = scheme in {"mqtts", "wss"}
    port = found[3] or (8883 if has_tls else 1883)
    path = (found[4] or "") if scheme.startswith("ws") else ""
    return address(scheme, found[2], port, path), has_tls


def _keys(
    line: GivenCommand, number: int, files: dict[str, str], insecure: str
) -> Iterator[tuple[str, object]]:
    yield "clients", number
    yield "version", VERSION
    yield "keep_alive", Plain("30s")
    for key in ("username", "password"):
        if line.text(key):
            yield key, literal(line.text(key))
    tls: Keys = {key: line.text(name) for key, name in files.items() if line.has(name)}
    if files and line.is_on(insecure):
        tls["verify"] = False
    if tls:
        yield "tls", tls


def _without_tls(files: dict[str, str], line: GivenCommand) -> Iterator[tuple[str, str]]:
    for name in (*files.values(), "skip-tls-verification", "insecure"):
        if name in line.grammar.options:
            yield name, "the address has no TLS"

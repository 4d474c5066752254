"""Command lines of mosquitto_pub and mosquitto_sub: one client each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    address,
    limit,
    literal,
    pace,
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

PROGRAMS = {"mosquitto_pub": "pub", "mosquitto_sub": "sub"}
PUB, SUB = ("pub",), ("sub",)
INPUT = "payload: has the text"
DISPLAY = "the display and the run directory show what a run does"
FILTER = "the clients count each message that they receive"
PSK = "tls: {psk: {file: FILE}} has a file of keys"
OPENSSL = "TLS uses PEM files"
OPTIONS = {
    "host": Option("h", "localhost"),
    "port": Option("p"),
    "url": Option("L"),
    "username": Option("u"),
    "pw": Option("P", is_secret=True),
    "id": Option("i"),
    "id-prefix": Option("I"),
    "keepalive": Option("k", "60"),
    "protocol-version": Option("V", "mqttv311"),
    "disable-clean-session": Option("c", is_flag=True),
    "session-expiry-interval": Option("x"),
    "topic": Option("t"),
    "qos": Option("q", "0"),
    "message": Option("m", of=PUB),
    "null-message": Option("n", is_flag=True, of=PUB),
    "retain": Option("r", is_flag=True, of=PUB),
    "repeat": Option("", "1", of=PUB),
    "repeat-delay": Option("", "0", of=PUB),
    "timeout": Option("W", of=SUB),
    "bind": Option("A"),
    "cafile": Option(),
    "cert": Option(),
    "key": Option(),
    "ciphers": Option(),
    "insecure": Option(is_flag=True),
    "tls-version": Option(),
    "tls-use-os-certs": Option(is_flag=True),
    "ws": Option(is_flag=True),
    "will-topic": Option(),
    "will-payload": Option("", ""),
    "will-qos": Option("", "0"),
    "will-retain": Option(is_flag=True),
    "retain-as-published": Option(is_flag=True, of=SUB),
    "retain-handling": Option(of=SUB),
    "file": Option("f", of=PUB, remark=INPUT),
    "stdin-line": Option("l", is_flag=True, of=PUB, remark=INPUT),
    "stdin-file": Option("s", is_flag=True, of=PUB, remark=INPUT),
    "max-inflight": Option("M", remark="mosquitto_pub sends one message after another"),
    "count": Option("C", of=SUB, remark="a stage has a time, and not a number of messages"),
    "property": Option("D", is_many=True, remark="keys of MQTT 5 have properties by name"),
    "capath": Option(remark="tls: {ca: FILE} has a file of authorities"),
    "debug": Option("d", is_flag=True, remark=DISPLAY),
    "quiet": Option(is_flag=True, remark=DISPLAY),
    "verbose": Option("v", is_flag=True, of=SUB, remark=DISPLAY),
    "format": Option("F", of=SUB, remark=DISPLAY),
    "output-file": Option("o", remark="the options of this file are not read"),
    "pretty": Option(is_flag=True, of=SUB, remark=DISPLAY),
    "no-eol": Option("N", is_flag=True, of=SUB, remark=DISPLAY),
    "watch": Option("w", is_flag=True, of=SUB, remark=DISPLAY),
    "latency": Option(is_flag=True, of=SUB, remark="each message with a stamp has a latency"),
    "message-rate": Option(is_flag=True, of=SUB, remark=DISPLAY),
    "filter-out": Option("T", of=SUB, remark=FILTER),
    "no-retained": Option("R", is_flag=True, of=SUB, remark=FILTER),
    "random-filter": Option(of=SUB, remark=FILTER),
    "retained-only": Option(is_flag=True, of=SUB, remark=FILTER),
    "remove-retained": Option(is_flag=True, of=SUB, remark="a run removes what it leaves"),
    "single-exit": Option("E", is_flag=True, of=SUB, remark="a stage has a time"),
    "unsubscribe": Option("U", of=SUB, remark="flapping: of a population unsubscribes"),
    "nodelay": Option(is_flag=True, remark="the clients do so always", unless="true"),
    "no-tls": Option(is_flag=True, remark="the address has no TLS", unless="true"),
    "srv": Option("S", is_flag=True, remark="target: has the hosts"),
    "proxy": Option(is_secret=True, remark="the clients connect without a proxy"),
    "psk": Option(is_secret=True, remark=PSK),
    "psk-identity": Option(remark=PSK),
    "unix": Option(remark="the clients connect by TCP"),
    "keyform": Option(remark=OPENSSL),
    "tls-engine": Option(remark=OPENSSL),
    "tls-engine-kpass-sha1": Option(is_secret=True, remark=OPENSSL),
    "tls-alpn": Option(),
    "tls-keylog": Option(),
}
"""Options by their long name; one without a long name in mosquitto has a name of ours."""
EXAMPLE = 'pubstorm import mosquitto "mosquitto_sub -t a/#" "mosquitto_pub -t a/b -m hello"'
MOSQUITTO = Grammar("mosquitto_", frozenset(), OPTIONS, EXAMPLE, ("pub", "sub"))
VERSIONS = {
    "mqttv31": "3.1",
    "31": "3.1",
    "mqttv311": "3.1.1",
    "311": "3.1.1",
    "mqttv5": "5",
    "5": "5",
}
VERSION_WORDS = "mqttv31, mqttv311 or mqttv5"
TLS_VERSIONS = {"tlsv1.2": "1.2", "tlsv1.3": "1.3"}
HANDLINGS = {"always": "send", "new": "send_if_new", "never": "never"}
OF_TLS = ("cafile", "cert", "key", "ciphers", "insecure", "tls-use-os-certs", "tls-version")
QOS = {"0": "0", "1": "1", "2": "2"}
FOREVER = frozenset({"-1", "4294967295", "\N{INFINITY}"})
WEBSOCKET_PATH = "/mqtt"
URL = re.compile(
    r"(?P<scheme>mqtts?|wss?)://(?:(?P<user>[^/:@]*)(?::(?P<password>[^/]*))?@)?"
    r"(?P<host>\[[^]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?/(?P<topic>.*)",
    re.DOTALL,
)


def read(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line. Raises UsageError."""
    start = next((at for at, word in enumerate(words) if program_of(word) in PROGRAMS), None)
    if start is None:
        found = words[0] if words else "nothing"
        message = f"found {found}, allowed is mosquitto_pub or mosquitto_sub"
        raise UsageError(message, f"such as {EXAMPLE}")
    action = PROGRAMS[program_of(words[start])]
    line = parsed(MOSQUITTO, [action, *words[start + 1 :]])
    line.shown[0] = f"mosquitto_{action}"
    url = _url(line)
    topics = [*line.all("topic"), *filter(None, [url.topic])]
    if not topics:
        raise UsageError(f"found no -t with mosquitto_{action}, which needs a topic")
    clients = ImportedClients(action, [url.address], dict(_keys(line, url)))
    scenario = ImportedScenario(
        [f"# {line.comment}", *line.remarks(dict(_reasons(line, url)))], [clients]
    )
    if action == "sub":
        clients.subscriptions = [_subscription(line, topic) for topic in topics]
        if line.has("timeout"):
            clients.length = Plain(f"{line.number('timeout')}s")
    else:
        _publish(clients, line, topics[-1])
    scenario.sources = [line.text("bind")] if line.has("bind") else []
    return scenario


@dataclass(frozen=True, slots=True)
class _Url:
    """The broker, the user and the topic that `-L` or the other options name."""

    address: str
    has_tls: bool
    topic: str
    username: str | None
    password: str | None


def _url(line: GivenCommand) -> _Url:
    found: dict[str, str | None] = {}
    if line.has("url"):
        match = URL.fullmatch(line.text("url"))
        if match is None:
            raise line.unfit("url", "is mqtt://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC")
        found = match.groupdict()
    has_tls = any(line.has(name) for name in OF_TLS)
    scheme = ("ws" if line.is_on("ws") else "mqtt") + ("s" if has_tls else "")
    scheme = found.get("scheme") or scheme
    has_tls = scheme in {"mqtts", "wss"}
    given = line.number("port") if line.has("port") else int(found.get("port") or 0)
    port = given or (8883 if has_tls else 1883)
    host = found.get("host") or line.text("host")
    return _Url(
        address(scheme, host, port, WEBSOCKET_PATH if scheme.startswith("ws") else ""),
        has_tls,
        found.get("topic") or "",
        found.get("user") or line.value("username"),
        found.get("password") or line.value("pw"),
    )


def _reasons(line: GivenCommand, url: _Url) -> Iterator[tuple[str, str]]:
    """Yields the options that this command line does not need, with the reason."""
    if line.text("protocol-version") not in {"mqttv5", "5"}:
        for name in ("session-expiry-interval", "retain-as-published", "retain-handling"):
            yield name, "only MQTT 5 has it"
    if not url.has_tls:
        yield from ((name, "the address has no TLS") for name in OF_TLS)
    if line.has("url"):
        yield from ((name, "the address of -L replaces it") for name in ("host", "ws"))
    if not line.has("will-topic"):
        wills = ("will-payload", "will-qos", "will-retain")
        yield from ((name, "a will needs --will-topic") for name in wills)
    if line.number("repeat") < 2:
        yield "repeat-delay", "it needs --repeat"


def _keys(line: GivenCommand, url: _Url) -> Iterator[tuple[str, object]]:
    yield "clients", 1
    if line.has("id"):
        yield "client_id", literal(line.text("id"))
    elif line.has("id-prefix"):
        yield "client_id", f"{literal(line.text('id-prefix'))}{{n}}"
    version = line.one_of("protocol-version", VERSIONS, VERSION_WORDS)
    yield "version", version
    yield "keep_alive", Plain(f"{line.number('keepalive')}s")
    if line.is_on("disable-clean-session"):
        yield "session", Plain("persistent")
    if version == "5" and line.has("session-expiry-interval"):
        is_endless = line.text("session-expiry-interval") in FOREVER
        seconds = "never" if is_endless else f"{line.number('session-expiry-interval')}s"
        yield "session_expiry", Plain(seconds)
    for key, text in (("username", url.username), ("password", url.password)):
        if text is not None:
            yield key, literal(text)
    if url.has_tls and (tls := dict(_tls(line))):
        yield "tls", tls
    if line.has("will-topic"):
        yield "will", _will(line)


def _tls(line: GivenCommand) -> Iterator[tuple[str, object]]:
    yield from tls_keys(line, "cafile")
    if line.has("tls-version"):
        version = line.one_of("tls-version", TLS_VERSIONS, "tlsv1.2 or tlsv1.3")
        yield from (("min_version", version), ("max_version", version))
    if line.has("ciphers"):
        yield "ciphers", line.text("ciphers")
    if line.has("tls-alpn"):
        yield "alpn", [line.text("tls-alpn")]
    if line.has("tls-keylog"):
        yield "key_log", line.text("tls-keylog")


def _will(line: GivenCommand) -> Keys:
    keys: Keys = {
        "topic": literal(line.text("will-topic")),
        "payload": literal(line.text("will-payload")),
        "qos": int(line.one_of("will-qos", QOS, "0, 1 or 2")),
    }
    return keys | ({"retain": True} if line.is_on("will-retain") else {})


def _subscription(line: GivenCommand, topic: str) -> Keys:
    keys: Keys = {"topic": literal(topic), "qos": int(line.one_of("qos", QOS, "0, 1 or 2"))}
    if line.one_of("protocol-version", VERSIONS, VERSION_WORDS) != "5":
        return keys
    if line.is_on("retain-as-published"):
        keys["retain_as_published"] = True
    if line.has("retain-handling"):
        handling = line.one_of("retain-handling", HANDLINGS, "always, new or never")
        keys["retain_handling"] = Plain(handling)
    return keys


def _publish(clients: ImportedClients, line: GivenCommand, topic: str) -> None:
    qos = int(line.one_of("qos", QOS, "0, 1 or 2"))
    repeat, delay_ms = line.number("repeat"), round(line.decimal("repeat-delay") * 1000)
    keys: Keys = {"topic": literal(topic)}
    interval_ms = max(delay_ms, 0) if repeat > 1 else 1000
    keys |= pace(interval_ms)
    shown = f"--repeat {repeat} messages" if repeat > 1 else "one message"
    limit(clients, shown, max(repeat, 1), interval_ms)
    is_empty = line.is_on("null-message") or not line.has("message")
    keys |= {"size": 0} if is_empty else {"payload": literal(line.text("message"))}
    keys["qos"] = qos
    if line.is_on("retain"):
        keys["retain"] = True
    if qos:
        keys["window"] = 1
    clients.publications = [keys]

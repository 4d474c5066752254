"""Command lines of emqtt_bench: `conn`, `pub` and `sub`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

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
    template,
)
from pubstorm.cli.imports.words import GivenCommand, Grammar, Option, parsed, printable
from pubstorm.contract.template import RANGE_VALUES_MAX
from pubstorm.errors import REDACTED, UsageError

WEBSOCKET_PATH = "/mqtt"
MESSAGES = ("pub", "sub")
CLIENT_OF_TLS = "the algorithms are those of OpenSSL"
OWN_METRICS = "the run directory has these figures"
WAITS = "reconnect: of a population has the waits"
OWN_MEMORY = "the engine takes little memory by itself"
TICKETS = "write tls: {resume: 100%}: clients keep the tickets of their own connections"
SPREAD = "the clients are spread over the interval"
OPTIONS = {
    "host": Option("h", "localhost"),
    "port": Option("p", "1883"),
    "version": Option("V", "5"),
    "count": Option("c", "200"),
    "connrate": Option("R", "0"),
    "interval": Option("i", "10"),
    "ifaddr": Option(),
    "prefix": Option(),
    "shortids": Option(is_flag=True),
    "startnumber": Option("n", "0"),
    "ssl": Option("S", is_flag=True),
    "ssl-version": Option(),
    "cacertfile": Option(),
    "certfile": Option(),
    "keyfile": Option(),
    "ciphers": Option(),
    "ws": Option(is_flag=True),
    "username": Option("u"),
    "password": Option("P", is_secret=True),
    "keepalive": Option("k", "300"),
    "clean": Option("C", "true", is_flag=True),
    "session-expiry": Option("x", "0"),
    "topic": Option("t", of=MESSAGES),
    "qos": Option("q", "0", of=MESSAGES),
    "interval_of_msg": Option("I", "1000", of=("pub",)),
    "size": Option("s", "256", of=("pub",)),
    "message": Option("m", of=("pub",)),
    "retain": Option("r", is_flag=True, of=("pub",)),
    "limit": Option("L", "0", of=("pub",)),
    "inflight": Option("F", "1", of=("pub",)),
    "wait-before-publishing": Option("w", is_flag=True, of=("pub",)),
    "num-retry-connect": Option(remark=WAITS),
    "reconnect": Option(remark=WAITS),
    "signature-algs": Option(remark=CLIENT_OF_TLS),
    "keyex-algs": Option(remark=CLIENT_OF_TLS),
    "dist": Option("d", is_flag=True, remark="fleet: plays a scenario on many hosts"),
    "lowmem": Option("l", is_flag=True, remark=OWN_MEMORY),
    "force-major-gc-interval": Option(remark=OWN_MEMORY),
    "qoe": Option("Q", is_flag=True, remark=OWN_METRICS),
    "qoelog": Option(remark=OWN_METRICS),
    "prometheus": Option(is_flag=True, remark=OWN_METRICS),
    "restapi": Option(remark=OWN_METRICS),
    "log_to": Option(remark="--quiet of pubstorm run shows less"),
    "payload-hdrs": Option(of=MESSAGES, remark="a payload without text has a stamp"),
    "max-random-wait": Option(of=("pub",), remark=SPREAD),
    "min-random-wait": Option(of=("pub",), remark=SPREAD),
    "retry-interval": Option(of=("pub",), remark="MQTT sends again after a reconnect only"),
    "keep-connected": Option(is_flag=True, of=("pub",), remark="a hold stage keeps clients"),
    "quic": Option(is_flag=True),
    "load-qst": Option(remark=TICKETS),
    "topics-payload": Option(of=("pub",), remark="write one publication for each topic"),
}
EMQTT_BENCH = Grammar(
    "emqtt_bench",
    frozenset({"emqtt_bench", "emqtt-bench"}),
    OPTIONS,
    'pubstorm import emqtt-bench "emqtt_bench pub -c 100 -t bench/%i"',
    ("conn", "pub", "sub"),
    has_flag_words=True,
)
VERSIONS = {"3": "3.1", "4": "3.1.1", "5": "5"}
QOS = {"0": "0", "1": "1", "2": "2"}
TLS_VERSIONS = {"tlsv1.2": "1.2", "tlsv1.3": "1.3", "tlsv1.3_nocompat": "1.3"}
FILES_OF_TLS = ("cacertfile", "certfile", "keyfile", "ciphers")
FILE_MESSAGE = "template://"
RANDOM = re.compile(r"%rand_([0-9]{1,18})")
PUBLISHES_AT_ONCE = (
    "# emqtt_bench publishes while it connects; here the load waits for the last client"
)


def read(words: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of a command line. Raises UsageError."""
    line = parsed(EMQTT_BENCH, words)
    if line.action != "conn" and not line.has("topic"):
        raise UsageError(f"found no -t with {line.action}, which needs a topic")
    reasons = {} if _has_tls(line) else dict.fromkeys(FILES_OF_TLS, "-S turns TLS on")
    remarks = [*line.remarks(reasons), *_text_remarks(line)]
    scenario = ImportedScenario([f"# {line.comment}", *remarks])
    clients = ImportedClients(line.action, _target(line), dict(_keys(line)))
    interval_ms = line.number("interval")
    per_s = line.number("connrate") or (1000 / interval_ms if interval_ms else 0)
    clients.connect = {"rate": mean_rate(per_s, 1)} if per_s else {}
    qos = int(line.one_of("qos", QOS, "0, 1 or 2"))
    if line.action == "sub":
        topics = [_topic(text, line) for text in line.all("topic")]
        clients.subscriptions = [{"topic": topic, "qos": qos} for topic in topics]
    if line.action == "pub":
        clients.publications = [_publication(line, qos)]
        if total := line.number("limit"):
            each = math.ceil(total / max(line.number("count"), 1))
            shown = f"-L {total} messages of all clients"
            limit(clients, shown, each, line.number("interval_of_msg"), total)
        if not line.is_on("wait-before-publishing"):
            scenario.before_load = [PUBLISHES_AT_ONCE]
    scenario.sources = line.text("ifaddr").split(",") if line.has("ifaddr") else []
    scenario.clients = [clients]
    return scenario


def _text_remarks(line: GivenCommand) -> Iterator[str]:
    for text in (*line.all("topic"), *line.all("username")):
        if "%%" in text:
            yield (
                f"# {printable(text)} is read as {printable(text.replace('%%', '%'))}:"
                " a service file doubles the character"
            )
        is_drawn = line.action == "pub" and text in line.all("topic")
        for found in () if is_drawn else RANDOM.finditer(text):
            last = max(int(found[1]) - 1, 0)
            yield f"# {found[0]} is a number from 0 to {last}, the same for a client in each run"


def _has_tls(line: GivenCommand) -> bool:
    return line.is_on("ssl") or line.has("ssl-version") or line.is_on("quic")


def _target(line: GivenCommand) -> list[str]:
    if line.is_on("quic") and line.is_on("ws"):
        raise line.unfit("quic", "is quic without --ws: WebSocket runs over TCP")
    scheme = ("ws" if line.is_on("ws") else "mqtt") + ("s" if _has_tls(line) else "")
    scheme = "quic" if line.is_on("quic") else scheme
    path = WEBSOCKET_PATH if line.is_on("ws") else ""
    port = line.number("port")
    return [address(scheme, host, port, path) for host in line.text("host").split(",")]


def _keys(line: GivenCommand) -> Iterator[tuple[str, object]]:
    yield "clients", line.number("count")
    yield "first", line.number("startnumber") + 1
    if (client_id := _client_id(line)) is not None:
        yield "client_id", client_id
    yield "version", line.one_of("version", VERSIONS, "3, 4 or 5")
    yield "keep_alive", Plain(f"{line.number('keepalive')}s")
    if not line.is_on("clean"):
        yield "session", Plain("persistent")
    if line.number("session-expiry"):
        yield "session_expiry", Plain(f"{line.number('session-expiry')}s")
    for key in ("username", "password"):
        if (text := line.value(key)) is not None:
            yield key, _filled(text, {"%i": "{n}"}, line, key)
    if _has_tls(line):
        yield "tls", dict(_tls(line))


def _tls(line: GivenCommand) -> Iterator[tuple[str, object]]:
    if line.text("cacertfile"):
        yield "ca", line.text("cacertfile")
    else:
        yield "verify", False
    for key, name in (("certificate", "certfile"), ("key", "keyfile")):
        if (path := line.value(name)) is not None:
            yield key, literal(path)
    if line.has("ssl-version"):
        version = line.one_of("ssl-version", TLS_VERSIONS, "tlsv1.2 or tlsv1.3")
        yield from (("min_version", version), ("max_version", version))
    if (ciphers := line.value("ciphers")) is not None:
        yield "ciphers", ciphers.replace(",", ":")


def _publication(line: GivenCommand, qos: int) -> Keys:
    topic = line.all("topic")[-1]
    keys: Keys = {"topic": _topic(topic, line)}
    if RANDOM.search(topic):
        keys["order"] = Plain("shuffled")
    keys |= pace(line.number("interval_of_msg"))
    if (text := line.value("message")) is None:
        keys["size"] = line.number("size")
    elif text.startswith(FILE_MESSAGE):
        raise UsageError(f"found -m {text}, which has no equal", "payload: has templates")
    else:
        keys["payload"] = literal(text)
    keys["qos"] = qos
    if line.is_on("retain"):
        keys["retain"] = True
    if qos and line.number("inflight"):
        keys["window"] = line.number("inflight")
    return keys


def _client_id(line: GivenCommand) -> str | None:
    prefix = literal(line.text("prefix"))
    if line.is_on("shortids"):
        return f"{prefix}{{n}}"
    return f"{prefix}_bench_{line.action}_{{n}}" if prefix else None


def _topic(text: str, line: GivenCommand) -> str:
    client_id, username = _client_id(line), line.value("username")
    known = {"%i": "{n}"}
    if client_id is not None:
        known["%c"] = client_id
    if username is not None:
        known["%u"] = _filled(username, {"%i": "{n}"}, line, "username")
    return _filled(text, known, line, "topic")


def _filled(text: str, known: Mapping[str, str], line: GivenCommand, name: str) -> str:
    """Returns a text of emqtt_bench as a template. Raises UsageError for a variable without an
    equal."""
    text = text if name == "password" else text.replace("%%", "%")
    is_drawn = name == "topic" and line.action == "pub"
    numbers = {} if name == "password" else {found[0]: int(found[1]) for found in _randoms(text)}
    for variable, number in numbers.items():
        if not 0 < number <= RANGE_VALUES_MAX:
            allowed = f"is 1 to {RANGE_VALUES_MAX}"
            raise UsageError(f"found {variable} in {EMQTT_BENCH.shown(name)} {text}, {allowed}")
        # A message has a number of its own from 1 on, a client one that stays the same.
        known = {**known, variable: f"{{1..{number}}}" if is_drawn else f"{{n%{number}}}"}
    shown = REDACTED if name == "password" else text
    if is_drawn and len(_randoms(text)) > 1:
        message = f"found a second random number in {EMQTT_BENCH.shown(name)} {shown}"
        raise UsageError(f"{message}, allowed is one in a topic")
    for variable in ("%rand_", "%s", "%c", "%u", "%i"):
        if variable in text and variable not in known and not (variable == "%rand_" and numbers):
            hint = "add --prefix, which %c needs" if variable == "%c" else None
            hint = "add -u, which %u needs" if variable == "%u" else hint
            named = EMQTT_BENCH.shown(name)
            raise UsageError(f"found {variable} in {named} {shown}: it has no equal", hint)
    return template(text, known)


def _randoms(text: str) -> list[re.Match[str]]:
    return [*RANDOM.finditer(text)]

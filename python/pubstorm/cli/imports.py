"""`pubstorm import`: prints the scenario of another tool's command line. An option without an equal
becomes a comment, an unknown option an error."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import click

from pubstorm.contract.template import STAMP_BYTES
from pubstorm.errors import REDACTED, UsageError
from pubstorm.output import data_code, say

TOOLS = ("emqtt-bench",)
PROGRAMS = frozenset({"emqtt_bench", "emqtt-bench"})
ACTIONS = ("conn", "pub", "sub")
LENGTH = "30s"
"""Length of the load, as emqtt_bench runs until it is interrupted."""
WEBSOCKET_PATH = "/mqtt"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of emqtt_bench."""

    short: str = ""
    default: str | None = None
    is_flag: bool = False
    """True if the option can stand without a value."""
    of: tuple[str, ...] = ACTIONS
    remark: str = ""
    """The reason why the scenario has no key for the option; empty if it has one."""


CLIENT_OF_TLS = "the algorithms are those of OpenSSL"
OWN_METRICS = "the run directory has these figures"
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
    "password": Option("P"),
    "keepalive": Option("k", "300"),
    "clean": Option("C", "true", is_flag=True),
    "session-expiry": Option("x", "0"),
    "topic": Option("t", of=("pub", "sub")),
    "qos": Option("q", "0", of=("pub", "sub")),
    "interval_of_msg": Option("I", "1000", of=("pub",)),
    "size": Option("s", "256", of=("pub",)),
    "message": Option("m", of=("pub",)),
    "retain": Option("r", is_flag=True, of=("pub",)),
    "limit": Option("L", "0", of=("pub",)),
    "inflight": Option("F", "1", of=("pub",)),
    "wait-before-publishing": Option("w", is_flag=True, of=("pub",)),
    "num-retry-connect": Option(remark="reconnect: of a population has the waits"),
    "reconnect": Option(remark="reconnect: of a population has the waits"),
    "signature-algs": Option(remark=CLIENT_OF_TLS),
    "keyex-algs": Option(remark=CLIENT_OF_TLS),
    "dist": Option("d", is_flag=True, remark="fleet: plays a scenario on many hosts"),
    "lowmem": Option("l", is_flag=True, remark="the engine takes little memory by itself"),
    "force-major-gc-interval": Option(remark="the engine takes little memory by itself"),
    "qoe": Option("Q", is_flag=True, remark=OWN_METRICS),
    "qoelog": Option(remark=OWN_METRICS),
    "prometheus": Option(is_flag=True, remark=OWN_METRICS),
    "restapi": Option(remark=OWN_METRICS),
    "log_to": Option(remark="--quiet of pubstorm run shows less"),
    "payload-hdrs": Option(of=("pub", "sub"), remark="a payload without text has a stamp"),
    "max-random-wait": Option(of=("pub",), remark="the clients are spread over the interval"),
    "min-random-wait": Option(of=("pub",), remark="the clients are spread over the interval"),
    "retry-interval": Option(of=("pub",), remark="MQTT sends again after a reconnect only"),
    "keep-connected": Option(is_flag=True, of=("pub",), remark="a hold stage keeps clients"),
    "quic": Option(remark="the transports are TCP, TLS and WebSocket"),
    "load-qst": Option(remark="the transports are TCP, TLS and WebSocket"),
    "topics-payload": Option(of=("pub",), remark="write one publication for each topic"),
}
"""Options by their long name."""
SHORTS = {option.short: name for name, option in OPTIONS.items() if option.short}
UNSTAMPED = "    # without a stamp: messages have no latency, order or duplicates"
KEPT = "    # stored here in plain text: ${env:NAME} keeps a secret out of this file"
NEVER = {"quic": "false", "message": "template://"}
"""Values that a scenario can play (`quic`), or cannot (`message`)."""


@click.command(
    "import", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]}
)
@click.argument("tool", type=click.Choice(TOOLS))
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def import_(tool: str, words: tuple[str, ...]) -> int:
    """Print the scenario of another tool's command line.

    TOOL is emqtt-bench. COMMAND is its command line, in quotes or as words after --.
    """
    del tool
    try:
        split = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError as error:
        raise UsageError(f"found a command line with {error}".lower()) from error
    say("\n".join(scenario_lines(parsed(split))))
    return data_code()


@dataclass(slots=True)
class BenchCommand:
    """A command line of emqtt_bench."""

    action: str
    words: Sequence[str]
    given: dict[str, str] = field(default_factory=dict)
    """Values of the options that the user gave, by long name."""
    topics: list[str] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        """Returns the value of an option, or its default."""
        return self.given.get(name, OPTIONS[name].default)

    def number(self, name: str) -> int:
        """Returns an option that is a whole number. Raises UsageError."""
        text = self.value(name) or "0"
        if not text.isdecimal():
            raise UsageError(f"found {_shown(name)} {text}, allowed is a whole number")
        return int(text)

    def is_on(self, name: str) -> bool:
        """Returns a flag. Raises UsageError."""
        text = self.value(name) or "false"
        if text not in {"true", "false"}:
            raise UsageError(f"found {_shown(name)} {text}, allowed is true or false")
        return text == "true"


def parsed(words: Sequence[str]) -> BenchCommand:
    """Reads a command line of emqtt_bench. Raises UsageError."""
    left = list(words)
    if left and left[0].rpartition("/")[2] in PROGRAMS:
        left.pop(0)
    action = left.pop(0) if left else ""
    if action not in ACTIONS:
        raise UsageError(
            f"found {action or 'nothing'}, allowed is emqtt_bench {', '.join(ACTIONS)}",
            'such as pubstorm import emqtt-bench "emqtt_bench pub -c 100 -t bench/%i"',
        )
    asked = BenchCommand(action, words)
    while left:
        name, value = _option(left.pop(0), action)
        if value is None:
            value = _value(name, left)
        if name == "topic":
            asked.topics.append(value)
        asked.given[name] = value
    if action != "conn" and not asked.topics:
        raise UsageError(f"found no -t with {action}, which needs a topic")
    return asked


def _option(word: str, action: str) -> tuple[str, str | None]:
    """Returns the long name of an option, and a value in the same word. Raises UsageError."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        found = value if equals else None
    else:
        name, found = SHORTS.get(word[1:2], "") if word.startswith("-") else "", word[2:] or None
    if name not in OPTIONS:
        known = [each for each, option in OPTIONS.items() if action in option.of]
        close = get_close_matches(name, known, n=1, cutoff=0.8)
        every = ", ".join(sorted(map(_shown, known)))
        hint = f"write --{close[0]}" if close else f"the options are {every}"
        # The value of an option that is misspelt may be a password.
        own = word[:2] if word.startswith("-") else word
        shown = word.partition("=")[0] if word.startswith("--") else own
        raise UsageError(f"found {shown}, which is no option of emqtt_bench {action}", hint)
    if action not in OPTIONS[name].of:
        allowed = " and ".join(OPTIONS[name].of)
        raise UsageError(f"found {_shown(name)} with {action}, allowed with {allowed}")
    return name, found


def _value(name: str, left: list[str]) -> str:
    is_flag = OPTIONS[name].is_flag
    if left and (not is_flag or left[0] in {"true", "false"}):
        return left.pop(0)
    if not is_flag:
        raise UsageError(f"found {_shown(name)} without a value")
    return "true"


def _shown(name: str) -> str:
    return f"-{OPTIONS[name].short}" if OPTIONS[name].short else f"--{name}"


def scenario_lines(asked: BenchCommand) -> Iterator[str]:
    """Yields the lines of the scenario. Raises UsageError if it cannot play what is asked for."""
    yield f"# {_printable(shlex.join(_without_password(asked)))}"
    for name, value in asked.given.items():
        if (remark := OPTIONS[name].remark) and NEVER.get(name) != value:
            yield f"# without {_shown(name)} {_printable(value)}: {remark}"
    for text in (*asked.topics, *filter(None, [asked.given.get("username")])):
        if "%%" in text:
            # A unit of systemd doubles the character.
            once = _printable(text.replace("%%", "%"))
            yield f"# {_printable(text)} is as written; a line of a service file means {once}"
    yield f"target: {_target(asked)}"
    if asked.value("ifaddr"):
        yield f"sources: [{', '.join(map(_quoted, str(asked.value('ifaddr')).split(',')))}]"
    yield "populations:"
    yield f"  {asked.action}:"
    yield from (f"    {line}" for line in _population(asked))
    yield "stages:"
    yield from _stages(asked)


def _without_password(asked: BenchCommand) -> Iterator[str]:
    """Yields the words of the command line, with the password left out of its word."""
    password = asked.value("password") or ""
    for word in asked.words:
        name = next((each for each in ("--password=", "-P") if word == each + password), "")
        yield f"{name}{REDACTED}" if password and word == name + password else word


def _target(asked: BenchCommand) -> str:
    scheme = ("ws" if asked.is_on("ws") else "mqtt") + ("s" if asked.is_on("ssl") else "")
    path = WEBSOCKET_PATH if asked.is_on("ws") else ""
    hosts = str(asked.value("host")).split(",")
    hosts = [f"[{host}]" if ":" in host else host for host in hosts]
    urls = [_quoted(f"{scheme}://{host}:{asked.number('port')}{path}") for host in hosts]
    return urls[0] if len(urls) == 1 else f"[{', '.join(urls)}]"


def _population(asked: BenchCommand) -> Iterator[str]:
    yield f"clients: {asked.number('count')}"
    yield f"first: {asked.number('startnumber') + 1}"
    if (client_id := _client_id(asked)) is not None:
        yield f"client_id: {_quoted(client_id)}"
    yield f"version: {_version(asked)}"
    yield f"keep_alive: {asked.number('keepalive')}s"
    if not asked.is_on("clean"):
        yield "session: persistent"
    if asked.number("session-expiry"):
        yield f"session_expiry: {asked.number('session-expiry')}s"
    for key in ("username", "password"):
        if (text := asked.value(key)) is not None:
            remark = KEPT if key == "password" else ""
            yield f"{key}: {_quoted(_template(text, {'%i': '{n}'}, key))}{remark}"
    if asked.is_on("ssl"):
        yield f"tls: {{{', '.join(_tls(asked))}}}"
    if asked.action == "sub":
        yield "subscriptions:"
        for topic in asked.topics:
            yield f"  - {{topic: {_quoted(_topic(topic, asked))}, qos: {_qos(asked)}}}"
    if asked.action == "pub":
        yield "publications:"
        for number, line in enumerate(_publication(asked)):
            yield f"  {' ' if number else '-'} {line}"


def _publication(asked: BenchCommand) -> Iterator[str]:
    yield f"topic: {_quoted(_topic(asked.topics[-1], asked))}"
    interval_ms = asked.number("interval_of_msg")
    yield f"interval: {interval_ms}ms" if interval_ms else "rate: max"
    if (text := asked.value("message")) is None:
        remark = UNSTAMPED if asked.number("size") < STAMP_BYTES else ""
        yield f"size: {asked.number('size')}B{remark}"
    elif text.startswith(NEVER["message"]):
        raise UsageError(f"found -m {text}, which has no equal", "payload: has templates")
    else:
        remark = "" if asked.number("version") == 5 else UNSTAMPED
        yield f"payload: {_quoted(_braces(text))}{remark}"
    yield f"qos: {_qos(asked)}"
    if asked.is_on("retain"):
        yield "retain: true"
    if _qos(asked) and asked.number("inflight"):
        yield f"window: {asked.number('inflight')}"


def _stages(asked: BenchCommand) -> Iterator[str]:
    rate, interval_ms = asked.number("connrate"), asked.number("interval")
    per_s = rate or (1000 / interval_ms if interval_ms else 0)
    yield f"  - connect: {{rate: {per_s:g}/s}}" if per_s else "  - connect"
    if asked.action != "pub":
        yield f"  - hold: {LENGTH}"
        return
    if not asked.is_on("wait-before-publishing"):
        yield "  # emqtt_bench publishes while it connects; here the load waits for the last client"
    limit, interval_ms = asked.number("limit"), asked.number("interval_of_msg")
    if limit and interval_ms:
        length_ms = math.ceil(limit / max(asked.number("count"), 1)) * interval_ms
        yield f"  - publish: {length_ms}ms    # -L {limit} messages of all clients"
    else:
        yield f"  - publish: {LENGTH}"


def _client_id(asked: BenchCommand) -> str | None:
    prefix = _braces(asked.value("prefix") or "")
    if asked.is_on("shortids"):
        return f"{prefix}{{n}}"
    return f"{prefix}_bench_{asked.action}_{{n}}" if prefix else None


def _version(asked: BenchCommand) -> str:
    versions = {3: "3.1", 4: "3.1.1", 5: "5"}
    if asked.number("version") not in versions:
        raise UsageError(f"found -V {asked.value('version')}, allowed is 3, 4 or 5")
    return json.dumps(versions[asked.number("version")])


def _qos(asked: BenchCommand) -> int:
    if asked.number("qos") > 2:
        raise UsageError(f"found -q {asked.value('qos')}, allowed is 0, 1 or 2")
    return asked.number("qos")


def _tls(asked: BenchCommand) -> Iterator[str]:
    if asked.value("cacertfile"):
        yield f"ca: {_quoted(asked.value('cacertfile'))}"
    else:
        yield "verify: false"
    for key, name in (("certificate", "certfile"), ("key", "keyfile")):
        if (path := asked.value(name)) is not None:
            yield f"{key}: {_quoted(_braces(path))}"
    if (version := asked.value("ssl-version")) is not None:
        number = version.removeprefix("tlsv").removesuffix("_nocompat")
        if number not in {"1.2", "1.3"}:
            raise UsageError(f"found --ssl-version {version}, allowed is tlsv1.2 or tlsv1.3")
        yield f'min_version: "{number}", max_version: "{number}"'
    if (ciphers := asked.value("ciphers")) is not None:
        yield f"ciphers: {_quoted(ciphers.replace(',', ':'))}"


def _topic(text: str, asked: BenchCommand) -> str:
    client_id, username = _client_id(asked), asked.value("username")
    known: dict[str, str] = {"%i": "{n}"}
    if client_id is not None:
        known["%c"] = client_id
    if username is not None:
        known["%u"] = _template(username, {"%i": "{n}"}, "username")
    return _template(text, known, "topic")


def _template(text: str, known: Mapping[str, str], name: str) -> str:
    """Returns a text of emqtt_bench as a template. Raises UsageError for a variable without an
    equal."""
    for variable in ("%rand_", "%s", "%c", "%u", "%i"):
        if variable in text and variable not in known:
            hint = "add --prefix, which %c needs" if variable == "%c" else None
            hint = "add -u, which %u needs" if variable == "%u" else hint
            shown = REDACTED if name == "password" else text
            raise UsageError(f"found {variable} in {_shown(name)} {shown}: it has no equal", hint)
    found = _braces(text)
    for variable, template in known.items():
        found = found.replace(variable, template)
    return found


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)

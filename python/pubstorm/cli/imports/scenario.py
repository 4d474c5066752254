"""The scenario of an import: one description that every tool fills, and the writer that prints it
as YAML. The writer says of each publication its window, and whether its messages have a stamp."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.contract.template import STAMP_BYTES
from pubstorm.quantities import duration_ns

Keys = dict[str, object]
"""Keys of a mapping in the order of the file. A value is a text, a number, a flag, a mapping, a
list, `Plain` or `Remarked`."""


class Plain(str):
    """A text without quotes in the file: a quantity or a word of the scenario."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Remarked:
    """A value with a comment after it."""

    value: object
    remark: str


LENGTH = Plain("30s")
"""Length of the load of a tool that runs until it is interrupted."""
UNSTAMPED = "without a stamp: messages have no latency, order or duplicates"
STAMPED = "with a stamp: messages have latency, order and duplicates"
BESIDE = "with a stamp beside it, in a user property of MQTT 5"
KEPT = "stored here in plain text: ${env:NAME} keeps a secret out of this file"
CLOSED = "closed loop: with so many messages in flight a client waits for an answer"
OPEN = "open loop: a client sends at scheduled instants and waits for no answer"
MAX = "closed loop: as fast as the socket takes messages"
VERSION_5 = "5"
RESERVED = frozenset({"on", "off", "yes", "no", "true", "false", "null", "y", "n"})
"""Words that YAML reads as something else than a text."""


@dataclass(slots=True)
class ImportedClients:
    """Clients that a tool starts alike: a population."""

    name: str
    target: Sequence[str]
    """Addresses of their brokers."""
    keys: Keys
    """Keys of the population, but for what follows."""
    subscriptions: list[Keys] = field(default_factory=list)
    publications: list[Keys] = field(default_factory=list)
    connect: Keys = field(default_factory=dict)
    """Keys of the stage that connects them."""
    length: str = LENGTH
    """Length of the stage that they publish in or are kept in."""
    length_remark: str = ""
    messages: Remarked | None = None
    """Number of messages that ends the load: of all clients, or `N/client`."""
    profile: Keys = field(default_factory=dict)
    """Keys of the stage of the load beside its length."""


@dataclass(slots=True)
class ImportedScenario:
    """The description of a scenario."""

    comments: list[str] = field(default_factory=list)
    """Lines before the first key, each with its `#`."""
    clients: list[ImportedClients] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    exchanges: dict[str, Keys] = field(default_factory=dict)
    """Exchanges that clients declare, by name."""
    before_load: list[str] = field(default_factory=list)
    """Comments above the stage of the load."""
    ends: list[str] = field(default_factory=list)
    """Populations that disconnect in a stage after the load."""
    stages: list[object] = field(default_factory=list)
    """Stages, each with one key or none; comments begin with `#`. Empty: all clients connect,
    subscribers first, and then those publish that can."""

    def add(self, other: ImportedScenario) -> None:
        """Adds the clients of another command line, under names of their own."""
        names = {clients.name for clients in self.clients}
        for clients in other.clients:
            name, number = clients.name, 2
            while clients.name in names:
                clients.name, number = f"{name}{number}", number + 1
            names.add(clients.name)
        self.clients.extend(other.clients)
        self.comments.extend(other.comments)
        self.exchanges |= other.exchanges
        for own, added in ((self.sources, other.sources), (self.before_load, other.before_load)):
            own.extend(each for each in added if each not in own)

    def lines(self) -> Iterator[str]:
        """Yields the lines of the file."""
        yield from self.comments
        lists = list(dict.fromkeys(tuple(clients.target) for clients in self.clients))
        target = _target(lists)
        yield f"target: {_yaml(target if len(target) > 1 else target[0])}"
        if self.sources:
            yield f"sources: {_yaml(self.sources)}"
        if self.exchanges:
            yield f"topology: {_yaml({'exchanges': self.exchanges})}"
        yield "populations:"
        for clients in self.clients:
            at = _at(clients.target, target) if len(lists) > 1 else {}
            yield f"  {clients.name}:"
            yield from (f"    {line}" for line in _population(clients, at))
        yield "stages:"
        for stage in self.stages or self._stages():
            yield f"  {stage}" if str(stage).startswith("#") else f"  - {_stage(stage)}"

    def _stages(self) -> Iterator[object]:
        ordered = sorted(self.clients, key=lambda clients: bool(clients.publications))
        for clients in ordered:
            alone = {} if len(ordered) == 1 else {"populations": [Plain(clients.name)]}
            yield {"connect": {**alone, **clients.connect}}
        load = [clients for clients in ordered if clients.publications]
        longest = max(load or ordered, key=lambda clients: duration_ns(clients.length))
        yield from self.before_load
        for clients in load:
            if clients.length != longest.length:
                yield f"# {clients.name} alone would end after {clients.length}"
        profiles = [clients.profile for clients in load]
        value: object = Plain(longest.length)
        if (messages := _messages(load)) is not None:
            value = Remarked({"messages": messages.value}, messages.remark)
        elif any(profiles) and all(each == profiles[0] for each in profiles):
            value = {"for": value, **profiles[0]}
        elif any(profiles):
            yield "# without rate_profile: publications of one stage have one profile"
        elif longest.length_remark:
            value = Remarked(value, longest.length_remark)
        yield {"publish" if load else "hold": value}
        if self.ends:
            some = len(self.ends) < len(self.clients)
            yield {"disconnect": {"populations": [*map(Plain, self.ends)]} if some else {}}


def milliseconds(number: int) -> Plain:
    """Returns a duration."""
    return Plain(f"{number // 1000}s" if number and number % 1000 == 0 else f"{number}ms")


def pace(interval_ms: float) -> Keys:
    """Returns the key of a publication for an interval; without one messages follow at once."""
    if not interval_ms:
        return {"rate": Plain("max")}
    whole_ms = round(interval_ms)
    if abs(interval_ms - whole_ms) < 1e-6:
        return {"interval": milliseconds(whole_ms)}
    return {"rate": mean_rate(1000, interval_ms)}


def limit(
    clients: ImportedClients, shown: str, each: int, interval_ms: float, total: int | None = None
) -> None:
    """Makes the load end after a number of messages: `each` of a client, or `total` of all.
    `shown` is the option that limits them. Beside clients with another limit, the load lasts as
    long as it takes them."""
    clients.messages = Remarked(Plain(f"{max(each, 1)}/client" if total is None else total), shown)
    if interval_ms:
        clients.length = milliseconds(math.ceil(max(each, 1) * interval_ms))
        clients.length_remark = shown
    else:
        clients.length_remark = f"{shown}; {clients.length} instead, as they have no interval"


def _messages(load: Sequence[ImportedClients]) -> Remarked | None:
    """Returns the number that ends the load of all clients; None if they have no common one."""
    first = load[0].messages if load else None
    if first is None or any(clients.messages != first for clients in load):
        return None
    return first if len(load) == 1 or str(first.value).endswith("/client") else None


def address(scheme: str, host: str, port: int | str, path: str = "") -> str:
    """Returns the address of a broker; `host` may be an IPv6 address with or without brackets."""
    bare = host.strip().removeprefix("[").removesuffix("]")
    return f"{scheme}://{f'[{bare}]' if ':' in bare else bare}:{port}{path}"


def literal(text: str) -> str:
    """Returns the template of a text as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def template(text: str, known: Mapping[str, str]) -> str:
    """Returns the template of a text with variables of another tool, which `known` replaces."""
    longest_first = sorted(map(re.escape, known), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(longest_first)})", text) if known else [text]
    return "".join(known.get(piece, literal(piece)) for piece in pieces)


def mean_rate(number: float, over_s: float) -> Plain:
    """Returns a rate of so many in so many seconds."""
    return Plain(f"{number / over_s:.9f}".rstrip("0").rstrip(".") + "/s")


def _target(lists: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns addresses that have each list in one piece."""
    target: list[str] = []
    for own in lists:
        if _place(own, target) is None:
            target.extend(own)
    return target


def _place(own: Sequence[str], target: Sequence[str]) -> int | None:
    places = range(len(target) - len(own) + 1)
    return next((at for at in places if [*target[at : at + len(own)]] == [*own]), None)


def _at(own: Sequence[str], target: Sequence[str]) -> Keys:
    first = _place(own, target)
    return {"at": {"brokers": Plain("target"), "first": first, "count": len(own)}}


def _population(clients: ImportedClients, at: Keys) -> Iterator[str]:
    for key, value in {**clients.keys, **at}.items():
        is_secret = key in {"password", "headers"}
        yield _line(key, Remarked(value, KEPT) if is_secret else value)
    if clients.subscriptions:
        yield "subscriptions:"
        yield from (f"  - {_yaml(each)}" for each in clients.subscriptions)
    if clients.publications:
        yield "publications:"
    version = clients.keys.get("version")
    for publication in clients.publications:
        for number, (key, value) in enumerate(_explained(publication, version).items()):
            yield f"  {' ' if number else '-'} {_line(key, value)}"


def _explained(publication: Keys, version: object) -> Keys:
    """Returns a publication with remarks about its window and its stamp."""
    keys = dict(publication)
    if "window" in keys:
        keys["window"] = Remarked(keys["window"], CLOSED)
    else:
        for key in ("rate", "interval", "total_rate"):
            if key in keys:
                keys[key] = Remarked(keys[key], MAX if keys[key] == "max" else OPEN)
    if "payload" in keys:
        has_stamp = version == VERSION_5
        keys["payload"] = Remarked(keys["payload"], BESIDE if has_stamp else UNSTAMPED)
    elif isinstance(size := keys.get("size"), int):
        has_stamp = size >= STAMP_BYTES
        keys["size"] = Remarked(Plain(f"{size}B"), STAMPED if has_stamp else UNSTAMPED)
    return keys


def _stage(stage: object) -> str:
    if isinstance(stage, dict):
        ((key, value),) = stage.items()
        return key if value == {} else _line(key, value)
    return str(stage)


def _line(key: str, value: object) -> str:
    if isinstance(value, Remarked):
        return f"{key}: {_yaml(value.value)}    # {value.remark}"
    return f"{key}: {_yaml(value)}"


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Plain, int)):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)}: {_yaml(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return _quoted(str(value))


def _key(key: str) -> str:
    is_plain = re.fullmatch(r"[a-z][a-z0-9_]*", key) and key not in RESERVED
    return key if is_plain else _quoted(key)


def _quoted(text: str) -> str:
    """Returns a text in quotes of YAML. A reference to a secret in it stays a text."""
    plain = json.dumps(re.sub(r"\$\{(?=(?:env|file):)", "$${", text), ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in plain)

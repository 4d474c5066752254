"""Writes what was observed of clients as a population file: recorded messages by population, a
scenario that plays them, and the facts that are known. No identity is written: a client has a
number, and levels of topics that are an identity have the name of the client that replaces it."""

from __future__ import annotations

import csv
import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    literal,
    milliseconds,
)
from pubstorm.contract.recorded import (
    BYTES_MAX,
    INSTANT_NS_MAX,
    MESSAGES_MAX,
    PAYLOADS_MAX,
    RecordedMessage,
    RecordedWriter,
    read_recorded,
)
from pubstorm.contract.sessions import RecordedSession, write_sessions
from pubstorm.contract.template import RECORDED, splits_levels
from pubstorm.errors import UsageError
from pubstorm.quantities import SECOND_NS, write_count

KINDS_MAX = 100
"""Populations of a recording: kinds with fewer clients are left out."""
SCENARIO = "replay.yaml"
FACTS = "recording.json"
WILDCARDS = ("+", "#")


@dataclass
class ObservedSession:
    """Time for which a client was connected."""

    from_ns: int
    """Instant of the CONNECT, in nanoseconds."""
    until_ns: int | None = None
    """Instant of the end, in nanoseconds; None if the source has no end."""

    def end(self, at_ns: int) -> None:
        """Ends the session, unless it has ended."""
        if self.until_ns is None:
            self.until_ns = max(at_ns, self.from_ns)


@dataclass
class ObservedClient:
    """A client as it was observed."""

    version: str = "3.1.1"
    """Version of MQTT."""
    keep_alive_s: int | None = None
    """Keep-alive in seconds; None if unknown."""
    is_clean: bool = True
    """True if each connection starts without session state."""
    filters: dict[str, int] = field(default_factory=dict)
    """Topic filters that the client subscribed to, with their QoS."""
    connections: int = 1
    """Connections that were observed."""
    deliveries: int = 0
    """Messages that the client received."""
    sessions: list[ObservedSession] = field(default_factory=list)
    """Sessions in the order of time; empty if the source has none."""

    def connect(self, at_ns: int) -> ObservedSession:
        """Begins a session, which ends the one before, and returns it."""
        if self.sessions:
            self.sessions[-1].end(at_ns)
        self.sessions.append(ObservedSession(at_ns))
        return self.sessions[-1]

    def disconnect(self, at_ns: int) -> None:
        """Ends the session. Without one, the client was connected before the recording."""
        if not self.sessions:
            self.connect(0)
        self.sessions[-1].end(at_ns)

    def kind(self, identity: str) -> tuple[object, ...]:
        """Returns the traits by which clients are of one population."""
        shapes = tuple(
            (_shape(filter_, identity), qos) for filter_, qos in sorted(self.filters.items())
        )
        return self.version, self.keep_alive_s, self.is_clean, shapes


class Observed:
    """Messages and clients that a source observed. A message takes 25 bytes, and each topic and
    client counts once."""

    def __init__(self, source: str, *, keeps_payloads: bool = False) -> None:
        self.keeps_payloads = keeps_payloads
        """True if the payloads of the messages are recorded."""
        self.source = source
        """Words for the source."""
        self.clients: dict[str, ObservedClient] = {}
        """Clients by identity, in the order of their first appearance."""
        self.unknown: list[str] = []
        """Sentences about what the source does not know."""
        self.removals = 0
        """Empty retained messages, which remove what the broker keeps. They are left out: with a
        stamp they would not be empty."""
        self.deliveries_known = True
        """False if deliveries are missing among those of the clients, or messages of which there
        are deliveries."""
        self.end_ns = 0
        """Latest instant, in nanoseconds."""
        self._instants, self._clients, self._topics = array("Q"), array("I"), array("I")
        self._bytes, self._flags, self._order = array("I"), array("B"), array("I")
        self._payloads, self._payloads_bytes = list[bytes](), 0
        self._numbers: dict[str, int] = {}
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._instants)

    def add(
        self,
        at_ns: int,
        names: tuple[str, str],
        payload: int | bytes,
        flags: tuple[int, bool],
    ) -> None:
        """Adds a message: its client and topic, its payload or the size of that, its QoS and its
        RETAIN flag. Raises UsageError if it is one too many, and ValueError for an instant or a
        size beyond its range."""
        (identity, topic), is_size = names, isinstance(payload, int)
        size_bytes = payload if isinstance(payload, int) else len(payload)
        if len(self._instants) >= MESSAGES_MAX:
            message = f"found more than {write_count(MESSAGES_MAX)} messages, allowed are as many"
            raise UsageError(message, "record for a shorter time")
        if not (0 <= at_ns <= INSTANT_NS_MAX * 2 and 0 <= size_bytes <= BYTES_MAX):
            raise ValueError("an instant or a size beyond its range")
        if flags[1] and size_bytes == 0:
            self.removals += 1
            return
        if self.keeps_payloads:
            if is_size:
                raise ValueError("a size without its payload")
            self._payloads_bytes += size_bytes
            if self._payloads_bytes > PAYLOADS_MAX:
                message = f"found more than {write_count(PAYLOADS_MAX)} bytes of payloads"
                raise UsageError(f"{message}, allowed are as many", "record for a shorter time")
            self._payloads.append(bytes(payload))
        self.client(identity)
        self._instants.append(at_ns)
        self._clients.append(self._numbers.setdefault(identity, len(self._numbers)))
        self._topics.append(self._names.setdefault(topic, len(self._names)))
        self._bytes.append(size_bytes)
        self._flags.append(flags[0] << 1 | flags[1])
        self.end_ns = max(self.end_ns, at_ns)

    def client(self, identity: str) -> ObservedClient:
        """Returns the client with an identity."""
        if identity not in self.clients:
            self.clients[identity] = ObservedClient()
        return self.clients[identity]

    @property
    def publishers(self) -> Collection[str]:
        """Identities of the clients with messages."""
        return self._numbers.keys()

    def messages(self) -> Iterator[tuple[int, str, str, int, int, bool]]:
        """Yields instant, identity, topic, size, QoS and RETAIN flag in the order of time."""
        yield from (message for message, _ in self.with_payloads())

    def with_payloads(self) -> Iterator[tuple[tuple[int, str, str, int, int, bool], bytes | None]]:
        """Yields messages in the order of time, each with its payload, or None."""
        identities, topics = [*self._numbers], [*self._names]
        if len(self._order) < len(self._instants):
            order = sorted(range(len(self._instants)), key=self._instants.__getitem__)
            self._order = array("I", order)
        for at in self._order:
            flags = self._flags[at]
            names = identities[self._clients[at]], topics[self._topics[at]]
            size_bytes, qos, retain = self._bytes[at], flags >> 1, bool(flags & 1)
            payload = self._payloads[at] if self.keeps_payloads else None
            yield (self._instants[at], *names, size_bytes, qos, retain), payload


@dataclass
class _Kind:
    """A population: clients of one kind."""

    name: str
    clients: list[str] = field(default_factory=list)
    """Their identities; the place is the client's number."""
    publishes: bool = False


def write_population(observed: Observed, folder: Path, target: str) -> list[str]:
    """Writes the files of an observation into a new folder, and returns lines about them. Raises
    UsageError if nothing was observed, or the folder cannot be written."""
    if not len(observed):
        reason = " ".join(observed.unknown)
        raise UsageError(f"found no messages in {observed.source}. {reason}".strip())
    if observed.removals:
        observed.unknown.append(
            f"{write_count(observed.removals)} empty retained messages, which remove what the "
            "broker keeps, are left out."
        )
    kinds, left_out = _kinds(observed)
    if left_out:
        observed.unknown.append(
            f"{write_count(left_out)} clients of rare kinds are left out: at most {KINDS_MAX} "
            "populations are written."
        )
    try:
        folder.mkdir(parents=True)
        lines = _write(observed, kinds, folder, target)
    except OSError as error:
        message = f"found {folder}, which cannot be made: {error.strerror}"
        raise UsageError(message, "name a folder that does not exist yet") from None
    return lines


def _kinds(observed: Observed) -> tuple[list[_Kind], int]:
    """Returns the populations, and the number of clients that are left out."""
    publishers = observed.publishers
    members: dict[tuple[object, ...], list[str]] = {}
    for identity, client in observed.clients.items():
        publishes = identity in publishers
        if publishes or client.filters:
            key = (publishes, *client.kind(identity))
            members.setdefault(key, []).append(identity)
    ordered = sorted(members.items(), key=lambda item: -len(item[1]))
    kinds, numbers = list[_Kind](), Counter[str]()
    for key, identities in ordered[:KINDS_MAX]:
        role = "publishers" if key[0] else "subscribers"
        numbers[role] += 1
        name = role if numbers[role] == 1 else f"{role}{numbers[role]}"
        kinds.append(_Kind(name, identities, bool(key[0])))
    left_out = sum(len(identities) for _, identities in ordered[KINDS_MAX:])
    return kinds, left_out


def _write(observed: Observed, kinds: Sequence[_Kind], folder: Path, target: str) -> list[str]:
    names = {
        identity: f"{kind.name}-{n}" for kind in kinds for n, identity in enumerate(kind.clients)
    }
    others = [identity for identity in observed.clients if identity not in names]
    names |= {identity: f"other-{number}" for number, identity in enumerate(others)}
    start_ns = next(at_ns for at_ns, *_ in observed.messages())
    _write_messages(observed, kinds, folder, names)
    played = [kind.name for kind in kinds if _write_sessions(observed, kind, folder, start_ns)]
    scenario = ImportedScenario(comments=[f"# Recorded from {observed.source}."])
    scenario.comments += [f"# {sentence}" for sentence in observed.unknown]
    scenario.clients = [_clients(observed, kind, folder, names, target) for kind in kinds]
    length_ms = -(-(observed.end_ns - start_ns + SECOND_NS) // 1_000_000)
    for clients in scenario.clients:
        clients.length = milliseconds(length_ms)
    text = "\n".join(scenario.lines()) + "\n"
    (folder / SCENARIO).write_text(text, encoding="utf-8")
    deliveries = sum(client.deliveries for client in observed.clients.values())
    facts = {
        "source": observed.source,
        "messages": len(observed),
        "clients": sum(len(kind.clients) for kind in kinds),
        "duration_ns": observed.end_ns - start_ns,
        "deliveries": deliveries if observed.deliveries_known else None,
        "connections": sum(client.connections for client in observed.clients.values()),
        "sessions_of": played,
        "unknown": observed.unknown,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    raised = (
        0
        if observed.keeps_payloads
        else sum(
            count.raised
            for kind in kinds
            if kind.publishes
            for count in read_recorded(str(folder / f"{kind.name}.csv")).kinds.values()
        )
    )
    said = [*_said(facts, kinds, raised)]
    if observed.keeps_payloads:
        said.append(f"payloads are in {folder}: keep it as secret as the data in them")
    return [*said, f"play it: pubstorm run {folder / SCENARIO}"]


def _said(facts: dict[str, object], kinds: Sequence[_Kind], raised: int) -> Iterator[str]:
    yield f"{facts['messages']} messages of {facts['clients']} clients"
    for kind in kinds:
        yield f"  {kind.name}: {len(kind.clients)} clients"
    if raised:
        yield f"{raised} messages are smaller than a stamp of 32 bytes: they are played with 32"
    unknown = facts["unknown"]
    assert isinstance(unknown, list)
    yield from (f"not known: {sentence}" for sentence in unknown)


def _write_messages(
    observed: Observed, kinds: Sequence[_Kind], folder: Path, names: dict[str, str]
) -> None:
    """Writes the messages of all populations in one pass."""
    with ExitStack() as files:
        writers: dict[str, tuple[str, int, RecordedWriter]] = {}
        for kind in kinds:
            if kind.publishes:
                path = folder / f"{kind.name}.csv"
                file = files.enter_context(path.open("w", encoding="utf-8", newline=""))
                writer = RecordedWriter(file, has_payloads=observed.keeps_payloads)
                for number, identity in enumerate(kind.clients):
                    writers[identity] = (kind.name, number, writer)
        known: dict[tuple[str, str], str] = {}
        start_ns: int | None = None
        for message, payload in observed.with_payloads():
            at_ns, identity, topic, size_bytes, qos, retain = message
            start_ns = at_ns if start_ns is None else start_ns
            if identity not in writers:
                continue
            name, number, writer = writers[identity]
            source = known.get((identity, topic))
            if source is None:
                levels = [_level(level, identity, name, names) for level in topic.split("/")]
                source = known[identity, topic] = "/".join(levels)
            after_ns = at_ns - start_ns
            writer.add(RecordedMessage(after_ns, number, source, size_bytes, qos, retain, payload))


def _write_sessions(observed: Observed, kind: _Kind, folder: Path, start_ns: int) -> bool:
    """Writes the sessions of a population, and returns True, if a client connects or disconnects
    within the recording."""
    rows = [
        RecordedSession(number, *span)
        for number, identity in enumerate(kind.clients)
        for span in _spans(observed.clients[identity].sessions, start_ns, observed.end_ns)
    ]
    if all(row.from_ns == 0 and row.until_ns is None for row in rows):
        return False
    with (folder / f"{kind.name}-sessions.csv").open("w", encoding="utf-8", newline="") as file:
        write_sessions(file, rows)
    return True


def _spans(
    sessions: Sequence[ObservedSession], start_ns: int, end_ns: int
) -> list[tuple[int, int | None]]:
    """Returns start and end of sessions after the start of the recording. A client without
    sessions is connected all the time, one without a session in the recording leaves at once."""
    spans = list[tuple[int, int | None]]()
    within = [session for session in sessions if session.from_ns <= end_ns]
    starts_ns = [session.from_ns for session in within[1:]]
    for session, next_ns in zip_longest(within, starts_ns):
        # A message of the same instant belongs to the session.
        ends_ns = [next_ns, None if session.until_ns is None else session.until_ns + 1]
        at_ns = min((each for each in ends_ns if each is not None), default=end_ns + 1)
        until_ns = at_ns - start_ns if at_ns <= end_ns else None
        from_ns = max(0, session.from_ns - start_ns)
        if until_ns is None or until_ns > from_ns:
            spans.append((from_ns, until_ns))
    return spans or [(0, 1 if sessions else None)]


def _level(level: str, identity: str, name: str, names: dict[str, str]) -> str:
    """Returns the template of a level of a topic, without identities."""
    if level == identity:
        return f"{name}-{{n}}"
    return names.get(level) or literal(level)


def _clients(
    observed: Observed,
    kind: _Kind,
    folder: Path,
    names: dict[str, str],
    target: str,
) -> ImportedClients:
    first = observed.clients[kind.clients[0]]
    keys: Keys = {"clients": len(kind.clients)}
    if first.version != "3.1.1":
        keys["version"] = first.version
    if first.keep_alive_s is not None:
        keys["keep_alive"] = Plain(f"{first.keep_alive_s}s")
    if not first.is_clean:
        keys["session"] = Plain("persistent")
    if (folder / f"{kind.name}-sessions.csv").exists():
        keys["lifetime"] = {"replay": f"{kind.name}-sessions.csv"}
    subscriptions = _subscriptions(observed, kind, folder, names)
    if (folder / f"{kind.name}-filters.csv").exists():
        keys["rows"] = {"file": f"{kind.name}-filters.csv", "repeat": True}
    publications: list[Keys] = []
    if kind.publishes:
        file = f"{kind.name}.csv"
        for qos, retain in sorted(read_recorded(str(folder / file)).kinds):
            publication: Keys = {"topic": RECORDED, "replay": file, "qos": qos}
            publications.append({**publication, **({"retain": True} if retain else {})})
    return ImportedClients(kind.name, [target], keys, subscriptions, publications)


def _subscriptions(
    observed: Observed, kind: _Kind, folder: Path, names: dict[str, str]
) -> list[Keys]:
    """Returns the subscriptions of a population. Levels that differ among its clients become
    columns of a file with a row for each client."""
    filters = [sorted(observed.clients[identity].filters.items()) for identity in kind.clients]
    columns: dict[str, list[str]] = {}
    subscriptions: list[Keys] = []
    for number, (_, qos) in enumerate(filters[0]):
        each = [
            [_level(level, identity, kind.name, names) for level in own[number][0].split("/")]
            for identity, own in zip(kind.clients, filters, strict=True)
        ]
        levels = []
        for place, values in enumerate(zip(*each, strict=True)):
            if len(set(values)) == 1:
                levels.append(values[0])
            else:
                column = f"filter{number + 1}_level{place + 1}"
                columns[column] = [_text(value) for value in values]
                levels.append(f"{{row.{column}}}")
        subscriptions.append({"topic": "/".join(levels), "qos": qos})
    if columns:
        path = folder / f"{kind.name}-filters.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return subscriptions


def _text(template: str) -> str:
    """Returns a literal level as the text of a row."""
    return template.replace("{{", "{").replace("}}", "}")


def _shape(filter_: str, identity: str) -> tuple[str, ...]:
    """Returns the levels of a filter by kind: a wildcard, the client's own identity, a level that
    a row cannot have, or a text."""
    group, levels = [], filter_.split("/")
    if levels[0] == "$share":
        group, levels = levels[:2], levels[2:]
    kinds = ("own" if level == identity else "text" for level in levels)
    is_fixed = (level in WILDCARDS or splits_levels(level) for level in levels)
    shape = zip(levels, kinds, is_fixed, strict=True)
    return (*group, *(level if fixed else kind for level, kind, fixed in shape))

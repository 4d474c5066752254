"""Files of recorded messages, as agents read them: comma-separated values with a row for each
message, in the order of time (`crates/plan/src/schedule/recorded.rs`)."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Generic, Literal, NamedTuple, TypeVar

from pubstorm.contract.template import (
    SAVE_HINT,
    STAMP_BYTES,
    RowsError,
    Template,
    TemplateError,
    VariableKind,
    unreadable,
)
from pubstorm.files import opened

HEADINGS = ("after_ns", "client", "topic", "bytes", "qos", "retain")
"""Columns of a file."""
PAYLOAD = "payload"
"""Further column of a file with payloads: base64."""
PAYLOADS_MAX = 256 * 1024 * 1024
"""Most bytes of the payloads of a file: an agent keeps those that its clients play."""
MESSAGES_MAX = 10_000_000
"""Most messages of a file: an agent takes 28 bytes for each that its clients play."""
TOPIC_BYTES_MAX = 65_535
INSTANT_NS_MAX = 100 * 365 * 86_400 * 10**9
"""Latest instant: a century after the start."""
BYTES_MAX = 256_000_000
RECORD_HINT = "pubstorm record writes such a file"
NUMBERS = frozenset({VariableKind.NUMBER, VariableKind.REMAINDER, VariableKind.QUOTIENT})
RETAINED = {"true": True, "false": False}
Row = TypeVar("Row")
Binary = bytes
Content = Literal["sizes", "beside", "front"]
"""Content of played payloads: a stamp and filler in the recorded sizes; or the recorded bytes, with
the stamp in a user property of MQTT 5, or before them."""


class RecordedMessage(NamedTuple):
    """A recorded message."""

    after_ns: int
    """Instant after the start of the recording, in nanoseconds."""
    client: int
    """Number of its client, from 0 on."""
    topic: str
    """Template of its topic."""
    bytes: int
    """Size of its payload."""
    qos: int
    """QoS."""
    retain: bool
    """True if the broker keeps the message."""
    payload: Binary | None = None
    """Its payload; None if the file has no payloads."""


@dataclass
class RecordedKind:
    """The messages of a file with one QoS and one RETAIN flag."""

    messages: int = 0
    """Number of messages."""
    bytes_sum: int = 0
    """Their sizes, each raised to that of a stamp."""
    bytes_max: int = 0
    """Largest size."""
    raised: int = 0
    """Messages that are smaller than a stamp."""
    recorded_sum: int = 0
    """Their sizes as recorded."""
    recorded_max: int = 0
    """Largest size as recorded."""

    def sizes(self, content: Content) -> tuple[int, int]:
        """Returns the mean and the largest size of the messages as they are played."""
        if content == "sizes":
            return max(STAMP_BYTES, round(self.bytes_sum / max(1, self.messages))), self.bytes_max
        stamp = STAMP_BYTES if content == "front" else 0
        mean = round(self.recorded_sum / max(1, self.messages))
        return stamp + mean, stamp + self.recorded_max

    def add(self, size_bytes: int) -> None:
        """Counts a message."""
        self.messages += 1
        self.recorded_sum += size_bytes
        self.recorded_max = max(self.recorded_max, size_bytes)
        self.bytes_sum += max(size_bytes, STAMP_BYTES)
        self.bytes_max = max(self.bytes_max, size_bytes, STAMP_BYTES)
        self.raised += size_bytes < STAMP_BYTES


@dataclass
class RecordedFile:
    """The facts of a file."""

    clients: int = 0
    """Number of clients."""
    last_ns: int = 0
    """Instant of the last message, in nanoseconds."""
    kinds: dict[tuple[int, bool], RecordedKind] = field(default_factory=dict)
    """Messages by QoS and RETAIN flag."""
    seconds: dict[int, int] = field(default_factory=dict)
    """Messages of each second in which there are some."""
    kept: set[tuple[int, str]] = field(default_factory=set)
    """Client and topic of the messages that the broker keeps."""
    topic_bytes_max: int = 0
    """Bytes of the longest topic."""
    has_payloads: bool = False
    """True if the file has the payloads of the messages."""

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(kind.messages for kind in self.kinds.values())

    def kind(self, qos: int, retain: bool) -> RecordedKind:
        """Returns the messages with a QoS and a RETAIN flag."""
        return self.kinds.get((qos, retain), RecordedKind())


def read_recorded(path: str) -> RecordedFile:
    """Returns the facts of a file of recorded messages. Raises RowsError."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return _facts(path, state.st_mtime_ns, state.st_size)


def recorded_messages(path: str) -> Iterator[RecordedMessage]:
    """Yields the messages of a file. Raises RowsError."""
    return rows_in(path, RowsKind("messages", HEADINGS, MESSAGES_MAX, _message, PAYLOAD))


@dataclass(frozen=True)
class RowsKind(Generic[Row]):
    """A kind of files with a row for each thing that was recorded."""

    things: str
    """Word for the things."""
    headings: Sequence[str]
    """Columns."""
    most: int
    """Most rows of a file."""
    typed: Callable[[list[str]], Row]
    """Returns the thing of a row, or raises ValueError with the words of a message."""
    further: str | None = None
    """Column that may follow; None: no column."""


def rows_in(path: str, kind: RowsKind[Row]) -> Iterator[Row]:
    """Yields the rows of a file. Raises RowsError."""
    try:
        with (
            opened(Path(path), follows_links=True) as content,
            io.TextIOWrapper(content, encoding="utf-8", newline="") as file,
        ):
            yield from _rows(file, path, kind)
    except UnicodeDecodeError:
        raise RowsError(f"found bytes in {path} that are not UTF-8", SAVE_HINT) from None
    except OSError as error:
        raise unreadable(path, error) from None


def write_recorded(file: IO[str], messages: Iterable[RecordedMessage]) -> None:
    """Writes messages, which are in the order of time."""
    writer = RecordedWriter(file)
    for each in messages:
        writer.add(each)


class RecordedWriter:
    """Writes a file of recorded messages, one after another, with their payloads or without."""

    def __init__(self, file: IO[str], *, has_payloads: bool = False) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow((*HEADINGS, PAYLOAD) if has_payloads else HEADINGS)

    def add(self, message: RecordedMessage) -> None:
        """Writes a message, which is not before the last one."""
        *values, retain, payload = message
        row = [*values, str(retain).lower()]
        self._writer.writerow(
            row if payload is None else [*row, base64.b64encode(payload).decode()]
        )


@lru_cache(maxsize=8)
def _facts(path: str, _changed_ns: int, _size_bytes: int) -> RecordedFile:
    found, seen, topics, payloads = RecordedFile(), set[int](), set[str](), 0
    for message in recorded_messages(path):
        if message.after_ns < found.last_ns:
            reason = f"the instant {message.after_ns} after {found.last_ns}"
            raise RowsError(f"found {reason} in {path}, allowed is the order of time", RECORD_HINT)
        found.last_ns = message.after_ns
        if message.payload is not None:
            found.has_payloads, payloads = True, payloads + message.bytes
        if payloads > PAYLOADS_MAX:
            words = f"found more than {PAYLOADS_MAX:,} bytes of payloads in {path}"
            raise RowsError(f"{words}, allowed are as many", "record for a shorter time")
        if message.topic not in topics:
            topics.add(message.topic)
            longest = _checked_topic(message.topic, path)
            found.topic_bytes_max = max(found.topic_bytes_max, longest)
        seen.add(message.client)
        kind = found.kinds.setdefault((message.qos, message.retain), RecordedKind())
        kind.add(message.bytes)
        second = message.after_ns // 10**9
        found.seconds[second] = found.seconds.get(second, 0) + 1
        if message.retain:
            found.kept.add((message.client, message.topic))
    found.clients = max(seen, default=-1) + 1
    if len(seen) != found.clients:
        counted = f"found {len(seen)} clients with numbers up to {found.clients - 1} in {path}"
        raise RowsError(f"{counted}, allowed are numbers from 0 on without gaps", RECORD_HINT)
    if not seen:
        raise RowsError(f"found no messages in {path}, needed is one or more", RECORD_HINT)
    return found


def _rows(file: IO[str], path: str, kind: RowsKind[Row]) -> Iterator[Row]:
    reader = csv.reader(file, strict=True)
    try:
        headings = next(reader, [])
        allowed_headings = [list(kind.headings)]
        if kind.further is not None:
            allowed_headings.append([*kind.headings, kind.further])
        if headings not in allowed_headings:
            shown, allowed = ",".join(headings)[:80], ",".join(kind.headings)
            wrong = f"found the headings {shown!r} in {path}, needed are {allowed}"
            raise RowsError(wrong, RECORD_HINT)
        for row in reader:
            try:
                if len(row) != len(headings):
                    raise ValueError(f"{len(row)} values, allowed are {len(headings)}")
                yield kind.typed(row)
            except ValueError as error:
                found = f"found {error} in line {reader.line_num} of {path}"
                raise RowsError(found, RECORD_HINT) from None
            if reader.line_num > kind.most + 1:
                found = f"found more than {kind.most:,} {kind.things} in {path}"
                raise RowsError(f"{found}, allowed are as many", "record for a shorter time")
    except csv.Error as error:
        wrong = f"found no comma-separated values in line {reader.line_num} of {path}: {error}"
        raise RowsError(wrong, SAVE_HINT) from None


def _message(row: list[str]) -> RecordedMessage:
    after_ns, client, topic, size_bytes, qos, retain, *further = row
    if retain not in RETAINED:
        raise ValueError(f"retain {retain!r}, allowed are true and false")
    size = whole(size_bytes, "bytes", BYTES_MAX)
    return RecordedMessage(
        whole(after_ns, "after_ns", INSTANT_NS_MAX),
        whole(client, "client", MESSAGES_MAX - 1),
        topic,
        size,
        whole(qos, "qos", 2),
        RETAINED[retain],
        payload_of(further[0], size) if further else None,
    )


def payload_of(text: str, size_bytes: int) -> bytes:
    """Returns a payload in base64. Raises ValueError with the words of a message."""
    try:
        payload = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"payload {text[:40]!r}, allowed is base64") from None
    if base64.b64encode(payload).decode() != text:
        raise ValueError(f"payload {text[:40]!r}, allowed is base64 as it is usually written")
    if len(payload) != size_bytes:
        raise ValueError(f"a payload of {len(payload)} bytes, needed are {size_bytes}")
    return payload


def whole(text: str, name: str, most: int) -> int:
    """Returns a number of digits only. Raises ValueError with the words of a message."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= most):
        raise ValueError(f"{name} {text[:40]!r}, allowed are 0 to {most}")
    return int(text)


def _checked_topic(source: str, path: str) -> int:
    """Returns the bytes of the longest text of a topic. Raises RowsError."""
    try:
        template = Template.parse(source)
    except TemplateError as error:
        raise RowsError(f"found the topic {source[:80]!r} in {path}: found {error}") from None
    texts = "".join(part for part in template.parts if isinstance(part, str))
    others = any(variable.kind not in NUMBERS for variable in template.variables)
    if others or not source or set(texts) & {"+", "#", "\0"}:
        message = f"found the topic {source[:80]!r} in {path}, allowed are topics without wildcards"
        raise RowsError(f"{message}, with the variables {{n}}, {{n%K}} and {{n/K}}", RECORD_HINT)
    if template.bytes_max > TOPIC_BYTES_MAX:
        message = f"found a topic of up to {template.bytes_max} bytes in {path}"
        raise RowsError(f"{message}, allowed are {TOPIC_BYTES_MAX}")
    return template.bytes_max


def kept_templates(path: str, clients: int, offset: int) -> Iterator[tuple[str, int]]:
    """Yields templates of topics of messages that the broker keeps, each with a client that
    publishes to it. Client `c` plays recorded client `(c + offset) % recorded clients`."""
    file = read_recorded(path)
    by_client: dict[int, list[str]] = {}
    for client, topic in sorted(file.kept):
        by_client.setdefault(client, []).append(topic)
    for client in range(clients):
        for topic in by_client.get((client + offset) % file.clients, ()):
            yield topic, client


def kept_count(path: str, clients: int) -> int:
    """Returns the number of topics on which clients may keep messages, at most."""
    file = read_recorded(path)
    rounds = -(-clients // max(1, file.clients))
    return len(file.kept) * rounds


def by_second(seconds: Mapping[int, int]) -> list[int]:
    """Returns the messages of each second, from the first one on."""
    return [seconds.get(second, 0) for second in range(max(seconds, default=-1) + 1)]

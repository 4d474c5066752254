"""Reads the messages of a table: comma-separated values of time, client, topic and size."""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from pubstorm.cli.record.population import Observed
from pubstorm.contract.recorded import (
    BYTES_MAX,
    INSTANT_NS_MAX,
    TOPIC_BYTES_MAX,
    payload_of,
    whole,
)
from pubstorm.contract.template import SAVE_HINT, RowsError, unreadable
from pubstorm.files import opened

NEEDED = ("time", "client", "topic", "size")
OPTIONAL = ("qos", "retain", "event", "payload")
EVENTS = ("message", "connect", "disconnect")
_Move = tuple[int, str, bool]
"""Instant in nanoseconds, client, and True for a connect, False for a disconnect."""
FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}
COLUMNS_HINT = (
    "the first line has the headings time,client,topic,size and may have qos,retain,event,payload"
)


def read_table(path: Path, *, payloads: bool = False) -> Observed:
    """Returns the messages of a table, with their payloads or without. Raises RowsError."""
    observed = Observed(f"the table {path.name}", keeps_payloads=payloads)
    try:
        with (
            opened(path, follows_links=True) as content,
            io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as file,
        ):
            _read(file, path, observed)
    except UnicodeDecodeError:
        raise RowsError(f"found bytes in {path} that are not UTF-8", SAVE_HINT) from None
    except OSError as error:
        raise unreadable(str(path), error) from None
    return observed


def _read(file: IO[str], path: Path, observed: Observed) -> None:
    reader = csv.reader(file, strict=True)
    try:
        headings = [heading.strip().lower() for heading in next(reader, ())]
        known = [*NEEDED, *OPTIONAL]
        if not {*NEEDED} <= {*headings} <= {*known} or len({*headings}) != len(headings):
            found = f"found the headings {','.join(headings)[:80]!r} in {path}"
            raise RowsError(f"{found}, needed are {','.join(NEEDED)}", COLUMNS_HINT)
        if observed.keeps_payloads and "payload" not in headings:
            found = f"found no column payload in {path}, needed is it with --payloads"
            raise RowsError(found, "a payload is in base64")
        moves = list[_Move]()
        for row in reader:
            if not row:
                continue
            try:
                if len(row) != len(headings):
                    raise ValueError(f"{len(row)} values, allowed are {len(headings)}")
                _add(dict(zip(headings, row, strict=True)), observed, moves)
            except ValueError as error:
                wrong = f"found {error} in line {reader.line_num} of {path}"
                raise RowsError(wrong, COLUMNS_HINT) from None
    except csv.Error as error:
        wrong = f"found no comma-separated values in line {reader.line_num} of {path}: {error}"
        raise RowsError(wrong, SAVE_HINT) from None
    for at_ns, name, is_connect in sorted(moves):
        client = observed.client(name)
        if is_connect:
            client.connect(at_ns)
        else:
            client.disconnect(at_ns)
    observed.unknown.append("The table has no subscriptions and deliveries.")
    if "event" not in headings:
        observed.unknown.append("The table has no event: all clients are connected all the time.")
    for key in ("qos", "retain"):
        if key not in headings:
            value = "QoS 0" if key == "qos" else "not retained"
            observed.unknown.append(f"The table has no {key}: messages are played as {value}.")


def _add(row: dict[str, str], observed: Observed, moves: list[_Move]) -> None:
    topic, client = row["topic"], row["client"]
    event = row.get("event", "").strip().lower() or "message"
    if event not in EVENTS:
        raise ValueError(f"event {event[:20]!r}, allowed are {', '.join(EVENTS)}")
    if event != "message":
        if not client or topic or row["size"]:
            raise ValueError(
                f"a {event} with topic or size, or without client, allowed is a client"
            )
        moves.append((instant_ns(row["time"].strip()), client, event == "connect"))
        return
    is_topic = 0 < len(topic.encode()) <= TOPIC_BYTES_MAX and not set(topic) & {"+", "#", "\0"}
    if not is_topic:
        raise ValueError(f"the topic {topic[:80]!r}, allowed is one without wildcards")
    if not client:
        raise ValueError("an empty client")
    retain = row.get("retain", "").strip().lower()
    if retain not in FLAGS:
        raise ValueError(f"retain {retain[:20]!r}, allowed are true and false")
    size_bytes = whole(row["size"].strip(), "size", BYTES_MAX)
    payload: int | bytes = size_bytes
    if observed.keeps_payloads:
        payload = payload_of(row["payload"].strip(), size_bytes)
    flags = whole(row.get("qos", "").strip() or "0", "qos", 2), FLAGS[retain]
    observed.add(instant_ns(row["time"].strip()), (client, topic), payload, flags)


def instant_ns(text: str) -> int:
    """Returns an instant in nanoseconds: seconds as a number, or a date with a time of ISO 8601,
    in UTC unless it says otherwise. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            at = None
        if at is None:
            allowed = "seconds, or a date and time as 2026-01-31T12:00:00Z"
            raise ValueError(f"time {text[:40]!r}, allowed are {allowed}") from None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
        if since.days < 0:
            raise ValueError(f"time {text[:40]!r}, allowed is 1970 or later") from None
        return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    if not math.isfinite(seconds) or not 0 <= seconds * 1e9 <= INSTANT_NS_MAX * 2:
        raise ValueError(f"time {text[:40]!r}, allowed are 0 or more seconds")
    return round(seconds * 1e9)

"""Files of recorded sessions, as agents read them: comma-separated values with a row for each
session of a client, in the order of time (`crates/plan/src/schedule/sessions.rs`)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

from pubstorm.contract import U32, U62, Frozen
from pubstorm.contract.recorded import (
    INSTANT_NS_MAX,
    MESSAGES_MAX,
    RECORD_HINT,
    RowsKind,
    rows_in,
    whole,
)
from pubstorm.contract.template import RowsError, unreadable

HEADINGS = ("client", "from_ns", "until_ns")
"""Columns of a file."""
SESSIONS_MAX = 10_000_000
"""Most sessions of a file: an agent takes 16 bytes for each that its clients play."""


class SessionsRecording(Frozen):
    """Recorded sessions of the clients of a population."""

    file: str
    """Path of the file of recorded sessions."""
    first: U62
    """Client number `{n}` of the first recorded client."""
    clients: U32
    """Number of recorded clients: client `c` plays recorded client `c % clients`."""
    shift_ns: U62
    """Clients beyond the recorded ones are later by up to this time, in nanoseconds."""


class RecordedSession(NamedTuple):
    """A recorded session."""

    client: int
    """Number of its client, from 0 on."""
    from_ns: int
    """Start, in nanoseconds after the start of the recording; 0: connected when it begins."""
    until_ns: int | None
    """End in nanoseconds; None: the session lasts until the end of the recording."""


@dataclass
class SessionsFile:
    """The facts of a file."""

    clients: int = 0
    """Number of clients."""
    sessions: int = 0
    """Number of sessions."""
    ended: int = 0
    """Sessions that end within the recording."""
    connects: int = 0
    """Sessions that begin within the recording."""
    last_ns: int = 0
    """Latest start or end, in nanoseconds."""
    stay_sum_ns: int = 0
    """Time of all sessions that end, in nanoseconds."""
    offline_sum_ns: int = 0
    """Time between the sessions of a client, of all clients together, in nanoseconds."""
    returns: int = 0
    """Sessions after another one of the same client."""

    @property
    def stay_mean_ns(self) -> int:
        """Mean time of a session that ends, in nanoseconds."""
        return max(1, self.stay_sum_ns // max(1, self.ended))

    @property
    def offline_mean_ns(self) -> int | None:
        """Mean time between two sessions of a client, in nanoseconds; None if none returns."""
        return self.offline_sum_ns // self.returns if self.returns else None


def read_sessions(path: str) -> SessionsFile:
    """Returns the facts of a file of recorded sessions. Raises RowsError."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return _facts(path, state.st_mtime_ns, state.st_size)


def recorded_sessions(path: str) -> Iterator[RecordedSession]:
    """Yields the sessions of a file. Raises RowsError."""
    return rows_in(path, RowsKind("sessions", HEADINGS, SESSIONS_MAX, _session))


def write_sessions(file: IO[str], sessions: Iterable[RecordedSession]) -> None:
    """Writes sessions; those of a client are in the order of time."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADINGS)
    writer.writerows(sessions)


@lru_cache(maxsize=8)
def _facts(path: str, _changed_ns: int, _size_bytes: int) -> SessionsFile:
    found, ends_ns = SessionsFile(), dict[int, int | None]()
    for client, from_ns, until_ns in recorded_sessions(path):
        before_ns = ends_ns.get(client, 0)
        if before_ns is None or from_ns < before_ns:
            last = "one without an end" if before_ns is None else f"one until {before_ns}"
            reason = f"a session of client {client} from {from_ns} after {last}"
            raise RowsError(f"found {reason} in {path}, allowed is the order of time", RECORD_HINT)
        if client in ends_ns:
            found.returns += 1
            found.offline_sum_ns += from_ns - before_ns
        ends_ns[client] = until_ns
        found.sessions += 1
        found.connects += from_ns > 0
        found.last_ns = max(found.last_ns, from_ns, until_ns or 0)
        if until_ns is not None:
            found.ended += 1
            found.stay_sum_ns += until_ns - from_ns
    found.clients = max(ends_ns, default=-1) + 1
    if len(ends_ns) != found.clients:
        counted = f"found {len(ends_ns)} clients with numbers up to {found.clients - 1} in {path}"
        raise RowsError(f"{counted}, allowed are numbers from 0 on without gaps", RECORD_HINT)
    if not ends_ns:
        raise RowsError(f"found no sessions in {path}, needed is one or more", RECORD_HINT)
    return found


def _session(row: list[str]) -> RecordedSession:
    client, from_text, until_text = row
    from_ns = whole(from_text, "from_ns", INSTANT_NS_MAX)
    until_ns = whole(until_text, "until_ns", INSTANT_NS_MAX) if until_text else None
    if until_ns is not None and until_ns <= from_ns:
        raise ValueError(f"a session from {from_ns} until {until_ns}, allowed is a later end")
    return RecordedSession(whole(client, "client", MESSAGES_MAX - 1), from_ns, until_ns)

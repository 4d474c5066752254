"""Users and rights written to a Redis, read back and removed, batch after batch. A marker in the
same Redis has the number of rows that Redis has confirmed, so that writing continues there after an
interruption. What Redis refuses becomes a sentence."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from pubstorm.errors import PubstormError, StoreError, UsageError
from pubstorm.topology.identities.accounts import SCHEMES, Accounts, Hash, Scheme, digest

Command = tuple[str, ...]
"""Words of a command. They are texts: hiredis 3.5 ends the process if a signal raises an exception
while it packs a number."""
CONNECT_S = 5.0
"""Longest wait for a connection."""
ANSWER_S = 10.0
"""Longest wait for an answer."""
DEFAULT_PORT = 6379
ALLOWED = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Address and login of a Redis."""

    host: str
    port: int
    database: int = 0
    username: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """The address in a URL; raises UsageError."""
        found = _URL.fullmatch(url)
        port = int(found["port"] or DEFAULT_PORT) if found else 0
        if found is None or not 0 < port <= 65535:
            hidden = re.sub(r"//.*@", "//...@", url)
            raise UsageError(f"found {hidden}, allowed is {ALLOWED}", "redis://127.0.0.1:6379/0")
        return cls(
            host=found["address"] or found["host"],
            port=port,
            database=int(found["database"] or 0),
            username=unquote(found["user"]) if found["user"] else None,
            password=unquote(found["password"]) if found["password"] is not None else None,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis://{host}:{self.port}/{self.database}"


class RedisStore:
    """One connection to a Redis. Once it is lost every command raises StoreError: a Redis that has
    come back may have forgotten what it had."""

    def __init__(self, address: RedisAddress, answer_s: float = ANSWER_S) -> None:
        self.address = address
        self._answer_s = answer_s
        self._was_connected = False
        made: Any = Connection
        self._connection = made(
            host=address.host,
            port=address.port,
            db=str(address.database or ""),
            username=address.username,
            password=address.password,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=answer_s,
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=self._connect_once,
            decode_responses=True,
            encoding_errors="replace",
            protocol=2,
        )

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands, which are sent at once; raises StoreError at the first that is
        refused."""
        answers = self.answers(commands)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, RedisError):
                raise self._in_words(answer, command)
        return answers

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """The same, where an answer may be a refusal to do that on a key of another type."""
        connection = self._connection
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            answers = [self._answer() for _ in commands]
        except (RedisError, OSError) as error:
            raise self._in_words(error) from error
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, RedisError) and not is_of_another_type(answer):
                raise self._in_words(answer, command)
        return answers

    def fields(self, key: str) -> Mapping[str, str]:
        """The fields of a hash; none where there is no such key."""
        pairs = self.run([("HGETALL", key)])[0]
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    def info(self) -> Mapping[str, str]:
        """Returns the figures that Redis reports."""
        lines = str(self.run([("INFO",)])[0]).splitlines()
        pairs = (line.partition(":") for line in lines if not line.startswith("#"))
        return {name: value for name, _, value in pairs}

    def close(self) -> None:
        """Closes the connection."""
        self._connection.disconnect()

    def _answer(self) -> Any:
        """The next answer, which may be a refusal."""
        try:
            return self._connection.read_response()
        except ResponseError as refusal:
            return refusal

    def _connect_once(self, connection: Any) -> None:
        if self._was_connected:
            raise ConnectionError(LOST)
        connection.on_connect()
        self._was_connected = True

    def _in_words(self, error: Exception, command: Command = ()) -> StoreError:
        where = f"Redis at {self.address}"
        text = str(error).removeprefix("ResponseError: ")
        if is_of_another_type(error):
            key = command[1] if len(command) > 1 else "?"
            return StoreError(
                f"{where} has the key {key} with something else than a hash",
                "delete it, or write to another database",
            )
        for kind, words, hint in _REFUSALS:
            if isinstance(error, kind):
                return StoreError(f"{where} {words.format(answer_s=self._answer_s)}", hint)
        for start, words, hint in _ANSWERS:
            if text.startswith(start):
                return StoreError(f"{where} {words}", hint)
        if isinstance(error, ConnectionError | OSError):
            if self._was_connected:
                return StoreError(f"{where} closed the connection", "look whether it still runs")
            reason = f"{where} cannot be reached: {_reason(text)}"
            return StoreError(reason, "start it, or check the address")
        return StoreError(f"{where} refuses: {text}")


def is_of_another_type(answer: object) -> bool:
    """Returns True if Redis refused a command because the key has another type."""
    return isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE")


def _reason(text: str) -> str:
    """The system's words for why there is no connection, without what we know already."""
    found = re.search(r"(?:Error \S+ )?(?:connecting to \S+?\.? )?(.*)", text)
    reason = (found[1] if found else text).strip().rstrip(".")
    return reason[:1].lower() + reason[1:]


LOST = "lost"
_REFUSALS: tuple[tuple[type[Exception], str, str | None], ...] = (
    (TimeoutError, "does not answer for {answer_s:.0f} s", "look what it is busy with"),
    (AuthenticationError, "wants another password", f"write it into the address: {ALLOWED}"),
    (NoPermissionError, "does not let this user do that", "its ACL has to allow HSET, HMGET, HDEL"),
    (ReadOnlyError, "is a replica that is only read", "name the main one"),
    (OutOfMemoryError, "is full", "raise its maxmemory, or write fewer users"),
    (MaxConnectionsError, "has too many clients", "raise its maxclients"),
)
_ANSWERS = (
    ("NOAUTH", "wants a password", f"write it into the address: {ALLOWED}"),
    ("OOM", "is full", "raise its maxmemory, or write fewer users"),
    ("READONLY", "is a replica that is only read", "name the main one"),
    ("LOADING", "still reads its data from the disk", "try again in a moment"),
    ("MISCONF", "takes no data, since it cannot save it to its disk", "make room on its disk"),
    ("MOVED", "is a node of a cluster", "name a Redis that is none: brokers look in one place"),
    ("CLUSTERDOWN", "is a node of a cluster", "name a Redis that is none"),
    ("DB index", "has no such database", "the default has 16, from 0 on"),
    ("max number of clients", "has too many clients", "raise its maxclients"),
)
_URL = re.compile(
    r"redis://(?:(?P<user>[^:@/]*):(?P<password>[^@/]*)@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))"
    r"(?::(?P<port>\d{1,5}))?(?:/(?P<database>\d{1,4}))?/?",
    re.ASCII,
)


MARKER = "pubstorm:seed:"
"""Beginning of a marker's key; the digest of the rows follows."""
BATCH_ROWS = 5_000
"""Rows that are sent at once."""
SAMPLE = 1_000
"""Users that are read back after a run has written them."""
EXAMPLES_MAX = 5
"""Rows that are named where they are missing or wrong."""
NOTIFY_EVERY_S = 1.0

Notify = Callable[[str], None]
"""Takes the progress, in words."""


@dataclass(frozen=True)
class Identities:
    """Rows to write: accounts by population, in a scheme."""

    accounts: Sequence[Accounts]
    scheme: Scheme = SCHEMES["emqx"]

    @property
    def rows(self) -> int:
        """Rows of all of them."""
        return sum(accounts.rows for accounts in self.accounts)

    @property
    def marker(self) -> str:
        """The key that says how far writing came."""
        written = [accounts.description for accounts in self.accounts]
        return MARKER + digest(self.scheme.model_dump(mode="json"), written)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are sent at once, all of one population."""

    population: int
    """Index of the population."""
    upto: int
    """Number of its accounts that are done."""
    rows: int
    hashes: Sequence[Hash]


@dataclass
class SeedVerification:
    """Result of reading rows back."""

    rows: int = 0
    """Rows that were read."""
    missing: int = 0
    wrong: int = 0
    """Rows with another value."""
    examples: list[str] = field(default_factory=list)
    """The first that are missing or wrong, in words."""

    @property
    def is_good(self) -> bool:
        """True if all rows exist and are right."""
        return not (self.missing or self.wrong)

    def add(self, what: str, key: str, rows: Sequence[str]) -> None:
        """Takes rows of a key that are missing or wrong."""
        if what == "missing":
            self.missing += len(rows)
        else:
            self.wrong += len(rows)
        room = EXAMPLES_MAX - len(self.examples)
        self.examples += [f"{what}: {key} {row}" for row in rows[:room]]


class Meter:
    """Progress, reported every second after the first."""

    def __init__(self, total: int, done: int, notify: Notify) -> None:
        self.total = total
        self.done = self._began_at = done
        self._notify = notify
        self._began_s = time.monotonic()
        self._next_s = self._began_s + NOTIFY_EVERY_S

    def advance(self, rows: int) -> None:
        """Adds rows that are done."""
        self.done += rows
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + NOTIFY_EVERY_S
            left_s = (self.total - self.done) / max(self.rate_per_s, 1)
            self._notify(f"{self.reached}, {self.rate_per_s:,.0f}/s, {left_s:.0f} s left")

    @property
    def reached(self) -> str:
        """Returns the progress in words."""
        return f"{self.done:,} of {self.total:,} rows"

    @property
    def rate_per_s(self) -> float:
        """Rows a second, since it began."""
        return (self.done - self._began_at) / max(self.took_s, 1e-3)

    @property
    def took_s(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._began_s


class Seeding:
    """Identities in one Redis."""

    def __init__(
        self, store: RedisStore, identities: Identities, batch_rows: int = BATCH_ROWS
    ) -> None:
        self._store = store
        self._identities = identities
        self._batch_rows = batch_rows

    def positions(self) -> list[int]:
        """Returns the accounts of each population that were written before, by the marker."""
        found = self._store.fields(self._identities.marker)
        accounts = self._identities.accounts
        positions = []
        for index, each in enumerate(accounts):
            mark = found.get(_mark_of(index, each), "0")
            positions.append(min(int(mark), each.count) if mark.isdecimal() else 0)
        return positions

    def forget(self) -> None:
        """Deletes the marker: what comes next begins anew."""
        self._store.run([("DEL", self._identities.marker)])

    def done_before(self, positions: Sequence[int]) -> int:
        """Rows up to these positions."""
        accounts = self._identities.accounts
        return sum(at * each.rows_each for at, each in zip(positions, accounts, strict=True))

    def write(self, positions: Sequence[int], meter: Meter, *, is_marked: bool = True) -> None:
        """Writes what is left from the positions on. The marker, if there is to be one, is moved at
        the head of the next batch, when Redis has confirmed the one before."""
        confirmed: list[Command] = []
        for batch in self._batches(positions):
            sets = [_with_fields("HSET", key, fields) for key, fields in batch.hashes]
            self._store.run([*confirmed, *sets])
            confirmed = [self._mark(batch)] if is_marked else []
            meter.advance(batch.rows)
        if confirmed:
            self._store.run(confirmed)

    def verify(self, meter: Meter) -> SeedVerification:
        """Reads every row back."""
        findings = SeedVerification()
        for batch in self._batches([0] * len(self._identities.accounts)):
            self._compare(batch.hashes, findings)
            findings.rows += batch.rows
            meter.advance(batch.rows)
        return findings

    def sample(self) -> SeedVerification:
        """Reads the rows of a few users back, evenly over all."""
        findings = SeedVerification()
        for accounts in self._identities.accounts:
            step = max(1, accounts.count // SAMPLE)
            indices = range(accounts.count - 1, -1, -step)
            for start in range(0, len(indices), self._batch_rows):
                chosen = indices[start : start + self._batch_rows]
                scheme = self._identities.scheme
                hashes = [h for index in chosen for h in scheme.hashes(accounts.at(index))]
                self._compare(hashes, findings)
                findings.rows += len(chosen) * accounts.rows_each
        return findings

    def remove(self, meter: Meter) -> int:
        """Removes the marker, then every row that would be written; returns the number of rows."""
        self.forget()
        removed = 0
        for batch in self._batches([0] * len(self._identities.accounts)):
            commands: list[Command] = [("HDEL", key, *fields) for key, fields in batch.hashes]
            answers = self._store.answers(commands)
            removed += sum(answer for answer in answers if isinstance(answer, int))
            meter.advance(batch.rows)
        return removed

    def _batches(self, positions: Sequence[int]) -> Iterator[Batch]:
        scheme = self._identities.scheme
        for index, accounts in enumerate(self._identities.accounts):
            step = max(1, self._batch_rows // accounts.rows_each)
            for start in range(positions[index], accounts.count, step):
                end = min(start + step, accounts.count)
                hashes = [h for n in range(start, end) for h in scheme.hashes(accounts.at(n))]
                yield Batch(index, end, (end - start) * accounts.rows_each, hashes)

    def _mark(self, batch: Batch) -> Command:
        name = _mark_of(batch.population, self._identities.accounts[batch.population])
        return ("HSET", self._identities.marker, name, str(batch.upto))

    def _compare(self, hashes: Sequence[Hash], findings: SeedVerification) -> None:
        """Looks whether keys have their fields."""
        answers = self._store.answers([("HMGET", key, *fields) for key, fields in hashes])
        for (key, fields), values in zip(hashes, answers, strict=True):
            if is_of_another_type(values):
                findings.add("wrong", key, [*fields])
            elif values != [*fields.values()]:
                pairs = list(zip(fields.items(), values, strict=True))
                findings.add("missing", key, [name for (name, _), has in pairs if has is None])
                wrong = [name for (name, v), has in pairs if has is not None and has != v]
                findings.add("wrong", key, wrong)


async def seed_all(url: str, accounts: Sequence[Accounts], notify: Notify) -> int:
    """Writes accounts to a Redis of the run, in the scheme of the embedded broker, and reads some
    of them back; how many rows it wrote. Raises PubstormError."""
    loop = asyncio.get_running_loop()
    given_up = threading.Event()

    def notify_there(text: str) -> None:
        loop.call_soon_threadsafe(notify, text)

    try:
        return await asyncio.to_thread(_seed, url, accounts, notify_there, given_up)
    finally:
        given_up.set()


def _seed(url: str, accounts: Sequence[Accounts], notify: Notify, given_up: threading.Event) -> int:
    identities = Identities(accounts)
    store = RedisStore(RedisAddress.parse(url))
    try:
        seeding = Seeding(store, identities)
        meter = _Stoppable(identities.rows, notify, given_up)
        # A Redis that ends with its run needs no marks to resume.
        seeding.write([0] * len(accounts), meter, is_marked=False)
        findings = seeding.sample()
    finally:
        store.close()
    if not findings.is_good:
        raise StoreError(
            f"{findings.missing + findings.wrong:,} of {findings.rows:,} rows are not there after "
            f"they were written ({findings.examples[0]})",
            "its settings may evict keys: raise maxmemory",
        )
    return meter.done


class _Stoppable(Meter):
    """Ends the measured work when its caller has given up."""

    def __init__(self, total: int, notify: Notify, given_up: threading.Event) -> None:
        super().__init__(total, 0, notify)
        self._given_up = given_up

    def advance(self, rows: int) -> None:
        """Raises PubstormError where it was given up."""
        super().advance(rows)
        if self._given_up.is_set():
            raise PubstormError("given up")


def _mark_of(index: int, accounts: Accounts) -> str:
    """The field of the marker for a population."""
    return f"{index} {accounts.population}"


def _with_fields(word: str, key: str, fields: Mapping[str, str]) -> Command:
    return (word, key, *(part for pair in fields.items() for part in pair))

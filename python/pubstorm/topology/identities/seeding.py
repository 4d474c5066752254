"""Users and rights written to a Redis, read back and removed, batch after batch. A marker in the
same Redis has the number of rows that Redis has confirmed, so that writing continues there after an
interruption."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.errors import PubstormError, StoreError
from pubstorm.topology.identities.accounts import Accounts, digest
from pubstorm.topology.identities.scheme import SCHEMES, Hash, Scheme
from pubstorm.topology.identities.store import Command, RedisAddress, RedisStore, is_of_another_type

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

"""A connection to a Redis for reading and writing, with pipelines, and with an error text for
everything that Redis refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from pubstorm.errors import StoreError, UsageError

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

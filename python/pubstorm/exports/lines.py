"""Samples and events as lines of text in a file or a named pipe: JSON, or the line protocol of
InfluxDB. A pipe without a reader, a reader that leaves and a full disk cost lines, and nothing
else."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import UsageError
from pubstorm.exports import Event, FaultState, Item, Run, Samples

WAITING_MAX = 10_000
"""Lines that wait for the reader of a pipe; beyond them the oldest is dropped."""

Tags = Mapping[str, str]
Fields = Mapping[str, float | str]
Form = Callable[[str, int, Tags, Fields], str]
"""Makes a line of its subject (`sample` or `event`), wall clock in nanoseconds, tags and fields."""


def json_line(subject: str, unix_ns: int, tags: Tags, fields: Fields) -> str:
    """Returns a JSON object."""
    second, rest_ns = divmod(unix_ns, 10**9)
    time = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns:09}Z"
    return json.dumps({"kind": subject, "time": time, **tags, "fields": fields})


def influx_line(subject: str, unix_ns: int, tags: Tags, fields: Fields) -> str:
    """Returns a point of the line protocol."""
    named = "".join(f",{_escaped(k)}={_escaped(v)}" for k, v in sorted(tags.items()) if v)
    values = ",".join(f"{_escaped(k)}={_value(v)}" for k, v in fields.items())
    return f"pubstorm_{subject}{named} {values} {unix_ns}"


def _escaped(text: str) -> str:
    """Returns a tag or a key. A backslash at its end would escape the next character."""
    for character in (",", "=", " "):
        text = text.replace(character, f"\\{character}")
    text = text.replace("\n", "\\ ").replace("\r", "")
    return f"{text}_" if text.endswith("\\") else text


def _value(value: float | str) -> str:
    if isinstance(value, str):
        inner = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'"{inner}"'
    return repr(float(value))


class Lines:
    """A file or pipe, as an export."""

    def __init__(self, option: str, path: Path, form: Form) -> None:
        """Opens the file. Raises UsageError if that is impossible."""
        self.name = f"{option} {path}"
        self.unit = ("line", "lines")
        self.dropped = 0
        self.problem = ""
        self._path = path
        self._form = form
        self._waiting: deque[bytes] = deque()
        self._written = 0
        """Bytes of the first waiting line that the pipe has taken."""
        self._stage: int | None = None
        self._run: Run | None = None
        self._is_pipe = path.exists() and stat.S_ISFIFO(path.stat().st_mode)
        self._file: int | None = None
        try:
            self._file = self._opened()
        except OSError as error:
            raise UsageError(
                f"{self.name}: cannot open it: {error.strerror}", "name a file or a named pipe"
            ) from error

    def take(self, run: Run, item: Item) -> None:
        """Adds the lines of an item."""
        if run is not self._run:
            self._run, self._stage = run, None
        for line in self._lines(run, item):
            if len(self._waiting) >= WAITING_MAX:
                self._drop(1, "no reader took them")
            self._waiting.append(f"{line}\n".encode())
        self.rest()

    def rest(self) -> None:
        """Writes what waits, as far as that takes no time."""
        try:
            self._write()
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(error)

    def end(self) -> None:
        """Drops what no reader took."""
        self.rest()
        if self._waiting:
            self._drop(len(self._waiting), "no reader took them")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int | None:
        """Returns the open file; None if it is a pipe without a reader."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(self._path, flags if self._is_pipe else flags | os.O_CREAT, 0o644)
        except OSError as error:
            if self._is_pipe and error.errno == errno.ENXIO:
                return None
            raise

    def _write(self) -> None:
        while self._waiting:
            if self._file is None:
                self._file = self._opened()
                self._written = 0
            if self._file is None:
                return
            line = self._waiting[0]
            self._written += os.write(self._file, line[self._written :])
            if self._written == len(line):
                self._waiting.popleft()
                self._written = 0

    def _failed(self, error: OSError) -> None:
        """Keeps lines for the next reader of a pipe. Of a file, a half line is taken back."""
        if self._is_pipe:
            self.close()
            self._written = 0
            return
        if self._file is not None and self._written:
            os.ftruncate(self._file, os.fstat(self._file).st_size - self._written)
            self._written = 0
        self._drop(len(self._waiting), error.strerror or str(error))

    def _drop(self, count: int, reason: str) -> None:
        """Drops the oldest lines. The rest of a line that the pipe has taken in part is lost with
        its reader only."""
        self.problem = self.problem or reason
        kept = self._waiting.popleft() if self._written else None
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()
            self.dropped += 1
        if kept is not None:
            self._waiting.appendleft(kept)

    def _lines(self, run: Run, item: Item) -> Iterator[str]:
        tags = {"run": run.name, "scenario": run.scenario}
        stage = "" if self._stage is None else run.plan.stages[self._stage].name
        if isinstance(item, Samples):
            for (at_s, source), fields in _by_source(item).items():
                of_source = {**tags, "source": source, "stage": stage}
                yield self._form("sample", run.unix_ns(at_s), of_source, fields)
        elif isinstance(item, Snapshot):
            if item.stage is not None and item.stage > (-1 if self._stage is None else self._stage):
                self._stage = item.stage
                at_ns = run.started_unix_ns + max(item.from_ns - run.started_ns, 0)
                text = {"text": run.plan.stages[item.stage].name}
                yield self._form("event", at_ns, {**tags, "event": "stage begins"}, text)
        elif isinstance(item, Event):
            of_event = {**tags, "event": item.kind}
            yield self._form("event", run.unix_ns(item.at_s), of_event, {"text": item.text})
        else:
            assert isinstance(item, FaultState)


def _by_source(item: Samples) -> dict[tuple[float, str], dict[str, float]]:
    found: dict[tuple[float, str], dict[str, float]] = {}
    for each in item.samples:
        if math.isfinite(each.value):
            found.setdefault((each.at_s, each.source.name), {})[each.metric] = each.value
    return found

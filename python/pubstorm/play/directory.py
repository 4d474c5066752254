"""The directory of one run or experiment: stores what comes at once. A full disk or a removed
folder ends no run: the first failure is kept and reported, and later writes are left out. One
player at a time has a directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import itertools
import math
import os
import queue
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import BinaryIO, Self

from pubstorm.contract import Sample
from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.errors import StoredRunError
from pubstorm.files import text_of
from pubstorm.host.proc import has_open
from pubstorm.result.journal import (
    FOLDER,
    LEVEL,
    STEPS,
    JournalPart,
    merged_lines,
    part_path,
    parts,
)
from pubstorm.result.samples import EVENTS_FILE, HEADER, SAMPLES_FILE, csv_lines
from pubstorm.result.timeline.cells import Merging

PLAN_FILE = "plan.json"
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 2**20
"""Space kept free during a run, so that its result fits on a disk that has filled up."""

PART_BYTES = {SNAPSHOTS_FILE: 64 * 2**20, SAMPLES_FILE: 16 * 2**20}
"""Bytes from which a journal continues in a new file."""
STEP_BYTES = {SNAPSHOTS_FILE: 256 * 2**20, SAMPLES_FILE: 64 * 2**20}
"""Compressed bytes of own intervals, and of minutes, from which the older half is merged."""
CLOSE_S = 10.0
"""Longest time for which the end of a run waits until its last part is compressed."""

CONTROL_FILE = "control.sock"
"""Name of the control socket."""
NOT_STORED = 3
"""Exit code where what was measured cannot be stored."""
MOVED = "the folder of the run was moved away, and another one has its place"
LOCKS = Path("/proc/locks")
"""The locks of this machine (`man 5 proc_locks`)."""


class RunDirectory:
    """A run's own folder, `<time>-<name>`. Open it with `with` to play in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.topology = path / "topology"
        self.failure: str | None = None
        """The first thing that could not be written, and why; None as long as all could."""
        self.merging: Merging | None = None
        """Rule by which old parts of journals are merged; None: they are only compressed."""
        self._open: dict[str, BinaryIO] = {}
        self._sizes = Counter[str]()
        """Bytes of the files that were written."""
        self._ageing: _Ageing | None = None
        self._folder: int | None = None
        """Descriptor of the folder while it is played in."""

    def __enter__(self) -> Self:
        """Keeps other players away. The kernel does so until this process ends, however it ends.
        Raises StoredRunError if another player is in the folder."""
        try:
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise is_played(self.path) from error
        except OSError:
            # A file system without locks keeps no player away.
            return self
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @classmethod
    def create(cls, path: Path, inner: str = "logs") -> RunDirectory:
        """Makes the folder, which must be new or empty, with one in it, or raises
        StoredRunError."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise StoredRunError(f"{path} is not empty", "choose another folder with --out")
            directory = cls(path)
            (path / inner).mkdir()
            directory._reserve()
        except OSError as error:
            raise StoredRunError(
                f"cannot make the run directory {path}: {error.strerror}",
                "choose another place with --out",
            ) from error
        return directory

    def release(self) -> None:
        """Gives the reserve free: what comes now is the result."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE_FILE).unlink()

    def write(self, file: str, content: str | bytes) -> str | None:
        """Puts a file in place as a whole, never half. Returns why it could not be written; None
        if it is in place."""
        target = self.path / file
        temporary = target.with_name(f".{file}.new")
        try:
            self._check_place()
            if isinstance(content, str):
                content = content.encode(errors="backslashreplace")
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            # "x": a link in its place would lead to a file of someone else.
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
        except OSError as error:
            self._failed(file, error)
            with contextlib.suppress(OSError):
                temporary.unlink()
            return self._reason(error)
        return None

    def append_snapshot(self, line: bytes) -> None:
        """Appends a snapshot as it came, until writing fails once."""
        self._append(SNAPSHOTS_FILE, line)

    def append_event(self, line: str) -> None:
        """Appends an event or the start of a stage, until writing fails once."""
        self._append(EVENTS_FILE, line.encode() + b"\n")

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Appends samples, until writing fails once."""
        text = "".join(csv_lines(samples))
        if text and SAMPLES_FILE not in self._open:
            text = ",".join(HEADER) + "\n" + text
        if text:
            self._append(SAMPLES_FILE, text.encode())

    def close(self) -> None:
        """Closes what is open, and lets other players in."""
        self.release()
        while self._open:
            self._open.popitem()[1].close()
        if self._ageing is not None:
            self._ageing.close()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def check(self) -> None:
        """Raises StoredRunError if the folder is not in its place any more. What is stored so far
        is where the folder is now."""
        try:
            self._check_place()
        except OSError as error:
            raise StoredRunError(
                f"cannot continue in {self.path}: {self._reason(error)}",
                "where it is now, pubstorm run --resume plays the rest",
                exit_code=NOT_STORED,
            ) from error

    def _check_place(self) -> None:
        """Raises OSError if another folder, or none, has the place of the one that is played
        in."""
        if self._folder is None:
            return
        if not os.path.samestat(self.path.stat(), os.fstat(self._folder)):
            raise OSError(errno.ESTALE, MOVED)

    def _reserve(self) -> None:
        with contextlib.suppress(OSError), (self.path / RESERVE_FILE).open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)

    def _append(self, file: str, data: bytes) -> None:
        if self.failure is not None:
            return
        try:
            if file not in self._open:
                self._check_place()
                self._open[file] = (self.path / file).open("ab", buffering=0)
            self._open[file].write(data)
            self._sizes[file] += len(data)
            if self._sizes[file] >= PART_BYTES.get(file, math.inf):
                self._turn_over(file)
        except OSError as error:
            self._failed(file, error)

    def _turn_over(self, file: str) -> None:
        """Makes a file that is full a part of its journal. The next one begins with what comes."""
        self._open.pop(file).close()
        del self._sizes[file]
        (self.path / FOLDER).mkdir(exist_ok=True)
        number = max((part.last for part in parts(self.path, file)), default=0) + 1
        full = part_path(self.path, file, (number, number))
        (self.path / file).rename(full)
        if self._ageing is None:
            self._ageing = _Ageing(self)
        self._ageing.put(file, full)

    def age_failed(self, path: Path, error: Exception) -> None:
        """Notes that a part of a journal could not be compressed or merged."""
        if isinstance(error, OSError):
            self._failed(str(path.relative_to(self.path)), error)
        elif self.failure is None:
            self.failure = f"cannot merge {path}: {type(error).__name__}: {error}"

    def _failed(self, file: str, error: OSError) -> None:
        if self.failure is None:
            self.failure = f"cannot write {self.path / file}: {self._reason(error)}"

    def _reason(self, error: OSError) -> str:
        if error.errno == errno.ENOENT and not self.path.exists():
            return "the folder of the run was removed or renamed"
        return error.strerror or str(error)


def is_played(path: Path) -> StoredRunError:
    """Returns the error of a folder in which another player is."""
    pid = player_of(path)
    by = f" by pubstorm with pid {pid}" if pid else ""
    return StoredRunError(
        f"{path} is being played{by}", "wait for its end, or end it there with Ctrl-C"
    )


def player_of(path: Path) -> int:
    """Returns the process that plays in a folder; 0 if there is none that this host shows. A number
    of a file alone proves nothing: another file system may have the same."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = str(path.stat().st_ino)
        for line in LOCKS.read_text().splitlines():
            _, kind, _, _, pid, file, *_ = line.split()
            same = kind == "FLOCK" and file.rpartition(":")[2] == inode
            if same and has_open(int(pid), path):
                return int(pid)
    return 0


class _Ageing:
    """Compresses the full parts of journals, and merges old ones where they take too much space, in
    a thread of its own. It has the priority of the others: one that waits for a processor while it
    holds the interpreter would hold up the run."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._queue: queue.SimpleQueue[tuple[str, Path] | threading.Event | None] = (
            queue.SimpleQueue()
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def put(self, file: str, path: Path) -> None:
        """Adds a part that is full."""
        self._queue.put((file, path))

    def wait(self) -> None:
        """Waits until all that is full is compressed and merged."""
        done = threading.Event()
        self._queue.put(done)
        done.wait()

    def close(self) -> None:
        """Compresses what is full, and gives up what is being merged."""
        self._is_over.set()
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while (found := self._queue.get()) is not None:
            if isinstance(found, threading.Event):
                found.set()
                continue
            file, path = found
            try:
                self._compress(path)
                self._merge(file)
            except Exception as error:  # a journal that cannot be merged must not end the run
                self._directory.age_failed(path, error)

    def _compress(self, path: Path) -> None:
        with path.open("rb") as lines:
            self._write(path, lines)
        path.unlink()

    def _merge(self, file: str) -> None:
        """Merges the older half of the parts of a step that are too large together."""
        for step, coarser in pairwise(STEPS):
            full = parts(self._directory.path, file)
            found = [part for part in full if part.step == step and part.is_compressed]
            until = list(accumulate(part.size for part in found))
            if self._directory.merging is None or not found or until[-1] <= STEP_BYTES[file]:
                continue
            half = found[: max(bisect_right(until, until[-1] // 2), 1)]
            numbers = half[0].first, half[-1].last
            lines = chain.from_iterable(map(self._lines, half))
            merged = merged_lines(file, lines, coarser, self._directory.merging)
            if self._write(part_path(self._directory.path, file, numbers, coarser), merged):
                for part in half:
                    part.path.unlink()

    def _lines(self, part: JournalPart) -> Iterator[bytes]:
        with part.opened() as stream:
            yield from stream

    def _write(self, path: Path, lines: Iterable[bytes]) -> bool:
        """Writes a compressed part as a whole. Returns False if the run ended meanwhile, and the
        lines are those of other parts."""
        new, is_merged = path.with_name(f".{path.name}.new"), not path.exists()
        try:
            with gzip.open(new, "wb", LEVEL) as stream:
                for line in lines:
                    if is_merged and self._is_over.is_set():
                        return False
                    stream.write(line)
            new.replace(path.with_name(f"{path.name}.gz"))
            return True
        finally:
            new.unlink(missing_ok=True)


def set_aside(folder: Path) -> None:
    """Renames what is left of a run that was not played to its end; raises StoredRunError."""
    names = (folder.with_name(f"{folder.name}.broken-{n}") for n in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    try:
        folder.rename(aside)
    except OSError as error:
        raise StoredRunError(f"cannot rename {folder} to {aside.name}: {error.strerror}") from error


def stored_scenario(path: Path) -> str:
    """The text of a scenario in a folder as it was read, without the settings noted at its end;
    raises StoredRunError."""
    try:
        lines = text_of(path).splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise StoredRunError(f"cannot read {path}: {error}") from error
    while lines and lines[-1].startswith(("# with --set ", "# with --target ")):
        lines.pop()
    return "".join(lines)


def new_path(parent: Path, name: str, now: datetime) -> Path:
    """A path in `parent` that is free: `<time>-<name>`, with a number where that is taken."""
    stem = f"{now:%Y%m%d-%H%M%S}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:80]}"
    candidates = (parent / (stem if n == 1 else f"{stem}-{n}") for n in itertools.count(1))
    return next(path for path in candidates if not path.exists())

"""The directory of one run or experiment: stores what comes at once. A full disk or a removed
folder ends no run: the first failure is kept and reported, and later writes are left out. One
player at a time has a directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Self

from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.contract.source import Sample
from pubstorm.errors import StoredRunError
from pubstorm.result.samples import EVENTS_FILE, HEADER, SAMPLES_FILE, csv_lines

PLAN_FILE = "plan.json"
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 2**20
"""Space kept free during a run, so that its result fits on a disk that has filled up."""


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
        self._open: dict[str, BinaryIO] = {}
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
            with temporary.open("wb") as stream:
                if isinstance(content, str):
                    content = content.encode(errors="backslashreplace")
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
        except OSError as error:
            self._failed(file, error)

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
    """Returns the process that plays in a folder; 0 if there is none that this user may see."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        folder = path.stat()
        for line in LOCKS.read_text().splitlines():
            words = line.split()
            inode = words[5].rpartition(":")[2]
            if words[1] == "FLOCK" and inode == str(folder.st_ino) and _opened(words[4], folder):
                return int(words[4])
    return 0


def _opened(pid: str, folder: os.stat_result) -> bool:
    """Returns True if a process has a folder open. Another file system may have a file of the same
    number that is locked."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                if os.path.samestat(descriptor.stat(), folder):
                    return True
    return False


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
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
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

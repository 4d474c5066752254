"""Shares of this host that a server may use: processors by affinity, and memory by a cgroup of
version 1 or 2. A cgroup is made inside that of this process, or beside it if version 2 allows none
inside. It is removed when its processes have ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PREFIX = "pubstorm-"
"""Beginning of the names of cgroups that runs make."""
JOINER = "join-cgroup"
JOIN = 'echo $$ >"$1" && shift && exec "$@"'
"""Puts a process into a cgroup, and then becomes the command."""
REMOVE_S = 1.0
"""Longest time until the kernel has taken ended processes out of a cgroup."""
LOOK_S = 0.01
"""Time between two attempts to remove a cgroup."""
PROCESSORS_MAX = 1024
"""Processors that the kernel's interface numbers without a larger mask."""


def absent_processors(wanted: Collection[int]) -> list[int]:
    """Returns the processors that no process of this host can use, or no process of its container.
    The affinity of this process is no bound: a user may keep it away from a broker."""
    return sorted({*wanted} - usable_processors())


def usable_processors() -> set[int]:
    """Returns the processors that a process started here can get."""
    usual = os.sched_getaffinity(0)
    try:
        # The kernel leaves out those that do not exist or that a cgroup forbids.
        os.sched_setaffinity(0, range(PROCESSORS_MAX))
        return os.sched_getaffinity(0)
    except OSError:
        return usual
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, usual)


def pinned(cpus: Sequence[int]) -> tuple[str, ...]:
    """Returns the words before a command that keep it and its children on some processors; none if
    it may use all."""
    return ("taskset", "--cpu-list", ",".join(map(str, cpus))) if cpus else ()


class NoCgroupError(Exception):
    """This host allows no limit; the text says why."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The cgroups of this host that can limit memory."""

    own: Path
    """Folder of the cgroup of this process."""
    version: int
    """1 or 2."""

    @classmethod
    def here(cls, proc: Path = Path("/proc/self")) -> Hierarchy:
        """Returns the hierarchy with memory; raises NoCgroupError if there is none."""
        try:
            groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
            mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
        except OSError as error:
            raise NoCgroupError(f"cannot read {error.filename}: {error.strerror}") from error
        controllers = {name: path for _, names, path in groups for name in names.split(",")}
        for version, name, kind in ((1, "memory", "cgroup"), (2, "", "cgroup2")):
            for mount in mounts if name in controllers else ():
                rest = mount[mount.index("-") + 1 :]
                if rest[0] == kind and (version == 2 or name in rest[2].split(",")):
                    inner = Path("/", controllers[name])
                    root = Path(mount[3])
                    below = inner.relative_to(root) if inner.is_relative_to(root) else Path()
                    return cls(Path(mount[4]) / below, version)
        raise NoCgroupError("no cgroup of this host can limit memory")

    def parents(self) -> Iterator[Path]:
        """Yields the folders in which a cgroup with a limit of memory may be made."""
        yield self.own
        # In version 2, a cgroup with processes has no cgroups with controllers in it.
        if self.version == 2:
            yield self.own.parent


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """A cgroup that limits memory."""

    folder: Path
    version: int

    @classmethod
    def make(
        cls, name: str, limit_bytes: int, note: Callable[[str], None], there: Hierarchy
    ) -> MemoryCgroup:
        """Makes one for a server; raises NoCgroupError with the reason if this host does not allow
        it. `note` gets its folder before it is made."""
        reasons = []
        for parent in there.parents():
            group = cls(parent / f"{PREFIX}{secrets.token_hex(4)}-{name}", there.version)
            note(str(group.folder))
            try:
                group._make(limit_bytes)
            except OSError as error:
                group.remove()
                reasons.append(f"{error.filename or parent}: {error.strerror}")
            else:
                return group
        raise NoCgroupError(reasons[0])

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that put it into the cgroup."""
        return ("sh", "-c", JOIN, JOINER, str(self.folder / "cgroup.procs"))

    @property
    def limit_bytes(self) -> int:
        """The limit as the kernel has it."""
        return int((self.folder / self._files[0]).read_text())

    @property
    def kills(self) -> int:
        """Processes that the kernel has killed since they reached the limit."""
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        with contextlib.suppress(OSError):
            rows = (line.split() for line in (self.folder / file).read_text().splitlines())
            return sum(int(row[1]) for row in rows if row[0] == "oom_kill")
        return 0

    def remove(self) -> None:
        """Removes it once its processes have ended."""
        remove_cgroup(self.folder)

    @property
    def _files(self) -> tuple[str, str]:
        """The limit of memory, and that of memory with swap or of swap."""
        if self.version == 1:
            return "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        return "memory.max", "memory.swap.max"

    def _make(self, limit_bytes: int) -> None:
        self.folder.mkdir()
        if self.version == 2 and not (self.folder / self._files[0]).exists():
            (self.folder.parent / "cgroup.subtree_control").write_text("+memory")
        memory, swap = (self.folder / file for file in self._files)
        memory.write_text(str(limit_bytes))
        if swap.exists():
            swap.write_text(str(limit_bytes) if self.version == 1 else "0")
        # It has to be possible to move a process into it.
        (self.folder / "cgroup.procs").open("w").close()


def remove_cgroup(folder: Path) -> bool:
    """Removes a cgroup that a run made, once its processes have ended. Returns False if it cannot,
    or if there is no such cgroup."""
    if not folder.name.startswith(PREFIX) or not (folder / "cgroup.procs").exists():
        return False
    deadline_s = time.monotonic() + REMOVE_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(LOOK_S)
        else:
            return True

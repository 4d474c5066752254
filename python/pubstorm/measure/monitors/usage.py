"""Resource use of processes, added up: CPU, memory, disk, threads, descriptors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.host import proc
from pubstorm.host.members import Look, Member
from pubstorm.measure.monitors import Reading


class Differences:
    """CPU time and disk traffic of processes between two readings."""

    def __init__(self) -> None:
        self._before: dict[int, Member] = {}
        self._read_at_s = 0.0

    def read(self, look: Look, at_ns: int) -> Iterator[Reading]:
        """Yields shares of one core and bytes a second since the last reading, of the processes
        that both have; nothing at the first reading."""
        members = look.members
        if self._before:
            both = [(self._before.get(member.stat.pid), member) for member in members]
            same = [(old, new) for old, new in both if old and old.stat.started == new.stat.started]
            span_s = look.at_s - self._read_at_s
            cpu = _cpu([(old.stat, new.stat) for old, new in same], span_s)
            disk = _disk([(old.disk_bytes, new.disk_bytes) for old, new in same], span_s)
            for metric, value in {**cpu, **disk}.items():
                yield Reading(at_ns, metric, value)
        self._before = {member.stat.pid: member for member in members}
        self._read_at_s = look.at_s


def _cpu(pairs: Sequence[tuple[proc.Stat, proc.Stat]], span_s: float) -> dict[str, float]:
    ticks = span_s * proc.TICKS_PER_S
    user = sum(new.user_ticks - old.user_ticks for old, new in pairs) / ticks
    system = sum(new.system_ticks - old.system_ticks for old, new in pairs) / ticks
    shares = {"cpu": user + system, "cpu_user": user, "cpu_system": system}
    return {metric: round(share, 4) for metric, share in shares.items()}


def _disk(
    pairs: Sequence[tuple[tuple[int, int] | None, tuple[int, int] | None]], span_s: float
) -> dict[str, float]:
    """Returns rates of disk traffic; none if the traffic of a process is hidden."""
    known = [(old, new) for old, new in pairs if old is not None and new is not None]
    if len(known) < len(pairs):
        return {}
    read, written = (sum(new[k] - old[k] for old, new in known) / span_s for k in (0, 1))
    return {"disk_read_bytes_per_s": round(read), "disk_written_bytes_per_s": round(written)}


def sums(look: Look, at_ns: int) -> Iterator[Reading]:
    """Yields memory, threads and number of processes; descriptors unless some are hidden."""
    members = look.members
    resident = sum(member.memory.resident for member in members)
    yield Reading(at_ns, "rss_bytes", resident)
    yield Reading(at_ns, "private_bytes", sum(member.memory.private for member in members))
    yield Reading(at_ns, "virtual_bytes", sum(member.memory.virtual for member in members))
    yield Reading(at_ns, "memory", round(resident / look.host_bytes, 5))
    yield Reading(at_ns, "threads", sum(member.stat.threads for member in members))
    yield Reading(at_ns, "processes", len(members))
    descriptors = [each.descriptors for each in members if each.descriptors is not None]
    if len(descriptors) == len(members):
        yield Reading(at_ns, "descriptors", sum(descriptors))

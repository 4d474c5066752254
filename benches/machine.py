"""Describes the machine of the benches, and the CPU time that other work took meanwhile."""

import os
import platform
import time
from pathlib import Path


def describe() -> str:
    """Processor, cores, kernel and its TCP, in one line."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    model = next(models, "unknown processor")
    cores = len(os.sched_getaffinity(0))
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return f"{model}, {cores} cores, Linux {platform.release()}, TCP {control}"


class OtherWork:
    """CPU time that neither this process nor its children took, from now on."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._others_s = _others_s()

    def share(self) -> float:
        """Share of the whole machine, 0 to 1; what ran as an interrupt counts as other work."""
        wall_s = time.monotonic() - self._start_s
        return max(0.0, _others_s() - self._others_s) / wall_s / (os.cpu_count() or 1)


def _others_s() -> float:
    own = os.times()
    return _busy_s() - (own.user + own.system + own.children_user + own.children_system)


def _busy_s() -> float:
    """CPU time of everything so far: `/proc/stat`, fields of proc(5)."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

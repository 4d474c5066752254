"""The machine and the programs of a run, read once, so that two results can be compared."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path

import psutil

from pubstorm import __version__
from pubstorm.result import BrokerResult, BrokerVersion, Environment

SYSCTLS = (
    "fs.file-max",
    "fs.nr_open",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_max",
)


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open descriptors to the hard one: engines and brokers inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def read_environment(engine: str, brokers: Iterable[BrokerResult]) -> Environment:
    """The environment of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    versions = sorted({(broker.kind, broker.version) for broker in brokers})
    return Environment(
        host=platform.node(),
        kernel=kernel(),
        machine=platform.machine(),
        cpu_model=cpu_model(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        pubstorm=__version__,
        engine=engine,
        descriptors_soft=soft,
        descriptors_hard=hard,
        sysctls=_sysctls(),
        git_commit=_git_commit(),
        brokers=tuple(BrokerVersion(kind=kind, version=version) for kind, version in versions),
    )


def kernel() -> str:
    """The operating system and its kernel."""
    return f"{platform.system()} {platform.release()}"


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_model() -> str:
    """The model of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor()


def _sysctls() -> dict[str, str]:
    values = {}
    for name in SYSCTLS:
        with contextlib.suppress(OSError):
            text = Path("/proc/sys", *name.split(".")).read_text()
            values[name] = " ".join(text.split())
    return values


def _git_commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() if found.returncode == 0 else None

"""What a run needs from this host against what there is: descriptors, ports, memory, and how many
engines to start. Each need comes with its exact fix. It changes nothing on the host.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import psutil

from pubstorm.errors import UsageError
from pubstorm.offered import peak_per_s
from pubstorm.plan import Plan


@dataclass(frozen=True, slots=True)
class Host:
    """What this machine gives: limits per process, ports per source address, memory, cores."""

    descriptors: int
    system_descriptors: int
    ports: int
    memory_bytes: int
    cores: int

    @classmethod
    def here(cls) -> Host:
        """This machine, now."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        low, high = _numbers("/proc/sys/net/ipv4/ip_local_port_range", (32768, 60999))
        system = _numbers("/proc/sys/fs/file-max", (2**63,))[0]
        return cls(
            descriptors=2**31 if hard == resource.RLIM_INFINITY else hard,
            system_descriptors=system,
            ports=high - low + 1,
            memory_bytes=psutil.virtual_memory().available,
            cores=len(os.sched_getaffinity(0)),
        )


@dataclass(frozen=True, slots=True)
class Need:
    """One thing a run needs, what there is of it, and what to do where it is short."""

    what: str
    needed: int
    available: int
    unit: str
    fix: str

    @property
    def is_met(self) -> bool:
        """Whether there is enough."""
        return self.needed <= self.available


def agents_needed(plan: Plan, *, descriptors: int, cores: int) -> int:
    """Engines that the plan asks for: by the descriptor limit of a process, and by load."""
    room = descriptors - DESCRIPTORS_KEPT
    if room < len(plan.populations):
        raise UsageError(
            f"a process may open {descriptors} files, which is too few for an engine",
            f"ulimit -n {DESCRIPTORS_KEPT + min(plan.clients, 20_000)}",
        )
    by_load = min(cores, ceil(peak_per_s(plan) / MESSAGES_PER_S_PER_AGENT))
    agents = max(1, by_load, ceil(plan.clients / room))
    while largest_share(plan, agents) > room:
        agents += 1
    return agents


def largest_share(plan: Plan, agents: int) -> int:
    """Clients of agent 0, which plays the most."""
    return sum(ceil(population.clients / agents) for population in plan.populations)


def needs(plan: Plan, host: Host, *, agents: int, starts_brokers: bool) -> list[Need]:
    """What the plan needs from the host when `agents` engines play it."""
    return list(_needs(plan, host, agents, starts_brokers))


def _needs(plan: Plan, host: Host, agents: int, starts_brokers: bool) -> Iterator[Need]:
    per_agent = largest_share(plan, agents) + DESCRIPTORS_KEPT
    at_target = sum(ceil(p.clients / len(plan.targets)) for p in plan.populations)
    yield Need(
        "open files of an engine",
        per_agent,
        host.descriptors,
        "files",
        f"ulimit -Hn {per_agent}, or --set fleet.agents={_agents_that_fit(plan, host)}",
    )
    if starts_brokers:
        per_broker = at_target + DESCRIPTORS_KEPT
        yield Need(
            "open files of a broker",
            per_broker,
            host.descriptors,
            "files",
            f"ulimit -Hn {per_broker}, or more brokers: raise count in topology.brokers",
        )
    files = plan.clients * (2 if starts_brokers else 1) + agents * DESCRIPTORS_KEPT
    fix = f"sysctl -w fs.file-max={files * 2}"
    yield Need("open files of the system", files, host.system_descriptors, "files", fix)
    yield _ports(plan, host, at_target)
    memory_bytes = plan.clients * (BROKER_CLIENT_BYTES if starts_brokers else 0)
    memory_bytes += plan.clients * ENGINE_CLIENT_BYTES + agents * ENGINE_BYTES
    fix = "play fewer clients, or give the host more memory"
    yield Need("memory, about", memory_bytes, host.memory_bytes, "bytes", fix)


def _ports(plan: Plan, host: Host, at_target: int) -> Need:
    """Source ports: each pair of source address and target has the whole port range."""
    per_pair = ceil(at_target / max(1, len(plan.sources)))
    addresses = ceil(at_target / max(1, host.ports))
    if all(target.is_loopback for target in plan.targets):
        fix = f"--set 'sources=127.0.0.1-127.0.0.{min(254, addresses + 1)}'"
    else:
        fix = 'sysctl -w net.ipv4.ip_local_port_range="1024 65535", or name more sources'
    return Need("ports from a source address to a target", per_pair, host.ports, "ports", fix)


def _agents_that_fit(plan: Plan, host: Host) -> int:
    room = max(1, host.descriptors - DESCRIPTORS_KEPT - len(plan.populations))
    return ceil(plan.clients / room)


def _numbers(path: str, fallback: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in Path(path).read_text().split())
    except (OSError, ValueError):
        return fallback


DESCRIPTORS_KEPT = 200
"""Left to a process for everything that is no client."""
MESSAGES_PER_S_PER_AGENT = 60_000
"""Sent and delivered; from here on another engine is worth its core."""
ENGINE_CLIENT_BYTES = 8_600
"""0.6 kB in the engine and about 8 kB in the kernel's socket."""
BROKER_CLIENT_BYTES = 40_000
"""In the broker and its end of the connection; brokers differ, this is a high one."""
ENGINE_BYTES = 16 * 2**20
"""An engine without clients."""

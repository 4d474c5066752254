"""The needs of networks of bridges on this host: root, iproute2, namespaces, and queueing
disciplines of the kernel. Checks run in a namespace that ends with the checking program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.host.preflight.need import Need
from pubstorm.scenario.topology import ScenarioNetwork

LOOK_TIMEOUT_S = 10.0
"""Longest time of a check, in seconds."""
PROGRAMS = ("ip", "tc")
_TRIALS = {"netem": "netem delay 1ms", "tbf": "tbf rate 1mbit burst 10kb limit 100kb"}
_MODULES = (
    "modprobe sch_{name}; its package is linux-modules-extra-$(uname -r) on Ubuntu and "
    "kernel-modules-extra on Fedora"
)


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """The abilities of this host for networks."""

    is_root: bool
    programs: frozenset[str]
    """Those of iproute2 that are installed."""
    makes_namespaces: bool | None
    """None without root."""
    disciplines: frozenset[str] | None
    """Requested queueing disciplines that the kernel has; None if unknown."""

    @classmethod
    def here(cls, disciplines: Sequence[str]) -> NetworkHost:
        """This machine, now."""
        programs = frozenset(name for name in PROGRAMS if _path_of(name))
        is_root = os.geteuid() == 0
        makes = _works("true") if is_root else None
        known = None
        if makes and "tc" in programs:
            known = frozenset(name for name in disciplines if _has(name))
        return cls(is_root, programs, makes, known)


def network_needs_here(networks: Sequence[ScenarioNetwork]) -> list[Need]:
    """The needs of networks on this host. Checks the host only if there are networks."""
    if not networks:
        return []
    return network_needs(networks, NetworkHost.here(disciplines_of(networks)))


def disciplines_of(networks: Sequence[ScenarioNetwork]) -> list[str]:
    """Queueing disciplines that the networks need."""
    needed = {"netem" if network.needs_netem else "tbf" for network in networks if _shapes(network)}
    return sorted(needed)


def network_needs(networks: Sequence[ScenarioNetwork], host: NetworkHost) -> list[Need]:
    """The needs of networks on a host."""
    without = "leave network out of the bridges: cut and delay need no root"
    found = [
        Need("root, for networks of bridges", 1, int(host.is_root), "user", otherwise=without),
        Need(
            "programs of iproute2 (ip, tc)",
            len(PROGRAMS),
            len(host.programs),
            "programs",
            otherwise="apt-get install iproute2",
        ),
        Need(
            "network namespaces",
            1,
            None if host.makes_namespaces is None else int(host.makes_namespaces),
            "kernel",
            otherwise="give the container the capabilities NET_ADMIN and SYS_ADMIN",
        ),
    ]
    for name in disciplines_of(networks):
        there = None if host.disciplines is None else int(name in host.disciplines)
        what = f"{name}, for the properties of links"
        fix = _MODULES.format(name=name)
        found.append(Need(what, 1, there, "kernel module", otherwise=fix))
    return found


def _shapes(network: ScenarioNetwork) -> bool:
    return network.needs_netem or network.rate is not None


def _has(discipline: str) -> bool:
    tc = _path_of("tc")
    words = f"qdisc add dev lo root {_TRIALS[discipline]}".split()
    return tc is not None and _works(tc, *words)


def _works(*command: str) -> bool:
    """Returns True if a command succeeds in a new namespace, which ends with the command."""
    try:
        looked = subprocess.run(
            ["unshare", "--net", *command], capture_output=True, timeout=LOOK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return looked.returncode == 0


def _path_of(program: str) -> str | None:
    """Also where a user's PATH does not lead."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")

"""The limits of this machine for a run: of the kernel, of its user and of its control group, read
once. A limit that cannot be read counts as none. For networks of bridges it tries namespaces and
queueing disciplines, in a namespace that ends with the program that tries."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pubstorm.host.calibration import Costs
from pubstorm.host.environment import available_bytes, of_group
from pubstorm.host.preflight.need import Need
from pubstorm.scenario.sizes import UNLIMITED, allowed_descriptors
from pubstorm.scenario.topology import ScenarioNetwork

PORTS_FROM, PORTS_END = 10_000, 65_536
"""Ports of brokers, outside of the range for outgoing connections."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Limits of this machine, and the part in use of shared limits."""

    descriptors: int
    """Open files that a process may have: the hard limit."""
    system_descriptors: int
    """Open files of all processes together."""
    ports: int
    """Ports that the kernel gives a connection, for each source address and target."""
    memory_bytes: int
    """Memory that is available now."""
    cores: int
    """Processors that this process may use."""
    has_setpriv: bool = True
    """True if the program exists that ends brokers together with Pubstorm."""
    listen_ports: int = UNLIMITED
    """Ports for brokers that no outgoing connection takes."""
    nr_open: int = UNLIMITED
    """Largest hard limit of open files that may be set."""
    user_threads: int = UNLIMITED
    """Threads that this user may have."""
    user_threads_used: int = 0
    """Threads that this user has; not counted where there is no limit."""
    system_threads: int = UNLIMITED
    """Threads of all processes together."""
    process_ids: int = UNLIMITED
    """Process ids, of which every thread takes one."""
    system_threads_used: int = 0
    """Threads that there are."""
    group_threads: int = UNLIMITED
    """Threads that this control group may have; containers are limited by it."""
    group_threads_used: int = 0
    """Threads that this control group has."""
    socket_memory_bytes: int = UNLIMITED
    """Memory that all TCP sockets together may have for what they buffer."""
    tracked_connections: int | None = None
    """Connections that the packet filter can track; None if it tracks none."""
    accept_backlog: int = UNLIMITED
    """Connections that may wait to be accepted by a program."""
    syn_backlog: int = UNLIMITED
    """Connections that may wait for the end of their handshake."""
    addresses: frozenset[str] = frozenset()
    """Addresses of the interfaces."""
    interface: str = "eth0"
    """Interface of the default route."""
    costs: Costs = field(default_factory=lambda: Costs.of(None))
    """Costs of clients here."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the kernel and of the shell for many connections, as they are written."""

    @classmethod
    def here(cls, settings: Iterable[str] = ()) -> HostLimits:
        """Returns this machine, now, with some settings of its kernel."""
        low, high = _numbers("net/ipv4/ip_local_port_range", (32768, 60999))
        pages = _numbers("net/ipv4/tcp_mem", (0, 0, UNLIMITED // resource.getpagesize()))[2]
        used, allowed = of_group("pids.current"), of_group("pids.max")
        # The kernel does not hold root to these limits.
        is_root = os.geteuid() == 0
        user_threads = UNLIMITED if is_root else _limit(resource.RLIMIT_NPROC)
        return cls(
            descriptors=allowed_descriptors(),
            system_descriptors=UNLIMITED if is_root else _number("fs/file-max"),
            ports=high - low + 1,
            has_setpriv=shutil.which("setpriv") is not None,
            listen_ports=max(0, low - PORTS_FROM) + max(0, PORTS_END - 1 - high),
            memory_bytes=available_bytes(),
            cores=len(os.sched_getaffinity(0)),
            nr_open=_number("fs/nr_open"),
            user_threads=user_threads,
            user_threads_used=0 if user_threads == UNLIMITED else _threads_of(os.getuid()),
            system_threads=_number("kernel/threads-max"),
            process_ids=_number("kernel/pid_max"),
            system_threads_used=_threads(),
            group_threads=UNLIMITED if allowed is None else allowed,
            group_threads_used=used or 0,
            socket_memory_bytes=pages * resource.getpagesize(),
            tracked_connections=_tracked_connections(),
            accept_backlog=_number("net/core/somaxconn"),
            syn_backlog=_number("net/ipv4/tcp_max_syn_backlog"),
            addresses=frozenset(_addresses()),
            interface=_default_interface(),
            costs=Costs.here(),
            settings=_settings(settings),
        )


def _settings(names: Iterable[str]) -> dict[str, str]:
    found = {"ulimit -n": str(_limit(resource.RLIMIT_NOFILE))}
    for name in names:
        with suppress(OSError):
            text = Path("/proc/sys", name.replace(".", "/")).read_text()
            found[name] = " ".join(text.split())
    return found


def _limit(kind: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _threads_of(user: int) -> int:
    """Threads of a user's processes; those that cannot be seen do not count."""
    processes = psutil.process_iter(["uids", "num_threads"])
    found = ((p.info["uids"], p.info["num_threads"]) for p in processes)
    return sum(threads or 0 for uids, threads in found if uids is not None and uids.real == user)


def _threads() -> int:
    """Threads of the machine: the second number of the fourth word, such as 2/512."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        return 0


def _tracked_connections() -> int | None:
    """The kernel may know how to track and be asked for it by no rule: a connection of our own is
    in its count or not."""
    if not Path("/proc/sys/net/netfilter/nf_conntrack_max").exists():
        return None
    most = _number("net/netfilter/nf_conntrack_max")
    with (
        suppress(OSError),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        return most if _number("net/netfilter/nf_conntrack_count") else None
    return most


def _addresses() -> list[str]:
    found = psutil.net_if_addrs().values()
    return [item.address.partition("%")[0] for items in found for item in items]


def _default_interface() -> str:
    """The first interface whose route goes to everywhere."""
    try:
        rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()]
    except OSError:
        rows = []
    return next((row[0] for row in rows if row[1:2] == ["00000000"]), "eth0")


def _number(name: str) -> int:
    return _numbers(name, (UNLIMITED,))[0]


def _numbers(name: str, fallback: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in Path("/proc/sys", name).read_text().split())
    except (OSError, ValueError):
        return fallback


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

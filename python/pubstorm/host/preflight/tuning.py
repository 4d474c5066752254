"""The settings of the kernel that are tuned for many connections: what each has, what a plan wants
of it by arithmetic, and the reason. A setting that a plan does not depend on stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.plan import ConnectAction, DisconnectAction, Plan
from pubstorm.host.explain import offered_load
from pubstorm.host.preflight.connections import connecting, connections_at
from pubstorm.host.preflight.host import Host
from pubstorm.host.preflight.need import Fix, Need

TIME_WAIT_S = 60
"""Time for which the kernel keeps a connection that this end closed first."""
PAUSE_S = 0.01
"""Time for which a busy processor may leave packets waiting, in seconds."""
PACKETS_PER_CONNECT = 8
"""Packets of a connection with MQTT until the client is ready."""
SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the kernel or of the shell, and what a plan wants of it."""

    name: str
    """Name as the kernel has it, or `ulimit -n`."""
    current: str
    """Present value; empty if this kernel has no such setting."""
    wanted: int | None
    """Value that the plan wants; None: any."""
    reason: str
    """Reason of that value."""
    at_most: bool = False
    """True if a smaller value is as good."""

    @property
    def is_met(self) -> bool:
        """True if the present value will do, or is not known."""
        words = self.current.split()
        if self.wanted is None or not words:
            return True
        value = int(words[-1])
        return value <= self.wanted if self.at_most else value >= self.wanted

    @property
    def need(self) -> Need:
        """The setting as a need, with the command that repairs it."""
        current = int(self.current.split()[-1])
        fix = Fix("sysctl", self.name, self.wanted or 0)
        what = f"{self.name} ({self.reason})"
        return Need(what, self.wanted or 0, current, "", fix, at_most=self.at_most)

    def __str__(self) -> str:
        """The setting with present value, wanted value and reason."""
        current = self.current or "not on this kernel"
        bound = "at most " if self.at_most else "at least "
        wanted = "any" if self.wanted is None else f"{bound}{self.wanted}"
        return f"{self.name} = {current}, wanted: {wanted}; {self.reason}"


def tuning(plan: Plan, host: Host, needs: Sequence[Need]) -> list[Setting]:
    """The settings for a plan on this host. `needs` are the plan's needs, which cover some."""
    return [*_of_needs(needs, host), *_of_closing(plan, host), *_of_packets(plan, host)]


def tuning_in_need(settings: Sequence[Setting]) -> list[Need]:
    """The settings that are to be changed and that no other need covers."""
    return [each.need for each in settings if not each.is_met and each.name not in COVERED]


def _of_needs(needs: Sequence[Need], host: Host) -> Iterator[Setting]:
    """Yields the settings that are limits of the run too."""
    for name, what in COVERED.items():
        found = [
            need
            for need in needs
            if need.what.startswith(what) or (need.command and _shown(need.command) == name)
        ]
        wanted = max((need.needed for need in found), default=None)
        current = host.settings.get(name, "")
        yield Setting(name, _span(current) if name == PORTS else current, wanted, REASONS[name])


def _shown(fix: Fix) -> str:
    return "ulimit -n" if (fix.kind, fix.name) == ("ulimit", "n") else fix.name


def _span(ports: str) -> str:
    """Returns a range of ports with their number, which is what a plan needs."""
    low, _, high = ports.partition(" ")
    return f"{low} to {high}: {int(high) - int(low) + 1}" if high.isdigit() else ports


def _of_closing(plan: Plan, host: Host) -> Iterator[Setting]:
    """Yields the settings of connections that end: in a stage, and by session lifetimes."""
    lasting = _leaving_per_s(plan)
    closed = ceil(_leaving_most(plan) + lasting * TIME_WAIT_S)
    yield _setting(host, "net.ipv4.tcp_max_tw_buckets", closed or None)
    most, spare = max(connections_at(plan), default=0), None
    if lasting:
        spare = max(host.ports * max(1, len(plan.sources)) - most, 0) / lasting
    yield _setting(host, "net.ipv4.tcp_fin_timeout", _seconds(spare), at_most=True)
    tracked = None
    if lasting and host.tracked_connections is not None:
        tracked = max(host.tracked_connections - connecting(plan), 0) / lasting
    name = "net.netfilter.nf_conntrack_tcp_timeout_time_wait"
    yield _setting(host, name, _seconds(tracked), at_most=True)


def _seconds(spare_s: float | None) -> int | None:
    """Returns whole seconds of a time-out; none needs more than an hour, or less than a second."""
    return None if spare_s is None or spare_s > 3600 else max(int(spare_s), 1)


def _leaving_most(plan: Plan) -> float:
    """Returns the most clients that leave within the time that the kernel keeps connections."""
    most = 0.0
    for stage in plan.stages:
        if isinstance(stage.action, DisconnectAction):
            clients = sum(plan.populations[index].clients for index in stage.populations)
            rate = stage.action.rate_per_s
            most = max(most, clients if rate is None else min(clients, rate * TIME_WAIT_S))
    return most


def _leaving_per_s(plan: Plan) -> float:
    """Returns the clients a second that end a session by themselves and come again."""
    return sum(
        each.clients * SECOND_NS / max((each.lifetime.min_ns + each.lifetime.max_ns) / 2, 1)
        for each in plan.populations
        if each.lifetime is not None and each.lifetime.offline_ns is not None
    )


def _of_packets(plan: Plan, host: Host) -> Iterator[Setting]:
    """Yields the settings of packets and buffers."""
    connects = max(
        (s.action.rate_per_s or 0.0 for s in plan.stages if isinstance(s.action, ConnectAction)),
        default=0.0,
    )
    # Each message has a packet, and an acknowledgement of TCP.
    per_s = 2 * offered_load(plan).peak_per_s + PACKETS_PER_CONNECT * connects
    yield _setting(host, "net.core.netdev_max_backlog", ceil(per_s * PAUSE_S) or None)
    for name in ANY:
        yield _setting(host, name, None)


def _setting(host: Host, name: str, wanted: int | None, *, at_most: bool = False) -> Setting:
    return Setting(name, host.settings.get(name, ""), wanted, REASONS[name], at_most)


PORTS = "net.ipv4.ip_local_port_range"
COVERED: Mapping[str, str] = {
    "fs.file-max": "open files of the system",
    "fs.nr_open": "open files that a limit may allow",
    "ulimit -n": "open files of an engine",
    "net.core.somaxconn": "connections waiting to be accepted",
    "net.ipv4.tcp_max_syn_backlog": "connections in their handshake",
    PORTS: "ports from a source address to a target",
    "net.netfilter.nf_conntrack_max": "connections that the packet filter tracks",
}
"""Settings that are limits of a run, with the beginning of their need."""
ANY = (
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.optmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
"""Settings that no plan depends on."""
REASONS: Mapping[str, str] = {
    "fs.file-max": "every end of a connection on this host is an open file",
    "fs.nr_open": "no limit of open files can be set above it",
    "ulimit -n": "every client is an open file of its agent and of its broker",
    "net.core.somaxconn": "connections that a busy broker has not accepted yet wait in this queue",
    "net.ipv4.tcp_max_syn_backlog": "connections in their handshake wait in this queue",
    PORTS: "every connection of a source address to a target takes a port",
    "net.netfilter.nf_conntrack_max": "a packet filter that tracks connections drops the others",
    "net.ipv4.tcp_max_tw_buckets": "clients that leave stay in TIME-WAIT for 60 s; beyond this "
    "number the kernel forgets them at once",
    "net.ipv4.tcp_fin_timeout": "clients that come and go leave half-closed connections, which "
    "hold ports for this time",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait": "a packet filter tracks closed connections "
    "for this time, and has to hold them beside the open ones",
    "net.core.netdev_max_backlog": "packets that a busy processor leaves for 10 ms wait in this "
    "queue; beyond it they are dropped and sent again",
    "net.core.rmem_default": "buffers of sockets other than TCP: a run has none under load",
    "net.core.wmem_default": "buffers of sockets other than TCP: a run has none under load",
    "net.core.rmem_max": "limit of buffers that a program asks for: none of a run does",
    "net.core.wmem_max": "limit of buffers that a program asks for: none of a run does",
    "net.core.optmem_max": "control data of packets: agents and brokers send none",
    "net.ipv4.tcp_rmem": "buffers grow with what is on its way; net.ipv4.tcp_mem bounds their sum",
    "net.ipv4.tcp_wmem": "buffers grow with what is on its way; net.ipv4.tcp_mem bounds their sum",
}
"""Settings of a host for many connections, 18 in all, with the reason of the wanted value."""

"""The settings of the kernel that are tuned for many connections: what each has, what a plan wants
of it by arithmetic, and the reason. A setting that a plan does not depend on stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.plan import ConnectAction, DisconnectAction, Plan
from pubstorm.host.binaries import offered_load
from pubstorm.host.preflight.engines import connecting, connections_at
from pubstorm.host.preflight.host import HostLimits
from pubstorm.host.preflight.need import Fix, Need
from pubstorm.host.preflight.needs import SOURCE_PORTS
from pubstorm.quantities import SECOND_NS

TIME_WAIT_S = 60
"""Time for which the kernel keeps a connection that this end closed first."""
PAUSE_S = 0.01
"""Time for which a busy processor may leave packets waiting, in seconds."""
PACKETS_PER_CONNECT = 8
"""Packets of a connection with MQTT until the client is ready."""


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


def tuning(plan: Plan, host: HostLimits, needs: Sequence[Need]) -> list[Setting]:
    """The settings for a plan on this host. `needs` are the plan's needs, which cover some."""
    return [
        Setting(
            tuned.name,
            _span(current) if tuned.name == PORTS else current,
            tuned.wanted(plan, host) if tuned.wanted else _of_needs(tuned, needs),
            tuned.reason,
            tuned.at_most,
        )
        for tuned in TUNED
        for current in [host.settings.get(tuned.name, "")]
    ]


def tuning_in_need(settings: Sequence[Setting]) -> list[Need]:
    """The settings that are to be changed and that no other need covers."""
    covered = {tuned.name for tuned in TUNED if tuned.is_limit}
    return [each.need for each in settings if not each.is_met and each.name not in covered]


@dataclass(frozen=True, slots=True)
class Tuned:
    """A setting of a host for many connections."""

    name: str
    reason: str
    """Reason of the wanted value."""
    is_limit: bool = False
    """True if the setting is a limit of the run, which is among the needs of its plan, too."""
    wanted: Callable[[Plan, HostLimits], int | None] | None = None
    """Returns the value that a plan wants. Default: that of the need, or any."""
    at_most: bool = False
    """True if a smaller value is as good."""


def _of_needs(tuned: Tuned, needs: Sequence[Need]) -> int | None:
    """Returns the value of a setting that is a limit of the run, too."""
    found = (
        need.needed
        for need in needs
        if (need.command and _shown(need.command) == tuned.name)
        or (tuned.name == PORTS and need.what == SOURCE_PORTS)
    )
    return max(found, default=None)


def _shown(fix: Fix) -> str:
    return "ulimit -n" if (fix.kind, fix.name) == ("ulimit", "n") else fix.name


def _span(ports: str) -> str:
    """Returns a range of ports with their number, which is what a plan needs."""
    low, _, high = ports.partition(" ")
    return f"{low} to {high}: {int(high) - int(low) + 1}" if high.isdigit() else ports


def _closed(plan: Plan, _host: HostLimits) -> int | None:
    """Returns the connections that the kernel keeps after their end: of clients that leave in a
    stage, and by session lifetimes."""
    most = 0.0
    for stage in plan.stages:
        if isinstance(stage.action, DisconnectAction):
            clients = sum(plan.populations[index].clients for index in stage.populations)
            rate = stage.action.rate_per_s
            most = max(most, clients if rate is None else min(clients, rate * TIME_WAIT_S))
    return ceil(most + _leaving_per_s(plan) * TIME_WAIT_S) or None


def _closing_s(plan: Plan, host: HostLimits) -> int | None:
    """Returns the seconds for which connections that end may hold their ports."""
    spare = host.ports * max(1, len(plan.sources)) - max(connections_at(plan), default=0)
    return _seconds(spare, _leaving_per_s(plan))


def _tracked_s(plan: Plan, host: HostLimits) -> int | None:
    """Returns the seconds for which a packet filter may track connections that ended."""
    most = host.tracked_connections
    return None if most is None else _seconds(most - connecting(plan), _leaving_per_s(plan))


def _seconds(spare: int, per_s: float) -> int | None:
    """Returns whole seconds of a time-out; none needs more than an hour, or less than a second."""
    spare_s = max(spare, 0) / per_s if per_s else None
    return None if spare_s is None or spare_s > 3600 else max(int(spare_s), 1)


def _leaving_per_s(plan: Plan) -> float:
    """Returns the clients a second that end a session by themselves and come again."""
    return sum(
        each.clients * SECOND_NS / max((each.lifetime.min_ns + each.lifetime.max_ns) / 2, 1)
        for each in plan.populations
        if each.lifetime is not None and each.lifetime.offline_ns is not None
    )


def _queued(plan: Plan, _host: HostLimits) -> int | None:
    """Returns the packets that a busy processor leaves waiting."""
    actions = (stage.action for stage in plan.stages)
    rates = (each.rate_per_s or 0.0 for each in actions if isinstance(each, ConnectAction))
    # Each message has a packet, and an acknowledgement of TCP.
    connects = PACKETS_PER_CONNECT * max(rates, default=0.0)
    return ceil((2 * offered_load(plan).peak_per_s + connects) * PAUSE_S) or None


PORTS = "net.ipv4.ip_local_port_range"
NO_TCP = "buffers of sockets other than TCP: a run has none under load"
NONE_ASKS = "limit of buffers that a program asks for: none of a run does"
GROWING = "buffers grow with what is on its way; net.ipv4.tcp_mem bounds their sum"
TUNED = (
    Tuned("fs.file-max", "every end of a connection on this host is an open file", is_limit=True),
    Tuned("fs.nr_open", "no limit of open files can be set above it", is_limit=True),
    Tuned(
        "ulimit -n", "every client is an open file of its agent and of its broker", is_limit=True
    ),
    Tuned(
        "net.core.somaxconn",
        "connections that a busy broker has not accepted yet wait in this queue",
        is_limit=True,
    ),
    Tuned(
        "net.ipv4.tcp_max_syn_backlog",
        "connections in their handshake wait in this queue",
        is_limit=True,
    ),
    Tuned(PORTS, "every connection of a source address to a target takes a port", is_limit=True),
    Tuned(
        "net.netfilter.nf_conntrack_max",
        "a packet filter that tracks connections drops the others",
        is_limit=True,
    ),
    Tuned(
        "net.ipv4.tcp_max_tw_buckets",
        "clients that leave stay in TIME-WAIT for 60 s; beyond this number the kernel forgets them "
        "at once",
        wanted=_closed,
    ),
    Tuned(
        "net.ipv4.tcp_fin_timeout",
        "clients that come and go leave half-closed connections, which hold ports for this time",
        wanted=_closing_s,
        at_most=True,
    ),
    Tuned(
        "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
        "a packet filter tracks closed connections for this time, and has to hold them beside the "
        "open ones",
        wanted=_tracked_s,
        at_most=True,
    ),
    Tuned(
        "net.core.netdev_max_backlog",
        "packets that a busy processor leaves for 10 ms wait in this queue; beyond it they are "
        "dropped and sent again",
        wanted=_queued,
    ),
    Tuned("net.core.rmem_default", NO_TCP),
    Tuned("net.core.wmem_default", NO_TCP),
    Tuned("net.core.rmem_max", NONE_ASKS),
    Tuned("net.core.wmem_max", NONE_ASKS),
    Tuned("net.core.optmem_max", "control data of packets: agents and brokers send none"),
    Tuned("net.ipv4.tcp_rmem", GROWING),
    Tuned("net.ipv4.tcp_wmem", GROWING),
)
"""Settings of a host for many connections, 18 in all. No plan depends on those without a value."""

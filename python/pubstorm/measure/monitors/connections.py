"""The TCP connections of a process that listens: queues, round trips, and the time that the network
or the peers held it up. Of a process that passes every connection on, also the onward ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from pubstorm.contract import Source
from pubstorm.host.members import Descendants
from pubstorm.host.proc import descriptors
from pubstorm.host.sockets import PORTS, Connection, SocketsError, SocketTable, sockets_of
from pubstorm.measure.monitors import MonitorError, Reading

CONNECTIONS_MAX = 256
"""Connections that a reading aims at; each costs some 60 us. Of more, it takes those to a part of
the ports of the peers, since the kernel selects by port."""
CLIENT_PORTS = range(1024, 65536)
"""Ports among which the parts are."""
FIRST_PORT = 32768
"""Port at which the first part begins: Linux gives ports from here on."""
WIDEST = 4096
"""Most ports of a part. Clients of one address have a connection at each port, at most."""
HOLD = 10
"""Readings before another part: rates need two of the same connections."""
LOOK_EVERY = 30
"""Readings between two searches for ports and onward connections."""
GROWN = 1.5
"""Growth of the connections since the last search from which another one is made."""
CLIENTS: Mapping[str, str] = {
    f"tcp_{figure}": f"clients_{figure}"
    for figure in (
        "unread_bytes",
        "unsent_bytes",
        "unsent_closed_bytes",
        "segments_per_s",
        "resent_per_s",
        "acked_bytes_per_s",
        "received_bytes_per_s",
        "rtt_us",
        "least_rtt_us",
    )
}
"""Figures of the clients' ends, by those of the brokers' ends."""
PORTS_MAX = 8
"""Most ports of a process that are read."""
SEARCH_MAX = 4096
"""Most connections of all programs, for a search among them."""
MOSTLY = 0.5
"""Share of the time from which the window of a peer holds up the bytes for that peer."""
ONWARD_MIN, ONWARD_SHARE = 4, 0.8
"""Connections that a process made to one port, at least, and as a share of those it accepted, from
which it passes connections on: a broker with bridges has fewer."""


class ConnectionsMonitor:
    """Reads the connections of one process, in the network namespace of the process."""

    def __init__(self, source: Source, pid: Callable[[], int], port: int | None) -> None:
        """`pid`: the process as it is now, 0 while there is none. `port`: the port that it listens
        on; None: all of its ports."""
        self.source = source
        self._pid = pid
        self._port = port
        self._listener: _Listener | None = None

    def start(self) -> None:
        """Takes the counts that differences are taken from."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """Yields the state of the connections now, and rates since the last reading. Raises
        MonitorError if they are hidden."""
        pid = self._pid()
        try:
            if self._listener is None or self._listener.pid != pid:
                self.stop()
                self._listener = _Listener(pid, self._port) if pid else None
            found = self._listener.read() if self._listener else {}
        except SocketsError as error:
            raise MonitorError(str(error)) from error
        if self._listener is not None:
            yield from self._listener.last.readings(found)

    def stop(self) -> None:
        """Closes the socket of the questions."""
        if self._listener is not None:
            self._listener.table.close()
            self._listener = None


class ClientsMonitor:
    """Reads the clients' ends on this machine of connections to some ports, whatever program has
    them."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.source = Source.host()
        self._ports = sorted(set(ports))[:PORTS_MAX]
        self._table: SocketTable | None = None
        self._part = ReadPorts()
        self._account = _Account()
        self._last = Last()

    def start(self) -> None:
        """Takes the counts that differences are taken from."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """Yields the state of the connections now, and rates since the last reading. Raises
        MonitorError if they are hidden."""
        try:
            if self._table is None:
                self._table = SocketTable()
            ports = self._part.ports
            found = [each for port in self._ports for each in self._table.to_port(port, ports)]
        except SocketsError as error:
            raise MonitorError(str(error)) from error
        self._part.took([each.port for each in found])
        figures = self._account.figures(found)
        yield from self._last.readings(
            {CLIENTS[metric]: value for metric, value in figures.items() if metric in CLIENTS}
        )

    def stop(self) -> None:
        """Closes the socket of the questions."""
        if self._table is not None:
            self._table.close()
            self._table = None


class ReadPorts:
    """The ports of clients that are read: all, or so many that few enough connections have them."""

    def __init__(self) -> None:
        self.ports = PORTS
        self._takes = 0

    def expect(self, connections: int) -> None:
        """Prepares for a number of connections from all ports."""
        if self.ports == PORTS and connections > 2 * CONNECTIONS_MAX:
            self._read(FIRST_PORT, len(CLIENT_PORTS) * CONNECTIONS_MAX // connections)

    def took(self, found: Sequence[int]) -> None:
        """Notes the ports of the connections that were read, and selects the next ones."""
        self._takes += 1
        if len(found) > 2 * CONNECTIONS_MAX:
            first = self._takes % (len(found) // CONNECTIONS_MAX) * CONNECTIONS_MAX
            some = sorted(found)[first : first + CONNECTIONS_MAX]
            self._read(some[0], some[-1] + 1 - some[0])
        elif self.ports != PORTS:
            width = len(self.ports)
            if 4 * len(found) < CONNECTIONS_MAX:
                self._read(self.ports.stop, min(2 * width, WIDEST))
            elif self._takes % HOLD == 0:
                self._read(self.ports.stop, width)

    def _read(self, start: int, width: int) -> None:
        if start not in CLIENT_PORTS:
            start = CLIENT_PORTS.start
        self.ports = range(start, min(start + max(width, 1), PORTS.stop))


class Last:
    """The last known figures: a reading without traffic has no rates and no round trips."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def readings(self, found: Mapping[str, float]) -> Iterator[Reading]:
        """Yields the figures that were found, and repeats those that were not."""
        now_ns = time.monotonic_ns()
        self._known |= {metric: round(value, 4) for metric, value in found.items()}
        for metric, value in self._known.items():
            yield Reading(now_ns, metric, value, held=metric not in found)


class _Account:
    """The last reading of connections, which the next one is compared with."""

    def __init__(self) -> None:
        self.span_us = 0.0
        self._before: dict[int, Connection] = {}
        self._before_ns = 0

    def figures(self, now: Sequence[Connection]) -> dict[str, float]:
        """Returns the figures of connections as they are now."""
        now_ns = time.monotonic_ns()
        self.span_us = (now_ns - self._before_ns) / 1000
        found = {**state(now, self.span_us), **growth(self._before, now, self.span_us)}
        self._before, self._before_ns = {each.cookie: each for each in now}, now_ns
        return found


class _Listener:
    """A process that listens, from one reading to the next."""

    def __init__(self, pid: int, port: int | None) -> None:
        self.pid = pid
        self.table = SocketTable(pid)
        self._ports = [] if port is None else [port]
        self._is_given = port is not None
        self._descendants = Descendants()
        self._looks = 0
        self._part = ReadPorts()
        self._account = _Account()
        self.last = Last()
        self._onward_port: int | None = None
        self._searched = ONWARD_MIN

    def read(self) -> dict[str, float]:
        """Returns the figures of its connections."""
        if self._looks % LOOK_EVERY == 0:
            self._find_ports()
        peer_ports = self._part.ports
        accepted = [each for port in self._ports for each in self.table.of_port(port, peer_ports)]
        self._part.took([each.peer_port for each in accepted])
        if self._looks % LOOK_EVERY == 1 or len(accepted) > GROWN * self._searched:
            self._searched = len(accepted)
            self._find_onward(accepted)
        self._looks += 1
        found = self._account.figures(accepted)
        if self._onward_port is not None:
            own = self._sockets()
            onward = [each for each in self.table.to_port(self._onward_port) if each.inode in own]
            found |= onward_state(onward, self._account.span_us)
        return found

    def _find_ports(self) -> None:
        """Finds the ports to read, and the parts of which each has few enough connections."""
        if not self._is_given:
            self._ports = self.table.listening(self._sockets())[:PORTS_MAX]
        self._part.expect(descriptors(self.pid) or 0)

    def _find_onward(self, accepted: Sequence[Connection]) -> None:
        """Finds the port that the process passes its connections on to, if it does."""
        self._onward_port = None
        if _in_use(self.pid) > SEARCH_MAX:
            return
        own = self._sockets() - {each.inode for each in accepted}
        wanted = max(ONWARD_SHARE * len(accepted), ONWARD_MIN)
        if wanted <= len(own):
            made = (each for each in self.table.of_sockets(own) if each.port not in self._ports)
            for port, count in Counter(each.peer_port for each in made).most_common(1):
                self._onward_port = port if count >= wanted else None

    def _sockets(self) -> set[int]:
        pids = (self.pid, *self._descendants.of(self.pid))
        return set[int]().union(*map(sockets_of, pids))


def state(now: Collection[Connection], span_us: float) -> dict[str, float]:
    """Returns the bytes in the queues of connections, and the time to their next data."""
    return {
        "tcp_connections": len(now),
        "tcp_unread_bytes": sum(each.unread_bytes for each in now),
        "tcp_unsent_bytes": sum(each.unsent_bytes for each in now),
        **_answers("tcp_answer_us", ((c.received_ms_ago, c.sent_ms_ago) for c in now), span_us),
    }


def onward_state(now: Collection[Connection], span_us: float) -> dict[str, float]:
    """Returns the same of onward connections, on which answers are received."""
    return {
        "tcp_onward_connections": len(now),
        "tcp_onward_unread_bytes": sum(each.unread_bytes for each in now),
        "tcp_onward_unsent_bytes": sum(each.unsent_bytes for each in now),
        **_answers(
            "tcp_onward_answer_us", ((c.sent_ms_ago, c.received_ms_ago) for c in now), span_us
        ),
    }


def _answers(metric: str, times: Iterable[tuple[int, int]], span_us: float) -> dict[str, float]:
    """Returns the median time from data to the next data in the other direction, of connections
    that had both since the last reading. `times`: how long ago each was, in milliseconds."""
    waits = [asked - answered for asked, answered in times if answered <= asked < span_us / 1000]
    return {metric: 1000 * median(waits)} if waits else {}


def growth(
    before: Mapping[int, Connection], now: Iterable[Connection], span_us: float
) -> dict[str, float]:
    """Returns shares and rates of connections since the last reading; nothing at the first."""
    pairs = [(before[each.cookie], each) for each in now if each.cookie in before]
    if not pairs:
        return {}
    half_us = MOSTLY * span_us
    closed = (new.unsent_bytes for old, new in pairs if new.closed_us - old.closed_us > half_us)
    found: dict[str, float] = {
        "tcp_unsent_closed_bytes": sum(closed),
        "tcp_segments_per_s": _sum(pairs, "segments_total") * 1e6 / span_us,
        "tcp_resent_per_s": _sum(pairs, "resent_total") * 1e6 / span_us,
        "tcp_acked_bytes_per_s": _sum(pairs, "acked_bytes_total") * 1e6 / span_us,
        "tcp_received_bytes_per_s": _sum(pairs, "received_bytes_total") * 1e6 / span_us,
    }
    if busy_us := _sum(pairs, "busy_us"):
        found["tcp_window_closed"] = min(_sum(pairs, "closed_us") / busy_us, 1.0)
        found["tcp_send_buffer_full"] = min(_sum(pairs, "send_buffer_us") / busy_us, 1.0)
    if sent := [new for old, new in pairs if new.segments_total > old.segments_total]:
        found["tcp_rtt_us"] = fmean(each.rtt_us for each in sent)
        found["tcp_least_rtt_us"] = fmean(each.least_rtt_us for each in sent)
    return found


def _sum(pairs: Iterable[tuple[Connection, Connection]], field: str) -> int:
    return sum(getattr(new, field) - getattr(old, field) for old, new in pairs)


def _in_use(pid: int) -> int:
    """Returns the number of TCP sockets in the network namespace of a process."""
    try:
        lines = Path(f"/proc/{pid}/net/sockstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    words = next((line.split() for line in lines if line.startswith("TCP: inuse")), None)
    return int(words[2]) if words else 0

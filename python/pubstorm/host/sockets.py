"""TCP connections of this machine as the kernel accounts for them (`man 7 sock_diag`): queues,
round trips, segments sent again, and the time that the peer's window held a sender up. Free ports
for servers of this machine, below those that the kernel gives to outgoing connections."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pubstorm.errors import TopologyError

ESTABLISHED, CLOSE_WAIT, LISTEN = 1 << 1, 1 << 8, 1 << 10
"""States of connections, as bits of a question."""
INFO = 1 << 1
"""Bit of a question for `tcp_info`."""
OWN_PORT, PEER_PORT = (2, 3), (4, 5)
"""Operations of a filter of the kernel on a port, not below and not above a number
(`INET_DIAG_BC_S_GE`, `_S_LE`, `_D_GE`, `_D_LE`)."""
PORTS = range(1 << 16)
OWN_NAMESPACE = "/proc/thread-self/ns/net"
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DONE = 4, 20, 3
"""Protocol of `AF_NETLINK`, and kinds of its messages."""
REQUEST, DUMP = 0x1, 0x300
HEAD = struct.Struct("=IHHII")
"""Header of a message (`struct nlmsghdr`)."""
INODE_AT = HEAD.size + 68
"""Offset of the number of a socket in an answer (`struct inet_diag_msg`)."""
ANSWER_BYTES, ANSWER_S = 1 << 16, 1.0
"""Largest answer of the kernel, and the longest wait for one."""
FIRST = 1024
"""Descriptors of each process that are looked at first."""


TCP, UDP = ("tcp", "0A"), ("udp", "07")
"""Tables of /proc/net, and the state of a socket there that takes something from everyone."""


class SocketsError(Exception):
    """The kernel shows no connections: what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of a TCP connection. Totals and times grow from its start on."""

    cookie: int
    """Name of the socket in the kernel, which no other socket has."""
    inode: int
    """Number of the socket among the descriptors of its process."""
    port: int
    peer_port: int
    unread_bytes: int
    """Bytes that its process has not read."""
    unsent_bytes: int = 0
    """Bytes that its process has written and TCP has not sent."""
    rtt_us: int = 0
    """Smoothed round trip."""
    least_rtt_us: int = 0
    """Shortest round trip of the last minutes."""
    segments_total: int = 0
    """Segments with data that it sent."""
    resent_total: int = 0
    """Segments that it sent again, but for those that the peer reported as needless: a busy host
    acknowledges late."""
    acked_bytes_total: int = 0
    """Bytes that the peer has acknowledged."""
    received_bytes_total: int = 0
    """Bytes that it received."""
    busy_us: int = 0
    """Time in which it had data to send."""
    closed_us: int = 0
    """Part of `busy_us` in which the receive window of the peer was full."""
    send_buffer_us: int = 0
    """Part of `busy_us` in which its send buffer was too small."""
    sent_ms_ago: int = 0
    """Time since it last sent data."""
    received_ms_ago: int = 0
    """Time since it last received data."""


class SocketTable:
    """The connections of a network namespace. One thread makes all calls."""

    def __init__(self, process: int | None = None) -> None:
        """`process`: one in the namespace; None: the namespace of the caller. Raises SocketsError
        if its connections cannot be read."""
        try:
            with _in_namespace_of(process):
                self._diag = _opened()
        except FileNotFoundError as error:
            raise SocketsError("its process has ended") from error
        except OSError as error:
            text = f"the connections of its network namespace are hidden ({error.strerror})"
            raise SocketsError(f"{text}: run pubstorm as root, or in that namespace") from error

    def of_port(self, port: int, peer_ports: range = PORTS) -> list[Connection]:
        """Returns the accepted connections of a port to peers with these ports."""
        found = self._answers(ESTABLISHED | CLOSE_WAIT, _filter(PEER_PORT, peer_ports), port=port)
        return list(map(_connection, found))

    def to_port(self, peer_port: int, ports: range = PORTS) -> list[Connection]:
        """Returns the connections to a port from these ports."""
        states = ESTABLISHED | CLOSE_WAIT
        found = self._answers(states, _filter(OWN_PORT, ports), peer_port=peer_port)
        return list(map(_connection, found))

    def of_sockets(self, inodes: Collection[int]) -> list[Connection]:
        """Returns those of all connections that have these numbers. Looks at every connection."""
        found = self._answers(ESTABLISHED | CLOSE_WAIT, with_info=False)
        return [_connection(each) for each in found if each["idiag_inode"] in inodes]

    def listening(self, inodes: Collection[int]) -> list[int]:
        """Returns the ports on which sockets with these numbers listen."""
        found = self._answers(LISTEN, with_info=False)
        return sorted({each["idiag_sport"] for each in found if each["idiag_inode"] in inodes})

    def close(self) -> None:
        """Closes the socket of the questions."""
        self._diag.close()

    def _answers(
        self,
        states: int,
        wanted: bytes = b"",
        *,
        port: int = 0,
        peer_port: int = 0,
        with_info: bool = True,
    ) -> Iterator[Any]:
        from pyroute2.netlink import NLM_F_MATCH, NLM_F_REQUEST, NLM_F_ROOT

        for family in (socket.AF_INET, socket.AF_INET6):
            question = _question()
            question["sdiag_family"] = family
            question["sdiag_protocol"] = socket.IPPROTO_TCP
            question["idiag_states"] = states
            question["idiag_ext"] = INFO if with_info else 0
            question["idiag_sport"], question["idiag_dport"] = port, peer_port
            if wanted:
                question["attrs"] = [("INET_DIAG_REQ_BYTECODE", wanted)]
            yield from self._answers_to(question, NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH)

    def _answers_to(self, question: Any, flags: int) -> Iterator[Any]:
        from pyroute2.netlink.exceptions import NetlinkError

        hint = "load its module tcp_diag"
        try:
            for each in self._diag.nlm_request(question, load_library().SOCK_DIAG_BY_FAMILY, flags):
                if "idiag_inode" not in each:
                    raise SocketsError(f"this kernel does not show TCP connections: {hint}")
                yield each
        except (OSError, NetlinkError) as error:
            text = f"this kernel does not show TCP connections ({error})"
            raise SocketsError(f"{text}: {hint}") from error


def listening_at(port: int, process: int | None = None) -> set[int]:
    """Returns the numbers of the sockets that listen on a TCP port of this machine, in the network
    namespace of a process if one is given. The kernel looks among its listeners only. Where it
    answers no such question, its list of all sockets is read, which takes 0.3 s of CPU time for a
    hundred thousand."""
    with contextlib.suppress(OSError):
        if process is None or _is_same(OWN_NAMESPACE, f"/proc/{process}/ns/net"):
            return set(_asked_for(port))
    return _listed_at(port, process)


def bound_at(port: int) -> set[int]:
    """Returns the numbers of the sockets that take datagrams of everyone on a UDP port."""
    return {int(row[9]) for row in _rows_at(port, None, UDP)}


def datagrams_dropped_at(port: int) -> int | None:
    """Returns how many datagrams the kernel has dropped since one of these sockets was full; None
    without such a socket."""
    found = [int(row[-1]) for row in _rows_at(port, None, UDP)]
    return sum(found) if found else None


def _asked_for(port: int) -> Iterator[int]:
    """Asks the kernel without the library, which needs an event loop and descriptors for it. Raises
    OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diag:
        diag.settimeout(ANSWER_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            state = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, LISTEN)
            question = state + struct.pack("!H46x", port)
            head = HEAD.pack(HEAD.size + len(question), SOCK_DIAG_BY_FAMILY, REQUEST | DUMP, 0, 0)
            diag.send(head + question)
            kind = SOCK_DIAG_BY_FAMILY
            while kind != DONE:
                answers = memoryview(diag.recv(ANSWER_BYTES))
                while answers and kind != DONE:
                    length, kind, *_ = HEAD.unpack_from(answers)
                    if kind not in (SOCK_DIAG_BY_FAMILY, DONE):
                        raise OSError(errno.EPROTONOSUPPORT, "no answer on sockets")
                    if kind == SOCK_DIAG_BY_FAMILY:
                        yield from struct.unpack_from("=I", answers, INODE_AT)
                    answers = answers[(length + 3) & ~3 :]


def _listed_at(port: int, process: int | None) -> set[int]:
    """Returns the same from the list of all sockets."""
    return {int(row[9]) for row in _rows_at(port, process, TCP)}


def _rows_at(port: int, process: int | None, kind: tuple[str, str]) -> Iterator[list[str]]:
    """Yields the rows of the sockets of a port that take something from everyone. Lines of other
    sockets are not parsed."""
    table_name, state = kind
    end = f":{port:04X} "
    for table in (table_name, f"{table_name}6"):
        path = Path(f"/proc/{process or 'self'}/net/{table}")
        with contextlib.suppress(OSError), path.open() as lines:
            rows = (line.split() for line in lines if f" {state} " in line and end in line)
            yield from (row for row in rows if f"{row[1]} ".endswith(end))


def holders(sockets: Collection[int], pids: Sequence[int]) -> list[int]:
    """Returns the processes that have one of these sockets. A server opens those that it listens
    on early: all descriptors of all processes, of which one may have a hundred thousand, are looked
    at only if none has them among its first ones."""
    wanted = set(sockets)
    for first in (FIRST, None):
        if found := [pid for pid in pids if wanted & sockets_of(pid, first)]:
            return found
    return []


def has_socket(pid: int, sockets: Collection[int]) -> bool | None:
    """Returns True if a process has one of these sockets, and None if its sockets are hidden from
    this user."""
    wanted = {f"socket:[{number}]" for number in sockets}
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(_link(each.path) in wanted for each in descriptors)
    except PermissionError:
        return None
    except OSError:
        return False


def _link(path: str) -> str:
    """Returns what a descriptor leads to; nothing if it was closed meanwhile. Raises
    PermissionError."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except FileNotFoundError:
        return ""


def sockets_of(pid: int, first: int | None = None) -> set[int]:
    """Returns the numbers of the sockets of a process, of its first descriptors only if `first` is
    given; none if they are hidden from this user."""
    found = set[int]()
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in islice(descriptors, first):
            with contextlib.suppress(OSError):
                link = os.readlink(descriptor.path)  # noqa: PTH115
                kind, _, number = link.partition(":[")
                if kind == "socket":
                    found.add(int(number.rstrip("]")))
    return found


def load_library() -> Any:
    """Loads and returns the library that asks the kernel. It takes 0.1 s of CPU time, so only
    programs that need it load it. A server does so before it accepts clients, which wait some
    seconds only."""
    from pyroute2.netlink import diag

    return diag


def _opened() -> Any:
    diag = load_library().DiagSocket()
    diag.bind()
    return diag


def _question() -> Any:
    class Question(load_library().inet_diag_req):  # type: ignore[misc]
        """A question with a filter."""

        nla_map = (("INET_DIAG_REQ_NONE", "none"), ("INET_DIAG_REQ_BYTECODE", "cdata"))

    return Question()


def _filter(port: tuple[int, int], ports: range) -> bytes:
    """Returns a filter of the kernel (`struct inet_diag_bc_op`); empty for all ports. Each test is
    two operations of 4 bytes, and leads to the next test, or beyond the end if it fails."""
    if ports == PORTS:
        return b""
    not_below, not_above = port
    return struct.pack(
        "=BBHBBHBBHBBH",
        *(not_below, 8, 20, 0, 0, ports.start),
        *(not_above, 8, 12, 0, 0, ports.stop - 1),
    )


def _connection(answer: Any) -> Connection:
    # Kernels before 5.4 have fewer fields.
    info = answer.get_attr("INET_DIAG_INFO") or {}
    return Connection(
        cookie=answer["idiag_cookie"],
        inode=answer["idiag_inode"],
        port=answer["idiag_sport"],
        peer_port=answer["idiag_dport"],
        unread_bytes=answer["idiag_rqueue"],
        resent_total=(info.get("tcpi_total_retrans") or 0) - (info.get("tcpi_dsack_dups") or 0),
        **{field: info.get(name) or 0 for field, name in _INFO.items()},
    )


@contextlib.contextmanager
def _in_namespace_of(process: int | None) -> Iterator[None]:
    """Moves this thread into the network namespace of a process, and back. Raises OSError if that
    is not allowed."""
    other = OWN_NAMESPACE if process is None else f"/proc/{process}/ns/net"
    if _is_same(OWN_NAMESPACE, other):
        yield
        return
    from pyroute2 import netns

    with open(OWN_NAMESPACE, "rb") as back, open(other, "rb") as there:  # noqa: PTH123
        netns.setns(there.fileno())
        try:
            yield
        finally:
            netns.setns(back.fileno())


def _is_same(one: str, other: str) -> bool:
    return os.stat(one).st_ino == os.stat(other).st_ino  # noqa: PTH116


_INFO: Mapping[str, str] = {
    "unsent_bytes": "tcpi_notsent_bytes",
    "rtt_us": "tcpi_rtt",
    "least_rtt_us": "tcpi_min_rtt",
    "segments_total": "tcpi_data_segs_out",
    "acked_bytes_total": "tcpi_bytes_acked",
    "received_bytes_total": "tcpi_bytes_received",
    "busy_us": "tcpi_busy_time",
    "closed_us": "tcpi_rwnd_limited",
    "send_buffer_us": "tcpi_sndbuf_limited",
    "sent_ms_ago": "tcpi_last_data_sent",
    "received_ms_ago": "tcpi_last_data_recv",
}


LOOPBACK = "127.0.0.1"
FIRST_PORT = 10_000
"""Below are ports of well-known services."""
LAST_PORT = 65_535
ROOM_MIN = 2_000
"""Fewer ports than these below the kernel's range are too few to choose from."""
TRIES = 200
"""Ports tried in the range before the kernel chooses."""
RANGE_VARIABLE = "PUBSTORM_PORTS"
"""Environment variable with the ports to choose from, as in 20000-20999."""

_given: set[int] = set()
"""Ports that this process has chosen: a broker takes a moment until it listens on its own."""


def free_port(hosts: Sequence[str] = (LOOPBACK,)) -> int:
    """Returns a port that is free on all of these addresses and that this process has not chosen
    before. Where the kernel's range leaves room, no outgoing connection can take the port."""
    wanted = os.environ.get(RANGE_VARIABLE)
    room = _wanted(wanted) if wanted else _room()
    if _given.issuperset(room):
        _given.clear()
    fresh = [port for port in room if port not in _given]
    for port in random.sample(fresh, k=len(fresh) if wanted else min(TRIES, len(fresh))):
        if all(is_free(port, host) for host in hosts):
            _given.add(port)
            return port
    if wanted:
        raise TopologyError(
            f"all ports of {RANGE_VARIABLE}={wanted} are taken",
            f"stop the programs that listen there, or set {RANGE_VARIABLE} to more ports",
        )
    with socket.socket() as probe:
        probe.bind((hosts[0], 0))
        chosen: int = probe.getsockname()[1]
        return chosen


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Returns True if a program could listen there."""
    with socket.socket() as probe:
        # As servers do: a connection of before that is being forgotten is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def _room() -> Sequence[int]:
    """Ports that the kernel gives to no outgoing connection; nothing where there are too few."""
    low, high = _outgoing()
    below, above = range(FIRST_PORT, low), range(high + 1, LAST_PORT + 1)
    if len(below) >= ROOM_MIN:
        return below
    if len(below) + len(above) >= ROOM_MIN:
        return (*below, *above)
    return ()


def _wanted(text: str) -> range:
    """Returns the ports of a range as in 20000-20999."""
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= LAST_PORT:
        return range(int(first), int(last) + 1)
    raise TopologyError(
        f"{RANGE_VARIABLE}: found {text!r}, allowed is FIRST-LAST between 1 and {LAST_PORT}",
        f"as in {RANGE_VARIABLE}=20000-20999; without it, Pubstorm chooses from all free ports",
    )


def _outgoing() -> tuple[int, int]:
    """First and last port of the kernel's range."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(low), int(high)

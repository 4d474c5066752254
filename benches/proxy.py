"""Measures what a passing link costs: `python -m benches.proxy`, after `cargo build --release`.

The baseline publishes to its sink, directly and over a link of the proxy in turn: in large writes,
and a message each. CPU is the proxy's own in all its life. Then round trips of 100 bytes, one by
one.
"""

import contextlib
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator

from benches import machine
from benches.bench import BUILT
from benches.plans import Json
from benches.programs import Child, ProgramError, Programs, run_baseline, sink

HOST = "127.0.0.1"
ROUNDS = 3
BLAST_MESSAGES = 10_000_000
SEND_CONNECTIONS = 1000
SEND_RATE_PER_S = 20
SEND_S = 5
TRIPS = 5000
DELAYED_TRIPS = 100
DELAY_NS = 10_000_000
TRIP = b"x" * 100


class Link:
    """A link, and once it has ended, what it cost."""

    def __init__(self, child: Child, port: int) -> None:
        child.write({"command": "open", "name": "up", "to": f"{HOST}:{port}", **OPEN})
        self.port: int = child.read("opened")["ports"][0]
        self.cpu_ns = 0
        self.bytes_total = 0
        self._child = child

    def drain(self) -> None:
        """Waits until every connection over it has ended."""
        while (counts := self._counts())["open"]:
            time.sleep(0.01)
        self.bytes_total = counts["out_bytes_total"] + counts["in_bytes_total"]

    def delay(self) -> None:
        """Delays each of its directions from now on."""
        state = {"state": "pass", "delay_ns": DELAY_NS}
        self._child.write({"command": "set", "name": "up", "links": [0], **state})
        self._child.read("set")

    def end(self) -> None:
        """Ends it."""
        self._child.close_stdin()
        self.cpu_ns = self._child.wait()

    def _counts(self) -> Json:
        self._child.write({"command": "count"})
        counts: Json = self._child.read("counts")["links"][0]
        return counts


OPEN = {"count": 1, "listen": HOST}


def main() -> int:
    """Measures and prints; returns the exit code."""
    programs = Programs(BUILT)
    if missing := [p.name for p in (programs.baseline, programs.proxy) if not p.is_file()]:
        print(f"error: not built: {', '.join(missing)} in {BUILT}", file=sys.stderr)
        print("hint: cargo build --release -p pubstorm-proxy -p pubstorm-baseline", file=sys.stderr)
        return 2
    print(machine.describe())
    other_work = machine.OtherWork()
    print(f"median of {ROUNDS} rounds\n")
    try:
        _blast(programs)
        _send(programs)
        _trips(programs)
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\nother work took {other_work.share():.0%} of the machine meanwhile")
    return 0


@contextlib.contextmanager
def _link(programs: Programs, port: int) -> Iterator[Link]:
    with Child(programs.proxy) as child:
        link = Link(child, port)
        yield link
        link.end()


def _published(programs: Programs, mode: str, **options: float) -> tuple[Json, Json, Link]:
    """Counts of the baseline, directly and over a link, and the link."""
    with sink(programs) as peer:
        direct = run_baseline(programs, peer.port, mode, **options)
    with sink(programs) as peer, _link(programs, peer.port) as link:
        linked = run_baseline(programs, link.port, mode, **options)
        link.drain()
    received = peer.counts["messages_qos0"]
    if received != linked["messages"]:
        raise ProgramError(f"{mode}: sent {linked['messages']} messages, received {received}")
    return direct, linked, link


def _blast(programs: Programs) -> None:
    direct, linked, cpu = [], [], []
    for _ in range(ROUNDS):
        plain, over, link = _published(programs, "blast", connections=1, messages=BLAST_MESSAGES)
        direct.append(plain["bytes"] / plain["wall_ns"])
        linked.append(over["bytes"] / over["wall_ns"])
        cpu.append(link.cpu_ns / link.bytes_total)
    rate = BLAST_MESSAGES / (over["bytes"] / statistics.median(linked) / 1e9) / 1e6
    print(f"large writes   direct      {statistics.median(direct):8.2f} GB/s")
    print(f"               over a link {statistics.median(linked):8.2f} GB/s, {rate:.1f} M msg/s")
    print(f"               CPU         {statistics.median(cpu):8.2f} s per GB")


def _send(programs: Programs) -> None:
    cpu = []
    load = {"connections": SEND_CONNECTIONS, "rate_per_s": SEND_RATE_PER_S, "seconds": SEND_S}
    for _ in range(ROUNDS):
        _, over, link = _published(programs, "send", **load)
        cpu.append(link.cpu_ns / 1e3 / over["messages"])
    print(f"a message each CPU         {statistics.median(cpu):8.2f} s per million")


def _trips(programs: Programs) -> None:
    took: dict[str, list[float]] = {"direct": [], "over a link": [], "delayed": []}
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        for _ in range(ROUNDS):
            took["direct"].append(_round_trip_us(server, port, TRIPS))
            with _link(programs, port) as link:
                took["over a link"].append(_round_trip_us(server, link.port, TRIPS))
                link.delay()
                took["delayed"].append(_round_trip_us(server, link.port, DELAYED_TRIPS))
    for name, values in took.items():
        lead = "round trip p50" if name == "direct" else ""
        print(f"{lead:15}{name:11} {statistics.median(values):8.1f} µs")
    print(f"               (delayed by {DELAY_NS / 1e6:g} ms each way)")


def _round_trip_us(server: socket.socket, port: int, trips: int) -> float:
    """Median of many round trips, one after the other."""
    with socket.create_connection((HOST, port)) as near:
        far, _ = server.accept()
        echo = threading.Thread(target=_echo, args=(far,))
        echo.start()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took = []
        for _ in range(trips):
            began_ns = time.monotonic_ns()
            near.sendall(TRIP)
            near.recv(len(TRIP), socket.MSG_WAITALL)
            took.append(time.monotonic_ns() - began_ns)
    echo.join()
    return statistics.median(took) / 1000


def _echo(far: socket.socket) -> None:
    with far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while received := far.recv(len(TRIP), socket.MSG_WAITALL):
            far.sendall(received)


if __name__ == "__main__":
    sys.exit(main())

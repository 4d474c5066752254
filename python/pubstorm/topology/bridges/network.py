"""Networks of small brokers: a namespace for each, with a link for clients and observers that is
left as it is, and a link to the main broker that is shaped and can be unplugged. It calls iproute2
and starts no broker.

    main broker  main_host ---- shaped ---- .  small brokers
    clients                ---- plain  ---- host
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from math import ceil
from pathlib import Path

from pubstorm.errors import TopologyError
from pubstorm.scenario.topology import Bridge as BridgeSpec
from pubstorm.scenario.topology import ScenarioNetwork as NetworkSpec
from pubstorm.topology.broker import Place

RANGE = IPv4Network("198.18.0.0/15")
"""Set aside for measurements between networks [RFC 2544, RFC 6890]."""
BLOCK_BITS = 29
"""Length of the prefix of one network: two links of four addresses."""
ROUTE_BITS_MIN = 8
"""Routes to more than that lead to the whole Internet by halves, as those of a VPN do."""
NAMESPACES = Path("/run/netns")
INTERFACES = Path("/sys/class/net")
PROGRAM_TIMEOUT_S = 30.0
"""Longest run of a command of iproute2, which waits for a lock of the kernel only."""

PACKET_BYTES = 1514
SMALL_PACKET_BYTES = 64
QUEUE_S = 0.25
"""Length of a link's queue, as time at its rate."""
QUEUE_PACKETS_MIN = 1000
QUEUE_PACKETS = 100_000
"""Packets that may be on their way where no rate says how many can be."""
BURST_S = 0.01
"""Burst of a link after a pause, as time at its rate."""

MODULE_HINT = (
    "modprobe sch_{name}; its package is linux-modules-extra-$(uname -r) on Ubuntu and "
    "kernel-modules-extra on Fedora; a rate alone needs tbf only, and to be unplugged nothing"
)
_NAME = re.compile(r"pubstorm-([0-9a-f]{8})-[A-Za-z][A-Za-z0-9_-]{0,63}")


class Network:
    """The network of the small brokers of one bridge."""

    def __init__(self, bridge: str, spec: NetworkSpec) -> None:
        self._bridge, self._spec = bridge, spec
        self._tag = secrets.token_hex(4)
        self.name = f"pubstorm-{self._tag}-{bridge}"
        """The namespace; enough to remove everything by."""
        self.host = ""
        """Address at which small brokers listen for clients and observers; known after the
        start."""
        self.main_host = ""
        """Address at which the main broker listens for bridges."""

    @property
    def prefix(self) -> Sequence[str]:
        """Words before a command that runs inside the network. They end in the command's own
        process, so that signals reach it, also the one at a parent's death."""
        return (_program("ip"), "netns", "exec", self.name)

    async def start(self) -> None:
        """Makes it; raises TopologyError, and leaves nothing, where that fails."""
        try:
            await _to_its_end(self._make)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Removes the network. May be called twice, and without a start."""
        await _to_its_end(lambda: remove_namespace(self.name))

    async def unplug(self) -> None:
        """From now on every packet between small brokers and main broker is lost, and neither
        kernel knows; clients are still served."""
        await self._change(["blackhole"])

    async def plug(self) -> None:
        """The link is again as it was at the start."""
        await self._change(discipline(self._spec))

    async def _change(self, words: Sequence[str]) -> None:
        try:
            await _to_its_end(lambda: self._put(words))
        except _ProgramError as error:
            raise TopologyError(f"network of bridge {self._bridge}: {error}") from error

    def _make(self) -> None:
        if os.geteuid() != 0:
            hint = "run pubstorm as root, or leave network out: cut and delay work without it"
            raise self._failure("it takes root to make one", hint)
        shape = discipline(self._spec)
        try:
            block = free_block([*_of_addresses(), *_of_routes()])
            self.main_host, self.host = str(block[5]), str(block[2])
            _run("ip", "netns", "add", self.name)
            _run("ip", "-batch", "-", text=self._links(block))
            _run("ip", "-netns", self.name, "-batch", "-", text=self._ends(block))
            if shape:
                self._put(shape)
        except _ProgramError as error:
            if shape and _is_unknown_discipline(str(error)):
                hint = MODULE_HINT.format(name=shape[0])
                raise self._failure(f"this kernel has no {shape[0]}", hint) from error
            hint = "in a container it takes the capabilities NET_ADMIN and SYS_ADMIN"
            raise self._failure(str(error), hint) from error

    def _links(self, block: IPv4Network) -> str:
        """Both links, and their ends outside. Neighbours are known for good: an unplugged
        broker receives nothing, not even an error of address resolution."""
        clients, bridges = outer_ends(self._tag)
        there = f"address {INNER_MAC} netns {self.name}"
        # One segment a packet, so that delay and loss are those of packets.
        single = "gso_max_segs 1"
        return f"""\
link add {clients} address {OUTER_MAC} type veth peer name clients {there}
link add {bridges} address {OUTER_MAC} {single} type veth peer name bridges {single} {there}
address add {block[1]}/30 dev {clients}
address add {block[5]}/30 dev {bridges}
link set {clients} up
link set {bridges} up
neighbour replace {block[6]} lladdr {INNER_MAC} dev {bridges} nud permanent
"""

    def _ends(self, block: IPv4Network) -> str:
        """Returns the commands for the ends of the links inside the namespace."""
        return f"""\
address add {block[2]}/30 dev clients
address add {block[6]}/30 dev bridges
link set lo up
link set clients up
link set bridges up
neighbour replace {block[5]} lladdr {OUTER_MAC} dev bridges nud permanent
"""

    def _put(self, words: Sequence[str]) -> None:
        """Puts both ends of the link to the main broker under a queueing discipline."""
        verb = "replace" if words else "delete"
        outer = outer_ends(self._tag)[1]
        _run("tc", "qdisc", verb, "dev", outer, "root", *words)
        _run("tc", "-netns", self.name, "qdisc", verb, "dev", "bridges", "root", *words)

    def _failure(self, text: str, hint: str) -> TopologyError:
        return TopologyError(f"network of bridge {self._bridge}: {text}", hint, exit_code=2)


class Networks:
    """All networks of a topology."""

    def __init__(self, bridges: Mapping[str, BridgeSpec]) -> None:
        self._bridges = bridges
        self._networks = {
            name: Network(name, bridge.network)
            for name, bridge in bridges.items()
            if bridge.network is not None
        }

    async def start(self, note: Callable[[str], None]) -> None:
        """Makes them, and calls `note` with each name before anything of it exists; raises
        TopologyError, and leaves none, where that fails."""
        try:
            for network in self._networks.values():
                note(network.name)
                await network.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Removes them; what cannot be removed is left to `pubstorm down`, which says why. May be
        called twice."""
        for network in self._networks.values():
            with contextlib.suppress(TopologyError):
                await network.stop()

    def of_bridge(self, name: str) -> Network | None:
        """The network of a bridge."""
        return self._networks.get(name)

    def around(self, group: str) -> Network | None:
        """The network that the brokers of a group live in."""
        homes = (n for name, n in self._networks.items() if self._bridges[name].from_ == group)
        return next(homes, None)

    @property
    def main_hosts(self) -> Mapping[str, str]:
        """On which address bridges find their main broker, by the name of the bridge."""
        return {name: network.main_host for name, network in self._networks.items()}

    def settled(self, group: str, place: Place) -> Place:
        """The place of a broker in the networks that have been started: inside of one, or also at
        the ends of some, or as it was."""
        if (home := self.around(group)) is not None:
            return replace(place, host=home.host, prefix=home.prefix)
        ends = [host for name, host in self.main_hosts.items() if self._bridges[name].to == group]
        return replace(place, also_on=ends)


def discipline(spec: NetworkSpec) -> list[str]:
    """The queueing discipline of one end of a link, in the words of `tc`; empty: none."""
    bytes_per_s = (spec.rate or 0) / 8
    if spec.needs_netem:
        words = ["netem", "delay", f"{spec.delay / 1000:.0f}us", f"{spec.jitter / 1000:.0f}us"]
        words += ["loss", f"{spec.loss * 100:.6g}%"] if spec.loss else []
        words += ["rate", f"{spec.rate}bit"] if spec.rate else []
        on_its_way_s = QUEUE_S + (spec.delay + spec.jitter) / 1e9
        packets = ceil(bytes_per_s * on_its_way_s / SMALL_PACKET_BYTES) or QUEUE_PACKETS
        return [*words, "limit", str(max(QUEUE_PACKETS_MIN, packets))]
    if spec.rate:
        burst = max(ceil(bytes_per_s * BURST_S), 2 * PACKET_BYTES)
        queue = max(ceil(bytes_per_s * QUEUE_S), QUEUE_PACKETS_MIN * SMALL_PACKET_BYTES)
        return ["tbf", "rate", f"{spec.rate}bit", "burst", str(burst), "limit", str(queue)]
    return []


def free_block(used: Sequence[IPv4Network]) -> IPv4Network:
    """A block of the range that overlaps nothing that is used, chosen at random so that runs that
    start together do not meet."""
    size = 2 ** (32 - BLOCK_BITS)
    number = RANGE.num_addresses // size
    first = secrets.randbelow(number)
    for n in range(first, first + number):
        block = IPv4Network((int(RANGE[0]) + n % number * size, BLOCK_BITS))
        if not any(block.overlaps(other) for other in used):
            return block
    hint = "`ip address` and `ip route` show who has them"
    raise TopologyError(f"no addresses of {RANGE} are free on this host", hint, exit_code=2)


def outer_ends(tag: str) -> tuple[str, str]:
    """Names of the interfaces outside of a namespace: to clients, and to the main broker. The
    kernel allows 15 characters."""
    return f"ps{tag}c", f"ps{tag}b"


def remove_namespace(name: str) -> bool:
    """Removes the namespace of a run and its links; whether there was any of it. Processes in it
    stay without a network. Raises TopologyError where something is left."""
    tag = _NAME.fullmatch(name)
    if tag is None:
        raise TopologyError(f"{name} is not the name of a network of Pubstorm", exit_code=2)
    removals = {
        **{INTERFACES / end: ("link", "delete", "dev", end) for end in outer_ends(tag[1])},
        NAMESPACES / name: ("netns", "delete", name),
    }
    there = [path for path in removals if path.exists()]
    for path in there:
        try:
            _run("ip", *removals[path])
        except _ProgramError as error:
            # Somebody else may have been quicker.
            if path.exists():
                hint = f"as root: ip {' '.join(removals[path])}"
                raise TopologyError(f"cannot remove {path.name}: {error}", hint) from error
    return bool(there)


async def _to_its_end(work: Callable[[], object]) -> None:
    """Does the work in a thread, and waits for its end also where this is cancelled: what is half
    made cannot be removed."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


def _is_unknown_discipline(text: str) -> bool:
    """Returns True if `tc` reports a queueing discipline that the kernel does not have; old kernels
    have fewer words."""
    complaints = ("qdisc kind is unknown", "No such file or directory")
    return text.startswith("tc qdisc") and any(words in text for words in complaints)


def _of_addresses() -> Iterator[IPv4Network]:
    for interface in json.loads(_run("ip", "-json", "-4", "address", "show") or "[]"):
        for entry in interface.get("addr_info", ()):
            length = entry.get("prefixlen", 32)
            yield IPv4Network(f"{entry['local']}/{length}", strict=False)


def _of_routes() -> Iterator[IPv4Network]:
    for route in json.loads(_run("ip", "-json", "-4", "route", "show") or "[]"):
        if route["dst"] == "default":
            continue
        network = IPv4Network(route["dst"], strict=False)
        if network.prefixlen >= ROUTE_BITS_MIN:
            yield network


class _ProgramError(Exception):
    """Returns the error message of iproute2."""


def _program(name: str) -> str:
    """Path of a program of iproute2, which a user's PATH may not have."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        raise TopologyError(f"{name} is not installed", "apt-get install iproute2", exit_code=2)
    return path


def _run(name: str, *words: str, text: str | None = None) -> str:
    """Returns the output of a program of iproute2, which gets `text` on its stdin."""
    command = [_program(name), *words]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _ProgramError(f"{name}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _ProgramError(f"{' '.join([name, *words])}: {said[0]}")
    return done.stdout


OUTER_MAC = "02:00:00:00:00:01"
INNER_MAC = "02:00:00:00:00:02"

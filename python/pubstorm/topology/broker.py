"""A server as a process of a machine: its folder, log, ports, start, end and restart. A broker is a
server that clients connect to; each file of `adapters` and `services` has the properties of one
kind. Brokers of one cluster share a secret and the order of their start."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil

from pubstorm.errors import TopologyError
from pubstorm.host import proc
from pubstorm.host.ends import killed
from pubstorm.host.keys.files import PRIVATE_MODE
from pubstorm.host.machine import HERE, Child, Machine, Order, last_lines
from pubstorm.host.preflight.need import Appetite
from pubstorm.host.shares import MemoryCgroup, pinned
from pubstorm.host.sockets import LOOPBACK, free_port, holders, is_free, listening_at
from pubstorm.quantities import bytes_text
from pubstorm.scenario.topology import Federation, ScenarioTopology
from pubstorm.topology.observer import Login


def check_ports(wanted: Iterable[tuple[str, int, str]]) -> None:
    """Raises TopologyError if any of the ports, each with what it is for and its address, is taken
    or may not be used."""
    short = [(name, port) for name, port, host in wanted if not is_free(port, host)]
    if not short:
        return
    name, port = short[0]
    more = f", and {len(short) - 1} more ports are taken" if len(short) > 1 else ""
    raise TopologyError(
        f"port {port} of {name} is taken by {holder(port)}{more}",
        "stop that program, choose another port in topology, or leave port out: "
        "then free ones are taken",
    )


def node_host(number: int) -> str:
    """The loopback address of node `number` of a cluster."""
    return f"127.0.0.{number + 1}"


def fixed_ports(spec: ScenarioTopology, *, placed: bool = True) -> Iterator[tuple[str, int, str]]:
    """Ports of this host that a scenario asks for, each with its broker or service, and with its
    address; without `placed`, not of those with a label of hosts. Brokers in a network of their own
    have ports of their own."""
    elsewhere = {bridge.from_ for bridge in spec.bridges.values() if bridge.network is not None}
    for group, broker in spec.brokers.items():
        is_here = group not in elsewhere and (placed or broker.hosts is None)
        if broker.port is not None and is_here:
            for n in range(broker.count):
                host = node_host(n) if broker.is_cluster else LOOPBACK
                yield f"broker {group}-{n}", broker.port + n, host
    for name, service in spec.services.items():
        if service.port is not None and (placed or service.hosts is None):
            yield f"service {name}", service.port, LOOPBACK


def holder(port: int) -> str:
    """Returns the name and process id of the program that has a port, as far as this user may see
    them."""
    sockets = listening_at(port)
    for pid in holders(sockets, list(proc.pids())) if sockets else ():
        with suppress(psutil.Error):
            return f"{psutil.Process(pid).name()} (pid {pid})"
    if sockets:
        return "a process hidden from this user"
    if port < _number("ip_unprivileged_port_start", 1024):
        return "the kernel, which keeps it for root"
    return "a connection of another program"


def _number(name: str, fallback: int) -> int:
    try:
        return int(Path("/proc/sys/net/ipv4", name).read_text())
    except (OSError, ValueError):
        return fallback


NODE_PORT_TRIES = 20
"""Ports tried for nodes on several hosts."""


class Cluster:
    """Common properties of the nodes of a cluster."""

    def __init__(self, group: str, count: int) -> None:
        self.names: Sequence[str] = [f"{group}-{number}" for number in range(count)]
        """The nodes, in the order of their start."""
        self.secret = secrets.token_hex(16)
        """Secret that the nodes of the cluster share."""
        self.node_port = 0
        """Port of each node for the others, on its own address; 0 before the first start."""
        self._machines: dict[str, Machine] = {}
        self._is_there: dict[str, Callable[[], bool]] = {}
        self._up = [asyncio.Event() for _ in range(count)]

    def host(self, name: str) -> str:
        """The address of a node: one of its own, so that all of them can have the same port."""
        if name in self._machines:
            return self._machines[name].address
        return node_host(self.names.index(name))

    def put(self, name: str, machine: Machine) -> None:
        """Puts a node on a host of its own; raises TopologyError if that has another node."""
        if machine in self._machines.values():
            text = f"broker {name}: the nodes of a cluster need a host each, and {machine.address}"
            raise TopologyError(f"{text} has one already", "give its label to more hosts")
        self._machines[name] = machine

    async def choose_port(self) -> None:
        """Chooses the port for all nodes; done by the first of them, before any runs."""
        if not self._machines:
            self.node_port = free_port([self.host(name) for name in self.names])
            return
        first, *others = self._machines.values()
        for _ in range(NODE_PORT_TRIES):
            self.node_port = await first.free_port()
            if all([await machine.is_free(self.node_port) for machine in others]):
                return
        raise TopologyError(f"found no port that is free on all hosts of {', '.join(self.names)}")

    def join(self, name: str, is_there: Callable[[], bool]) -> None:
        """Takes a function that returns True while the process of a node runs."""
        self._is_there[name] = is_there

    def there(self) -> int:
        """Returns the number of nodes that have a process now."""
        return sum(is_there() for is_there in self._is_there.values())

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """A node's turn to start: the one before it is up, and it is up when this is left."""
        number = self.names.index(name)
        if number:
            await self._up[number - 1].wait()
        yield
        self._up[number].set()


STOP_GRACE_S = 5.0
"""Longest time that a server takes to end after SIGTERM."""
READY_TIMEOUT_S = 15.0
"""Longest time until a server accepts connections."""
PORT_TRIES = 5
"""Ports tried: another process may take one between its choice and its use."""
PROBE_AFTER_S, PROBE_AFTER_MAX_S = 0.01, 0.25
"""Waits between two looks whether it accepts connections; each is twice the one before."""


@dataclass(frozen=True)
class Place:
    """Name, folder and configuration of a server."""

    name: str
    """Its name: that in the scenario and a number."""
    folder: Path
    """Its own folder: configuration, state, log."""
    group: str = ""
    """The name in the scenario; empty for a service."""
    number: int = 0
    """Number among the brokers of that name."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings in its own words."""
    port: int | None = None
    """Port to listen on; None for any free port."""
    binary: str | None = None
    """The program; None: the one that is installed."""
    command: Sequence[str] = ()
    """The whole command, for a program that nothing else is known of."""
    directory: Path | None = None
    """Directory that the command starts in, on this machine; None: that of Pubstorm."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it gets, with values to fill in: text by name below its folder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the scenario for it, with values to fill in."""
    version: Sequence[str] = ()
    """The command that states its version."""
    plugins: Sequence[str] = ()
    """Plugins of a broker that has some."""
    federation: Federation | None = None
    """Virtual hosts that it federates."""
    cluster: Cluster | None = None
    """The cluster that it is a node of."""
    is_under_tls: bool = False
    """True if its settings put clients under TLS."""
    serves_websocket: bool = False
    """True if clients connect over WebSocket, on a port of its own."""
    serves_quic: bool = False
    """True if clients connect over QUIC, on a port of UDP."""
    auth: str | None = None
    """URL of the store in which it looks up users; None: it lets everybody in."""
    trusted: Login | None = None
    """One more user, who may do everything: who observes it."""
    more: str = ""
    """Configuration that is appended as it stands: bridges."""
    machine: Machine = HERE
    """Machine that it runs on."""
    host: str = LOOPBACK
    """Address that it listens on."""
    also_on: Sequence[str] = ()
    """More addresses that it listens on, on the same port: those of links to small brokers."""
    cpus: Sequence[int] = ()
    """Processors that it may use; empty: all of its machine."""
    cgroup: MemoryCgroup | None = None
    """The cgroup that limits its memory."""
    prefix: Sequence[str] = ()
    """Words before the command, which lead into a network namespace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for its process and all that it starts."""
    note: Callable[[str, int, Sequence[str]], None] = lambda _name, _pid, _command: None
    """Takes each process that is started for it: its name, process id and command."""


class ServerProcess(ABC):
    """A program as a child process with a folder and a log of its own. An adapter says which
    program it is, how it is configured and when it is ready."""

    noun: ClassVar[str] = ""
    """Noun for users."""
    kind: ClassVar[str] = ""
    programs: ClassVar[Sequence[str]] = ()
    """Names of the installed programs that it needs; the first is the server itself."""
    instead: ClassVar[str] = ""
    """Advice where they are not installed, after that to install them."""
    states_version: ClassVar[tuple[str, str] | None] = None
    """Option with which the program states its version, and the pattern whose first group is the
    version. None: only the running server states it."""
    has_helpers: ClassVar[bool] = False
    """True if it may start processes of its own, which have to end with it."""
    says_taken: ClassVar[str] = "Address already in use"
    """Text in its log if another process has its port."""
    dies_with_us: ClassVar[bool] = False
    """True if it ends by itself when Pubstorm ends; others get the parent-death signal."""
    stop_grace_s: ClassVar[float] = STOP_GRACE_S
    ready_timeout_s: float = READY_TIMEOUT_S
    hand_over_s: float = math.inf
    """Time after which the server counts as up if another process answers at its port."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = place.name
        self.folder = place.folder
        self.log = place.folder / f"{self.noun}.log"
        self.port = place.port or 0
        self.version = ""
        self._command: Sequence[str] = ()
        self._process: Child | None = None
        self._taken_port = 0
        """Port of its own at which another process answered; 0 if there was none."""

    # Properties of each adapter.

    @abstractmethod
    async def configure(self, program: str) -> Sequence[str]:
        """Chooses ports, writes the configuration into the folder, and returns the command."""

    def environment(self) -> Mapping[str, str]:
        """Variables that it gets beside ours."""
        return {}

    async def ready(self) -> bool:
        """Waits until it accepts connections; False where it ended or took too long."""
        return await self.accepts(self.port)

    def port_was_taken(self) -> bool:
        """Returns True if it ended because another process has its port."""
        return self._taken_port != 0 or self.says_taken in self.log_text()

    def last_words(self) -> str:
        """Returns the lines of its log about a start that failed; empty if there are none."""
        return last_lines(self.log)

    def not_ready(self) -> str:
        """Returns what is missing after too long a start, as the end of a sentence."""
        if self._taken_port:
            return f"did not get port {self._taken_port}, at which another process answers,"
        return "accepted no connection"

    # Properties of all adapters.

    async def program(self) -> str:
        """Returns the path of the program: the one that is given, or that is installed; raises
        TopologyError where a program is missing."""
        found = [await self.place.machine.find(name) for name in self.programs]
        path = self.place.binary or found[0]
        if path is None or None in found[1:]:
            server = self.programs[0]
            raise TopologyError(
                f"{self.noun} {self.name}: {server} is not installed{self.where}",
                f"apt-get install {server}{self.instead}",
                exit_code=2,
            )
        return path

    async def version_of(self, program: str) -> str:
        """Returns the version that the program states; empty if it states none or does not start:
        the start of the server reports why."""
        if self.states_version is None:
            return ""
        option, pattern = self.states_version
        found = re.search(pattern, await self.place.machine.output(program, option))
        return found[1] if found else ""

    @property
    def prefix(self) -> Sequence[str]:
        """Words before its command: they give it its share of the host, and lead into a network
        namespace."""
        joined = () if self.place.cgroup is None else self.place.cgroup.prefix
        return (*joined, *pinned(self.place.cpus), *self.place.prefix)

    @property
    def host(self) -> str:
        """Address that it listens on."""
        return self.place.host

    @property
    def where(self) -> str:
        """The end of a sentence about it: its machine, if that is another one."""
        return "" if self.place.machine.is_here else f" on {self.place.machine.address}"

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Returns when it accepts connections; raises TopologyError if it does not come up."""
        program = await self.program()
        self.make_folder()
        self.version = self.version or await self.version_of(program)
        for attempt in range(1, PORT_TRIES + 1):
            await self.spawn((*self.prefix, *await self.configure(program)))
            if await self.ready():
                return
            is_free_to_choose = self.place.port is None and attempt < PORT_TRIES
            if not (is_free_to_choose and self.gone() and self.port_was_taken()):
                raise await self.start_failure()

    async def restart(self) -> None:
        """Starts it again as it was, on the same port and with the state in its folder."""
        await self.spawn(self._command)
        if not await self.ready():
            raise await self.start_failure()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if it runs."""
        if self._process is not None:
            self._process.signal(number)

    async def stop(self) -> bool:
        """Ends the server and all that it started: SIGTERM, then SIGKILL after a grace. Returns
        False if SIGKILL was needed."""
        process, in_order = self._process, True
        if process is None:
            return in_order
        if process.returncode is None:
            if self.has_helpers:
                await process.look()
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                async with asyncio.timeout(self.stop_grace_s):
                    await process.wait()
            except TimeoutError:
                in_order = False
                self.send(signal.SIGKILL)
                await killed(process)
        if self.has_helpers:
            await process.end_rest()
        return in_order

    async def ending(self) -> str:
        """Waits for its end and says how it came, naming it."""
        if self._process is None:
            return f"{self.noun} {self.name} was never started"
        code = await self._process.wait()
        if self._process.lost:
            return f"{self.noun} {self.name} (pid {self.pid}) is lost: {self._process.lost}"
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        if code and self.place.cgroup is not None and self.place.cgroup.kills:
            how += f", since it reached its memory of {bytes_text(self.place.cgroup.limit_bytes)}"
        return f"{self.noun} {self.name} (pid {self.pid}) {how}"

    def gone(self) -> bool:
        """Returns True if the process has ended."""
        return self._process is not None and self._process.returncode is not None

    def make_folder(self) -> None:
        """Makes its folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused_folder(error) from error

    def write(self, file: str, text: str) -> Path:
        """Writes a file into its folder, for its owner only: it may hold passwords."""
        path = self.folder / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=PRIVATE_MODE)
            path.write_text(text)
        except OSError as error:
            raise self._refused_folder(error) from error
        return path

    async def accepts(self, port: int) -> bool:
        """Waits until the process, or what it has started, answers at the port. Another run may
        have been quicker to take the port, and its broker answers, too."""
        assert self._process is not None, "it is started"
        clock = asyncio.get_running_loop().time
        deadline_s, handed_s, wait_s = clock() + self.ready_timeout_s, math.inf, PROBE_AFTER_S
        while not self.gone() and clock() < deadline_s:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, PROBE_AFTER_MAX_S)
            if not await self.answers(port):
                continue
            if await self._process.listens(port) or clock() > handed_s:
                return not self.gone()
            self._taken_port, handed_s = port, min(handed_s, clock() + self.hand_over_s)
        return False

    async def answers(self, port: int) -> bool:
        """Returns True if a process accepts a connection at a port of its address."""
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(self.host, port)
            writer.close()
            return True
        return False

    async def start_failure(self) -> TopologyError:
        """Returns the error of a start that failed, with the end of its log."""
        if self.gone():
            text = await self.ending()
        else:
            text = f"{self.noun} {self.name} {self.not_ready()} for {self.ready_timeout_s:.0f} s"
            await self.stop()
        words = self.last_words()
        return TopologyError(text, f"its log {self.log} ends with:\n{words}" if words else None)

    def log_text(self) -> str:
        """Its log as far as it can be read."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    async def spawn(self, command: Sequence[str]) -> None:
        """Starts the process, with pipes as stdin and stdout if it follows us."""
        self._command, self._taken_port = command, 0
        environment = {**self.place.environment, **self.environment()}
        directory = self.place.directory if self.place.machine.is_here else None
        talks = self.dies_with_us
        order = Order(command, self.folder, self.log, environment, talks, directory)
        try:
            self._process = await self.place.machine.spawn(order)
        except TopologyError as error:
            text = f"{self.noun} {self.name}: {error.message}"
            raise TopologyError(text, error.hint) from error
        if self.place.machine.is_here:
            own = command[len(self.prefix) :]
            self.place.note(self.name, self._process.pid, own)

    def _refused_folder(self, error: OSError) -> TopologyError:
        text = f"{self.noun} {self.name}: cannot write {self.folder}: {error.strerror}"
        return TopologyError(text)


class BrokerProcess(ServerProcess):
    """A broker as a child process."""

    noun: ClassVar[str] = "broker"
    appetite: ClassVar[Appetite]
    """Its needs, on the host that it is on."""
    speaks_sys: ClassVar[bool] = False
    """True if it publishes counters under `$SYS`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.observer_port = self.port
        """Port for monitors."""
        self.websocket_port = 0
        """Port for clients over WebSocket; 0 without one."""
        self.quic_port = 0
        """UDP port for clients over QUIC; 0 without one."""
        self.other_ports: dict[str, int] = {}
        """Ports for clients of other protocols than MQTT, by protocol."""

    @classmethod
    def users_text(cls, passwords: Mapping[str, str]) -> bytes:  # noqa: ARG003
        """Returns the text of a file of users, from passwords by user; empty for a kind without
        such a file."""
        return b""

    @classmethod
    def users_settings(cls, path: str) -> Mapping[str, object]:  # noqa: ARG003
        """Returns the settings with which it takes its users from a file, and lets no others in."""
        return {}

    async def provide(self, virtual_hosts: Sequence[str]) -> None:
        """Makes virtual hosts for clients; for brokers that have some."""

    async def open_websocket(self) -> bool:
        """Chooses the port for clients over WebSocket. Returns False if they use TCP."""
        if self.place.serves_websocket:
            self.websocket_port = await self.place.machine.free_port(self.host)
        return self.place.serves_websocket

    async def ready(self) -> bool:
        """Returns True once all listeners accept, in the order in which they open."""
        ports = (self.port, self.observer_port, self.client_port, *self.other_ports.values())
        for port in dict.fromkeys(ports):
            if not await self.accepts(port):
                return False
        return True

    @property
    def client_port(self) -> int:
        """Port for clients."""
        if self.place.serves_quic:
            return self.quic_port
        return self.websocket_port if self.place.serves_websocket else self.port

    @property
    def metrics_url(self) -> str | None:
        """Address of its counters in Prometheus' format; None if there is none."""
        return None

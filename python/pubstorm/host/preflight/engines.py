"""The agents that a plan needs, by arithmetic: their number, the clients and connections of each,
their memory, and the processes with real ZeroMQ sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.offered_load import most_at_one, payload_bytes_max, template_of
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.protocol import OpenPace
from pubstorm.errors import UsageError
from pubstorm.host.binaries import offered_load
from pubstorm.host.calibration import Costs
from pubstorm.host.preflight.host import HostLimits
from pubstorm.host.preflight.need import Fix, Need
from pubstorm.scenario.fleet import ScenarioFleet
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT, most_in_one, processes_needed

BUFFER_BYTES = 64 * 1024
"""Size of the buffer that all clients of an agent read into and write from."""
UNDER_WAY_S = 1.0
"""Time that a message may spend in the kernel's buffers, in seconds."""
MESSAGES_PER_S_PER_AGENT = 60_000
"""Sent and delivered, and requests of flapping clients; from here on another agent is worth its
core."""
PUBLISHED_PER_S_PER_AGENT = 2_000_000
"""Delivered by publishers that are programs of their own, many with each read."""


def agents_needed(plan: Plan, *, descriptors: int, cores: int) -> int:
    """The number of agents that a plan needs, by a process's limit of descriptors and by load."""
    by_descriptors = processes_needed(_clients(plan), descriptors)
    if by_descriptors is None:
        raise UsageError(
            f"a process may open {descriptors} files, which is too few for an agent",
            f"ulimit -n {DESCRIPTORS_KEPT + min(sum(_clients(plan)), 20_000)}",
        )
    publishers = sum(each.clients for each in plan.populations if each.is_publisher)
    each_per_s = PUBLISHED_PER_S_PER_AGENT if publishers else MESSAGES_PER_S_PER_AGENT
    # Brokers and publishers on this host need a core too.
    by_load = min(max(1, cores - publishers), ceil(_peak_per_s(plan) / each_per_s))
    return max(by_descriptors, by_load)


def agents_here(plan: Plan, fleet: ScenarioFleet, host: HostLimits) -> int:
    """The number of agents that play a plan on this host."""
    return fleet.agents or agents_needed(plan, descriptors=host.descriptors, cores=host.cores)


def open_files(plan: Plan, agents: int, descriptors: int, otherwise: str) -> Need:
    """The open files of the agent with the most clients; `otherwise` is a remedy with a place for
    the number of agents that fit."""
    clients = sockets(plan)
    files = most_in_one(clients, agents) + DESCRIPTORS_KEPT
    room = max(1, descriptors - DESCRIPTORS_KEPT - len(plan.populations))
    fitting = max(1, ceil(sum(clients) / room))
    command = Fix("ulimit", "n", files)
    what, remedy = "open files of an agent", otherwise.format(fitting)
    return Need(what, files, descriptors, "files", command, remedy)


def clients_bytes(plan: Plan, costs: Costs) -> float:
    """Memory of all clients that agents play, in agents and in the kernel for their ends of the
    connections, without messages on their way."""
    over_quic = [is_over_quic(plan, each) for each in plan.populations]
    secure = [
        each.clients
        for each, has_quic in zip(plan.populations, over_quic, strict=True)
        if not has_quic and any(plan.targets[target].tls for target in each.at.targets)
    ]
    quic = sum(clients for clients, has in zip(_clients(plan), over_quic, strict=True) if has)
    return (
        sum(_clients(plan)) * costs.client.value
        + sum(sockets(plan)) * costs.end.value
        + sum(secure) * costs.tls_client.value
        + quic * costs.quic_client.value
        + sum(each.clients * costs.session(each.can).value for each in plan.populations)
        + _ledger_pairs(plan) * costs.pair.value
    )


def large_messages_bytes(plan: Plan) -> float:
    """Memory of the messages on their way that exceed the agent's shared buffer: a sender has what
    its socket has not taken, and a receiver what has arrived of its message."""
    load = offered_load(plan)
    receiving = sum(each.clients for each in plan.populations if each.subscriptions)
    total = 0.0
    for index, population in enumerate(plan.populations):
        for number, publication in enumerate(population.publications):
            size = payload_bytes_max(population, publication)
            if size <= BUFFER_BYTES:
                continue
            senders = float(population.clients)
            if isinstance(publication.pace, OpenPace) and publication.pace.phase != "aligned":
                per_s = load.peak_of(index, number)
                senders = min(senders, max(1, per_s * UNDER_WAY_S))
            receivers = load.populations[index].publications[number].receivers
            total += (senders + min(senders * receivers, receiving)) * size
    return total


def largest_share(plan: Plan, agents: int) -> int:
    """Clients of agent 0, which plays the most. Clients that join in a stage are among them."""
    return most_in_one(_clients(plan), agents)


def _peak_per_s(plan: Plan) -> float:
    """Messages sent, messages delivered to clients of agents, and requests of flapping clients, at
    the peak of the busiest phase."""
    engines = {i for i, each in enumerate(plan.populations) if each.player == "engine"}
    return max(
        (
            phase.sent_per_s + phase.delivered_to_per_s(engines) + phase.requests_per_s
            for phase in offered_load(plan).at_peaks
        ),
        default=0,
    )


def _clients(plan: Plan) -> list[int]:
    """Connections of the clients that agents play."""
    return [each.connections_max if each.player == "engine" else 0 for each in plan.populations]


def is_over_quic(plan: Plan, population: PlannedPopulation) -> bool:
    """Returns True if all clients of a population connect over QUIC."""
    return all(plan.targets[target].quic for target in population.at.targets)


def sockets(plan: Plan) -> list[int]:
    """Connections of the clients that agents play, each with a socket of its own. Clients over QUIC
    share a few."""
    return [
        0 if is_over_quic(plan, each) else clients
        for each, clients in zip(plan.populations, _clients(plan), strict=True)
    ]


def _ledger_pairs(plan: Plan) -> float:
    """Streams, each counted for each of its receivers."""
    loads = offered_load(plan).populations
    return sum(
        population.clients * template_of(population, publication.topic).variants * each.receivers
        for population, load in zip(plan.populations, loads, strict=True)
        for publication, each in zip(population.publications, load.publications, strict=True)
        if not population.is_publisher
    )


PORTS_SHARE_EASY = 0.5
"""Share of the port range up to which connect() is fast: it looks at every second port first."""


def connections_at(plan: Plan) -> list[int]:
    """Connections of each target at the peak: of clients, silent ones of clients that vanished, and
    of bridges to the target."""
    found = [0] * len(plan.targets)
    for population in plan.populations:
        if population.is_publisher:
            continue
        at = population.at
        for target in range(at.first, min(at.first + at.count, len(found))):
            found[target] += most_at_one(at, population.connections_max)
    for bridges in plan.bridges:
        found[bridges.main] += bridges.count
    return found


def connecting(plan: Plan) -> int:
    """Number of connections of clients to targets, each with a socket of its own; publishers do not
    connect."""
    return sum(each.connections_max for each in plan.populations if not each.is_publisher)


def bridges_of(plan: Plan) -> int:
    """Bridges of a plan, each a connection of its own."""
    return sum(bridges.count for bridges in plan.bridges)


FILES_PER_SOCKET = {"libzmq": 7, "pyzmq": 4, "librdkafka": 16, "proton": 1}
"""Of a real subscriber: its connection, the mailbox of its socket, and both ends of its monitor;
measured, as the memory below. Of a consumer of librdkafka: a connection to each of a few brokers,
with pipes that wake its threads."""
PEER_BYTES = 25_000
"""Memory of libzmq for each connection of a PUB socket: session, buffers and an empty queue."""
SOCKET_BYTES = 65_000
"""Memory of libzmq for a SUB socket with its connection and 500 waiting messages."""
QUEUED_BYTES = 64
"""Memory of a queued message for each subscriber, without its payload, which exists once."""
PROGRAM_BYTES = {
    "libzmq": 10 * 2**20,
    "pyzmq": 40 * 2**20,
    "librdkafka": 50 * 2**20,
    "proton": 50 * 2**20,
    "command": 40 * 2**20,
}
"""A process before anybody has connected."""
PROGRAM_THREADS = 4
"""Threads of a process: its own, one for its pipe, and two of libzmq, without libzmq's threads for
input and output."""


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A process that plays clients instead of an engine."""

    population: str
    """Name of its population."""
    files: int
    bytes: int
    threads: int


def programs_of(plan: Plan) -> Iterator[ClientProgram]:
    """Every such process of a plan: one for each publisher, one for each population of real
    subscribers."""
    connections = connections_at(plan)
    for population in plan.populations:
        if population.player == "engine":
            continue
        if not population.is_publisher:
            yield _program(population, SOCKET_BYTES, population.clients)
            continue
        for target in population.at.targets:
            yield _program(population, PEER_BYTES, connections[target])


def queues_bytes(plan: Plan, population: PlannedPopulation) -> int | None:
    """Memory of one publisher's queues if the queues of all its subscribers are full; None for
    queues without a limit."""
    mark = 0 if population.zmtp is None else population.zmtp.high_water_mark
    connections = connections_at(plan)
    most = max(connections[target] for target in population.at.targets)
    return most * mark * QUEUED_BYTES if mark else None


def _program(population: PlannedPopulation, bytes_each: int, connections: int) -> ClientProgram:
    io_threads = 1 if population.zmtp is None else population.zmtp.io_threads
    files_each = 1 if population.is_publisher else FILES_PER_SOCKET[population.player]
    return ClientProgram(
        population.name,
        files=connections * files_each + DESCRIPTORS_KEPT,
        bytes=PROGRAM_BYTES.get(population.player, 0) + connections * bytes_each,
        threads=PROGRAM_THREADS + io_threads,
    )

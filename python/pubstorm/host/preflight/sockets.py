"""The needs of processes with real ZeroMQ sockets: publishers, and subscribers that are not
simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.host.preflight.connections import connections_at
from pubstorm.scenario.descriptors import DESCRIPTORS_KEPT

FILES_PER_SOCKET = {"libzmq": 7, "pyzmq": 4}
"""Of a real subscriber: its connection, the mailbox of its socket, and both ends of its monitor;
measured, as the memory below."""
PEER_BYTES = 25_000
"""Memory of libzmq for each connection of a PUB socket: session, buffers and an empty queue."""
SOCKET_BYTES = 65_000
"""Memory of libzmq for a SUB socket with its connection and 500 waiting messages."""
QUEUED_BYTES = 64
"""Memory of a queued message for each subscriber, without its payload, which exists once."""
PROGRAM_BYTES = {"libzmq": 10 * 2**20, "pyzmq": 40 * 2**20, "command": 40 * 2**20}
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

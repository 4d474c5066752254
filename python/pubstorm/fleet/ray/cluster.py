"""The Ray cluster that this host is a part of: joined, its hosts, room on them, left. Every call
has a limit, since a cluster that is cut in two answers nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from pubstorm.errors import FleetError
from pubstorm.fleet.ray import runner
from pubstorm.fleet.ray.choice import (
    LABEL,
    RayHost,
    demand_security,
    joining_in_words,
    loss_in_words,
)
from pubstorm.host.preflight.needs import AgentHost

MARK = "pubstorm_agent"
"""The custom resource of hosts that are to play agents; where none has it, all do."""
LOOK = "ray status shows the hosts of the cluster and who uses them"
REACH_S = 5.0
JOIN_S = 30.0
CALL_S = 30.0
LEAVE_S = 3.0
CALLS = 32
"""Calls that a worker works on at once: its stream is one of them."""

_MEMBERSHIP = threading.Lock()
"""Held while this process joins or leaves a cluster. Ray cannot do both at once, and leaving may
last longer than the run that asked for it: the next run of a series waits."""
_members = 0
"""Parts of this process that have joined: agents, and servers that outlive a run."""

T = TypeVar("T")


@dataclass(frozen=True)
class Room:
    """Room for one agent: a reserved part of a host."""

    host: RayHost
    group: PlacementGroup | None
    """None: nothing is reserved."""
    index: int
    """Number of the part in its group."""


class RayCluster:
    """A cluster, from the time it is joined until it is left."""

    def __init__(self, address: str | None) -> None:
        """`address` is `HOST:PORT` of its GCS; None: the one that this host is a part of."""
        self._given = address
        self._groups: list[PlacementGroup] = []
        self._joining: asyncio.Task[None] | None = None
        self.address = ""
        """`HOST:PORT` of its head; known once it is joined."""
        self.here = ""
        """The address of this host in it."""

    async def join(self) -> None:
        """Joins it, or raises FleetError."""
        address = self._given or str(await in_thread(_address_here, CALL_S))
        self.address = address
        demand_security(address, os.environ)
        await _reach(address)
        self._joining = asyncio.create_task(in_thread(lambda: _join(address), JOIN_S))
        await asyncio.shield(self._joining)
        _take_signals_back()
        await self._look_around(address)

    async def _look_around(self, address: str) -> None:
        """Finds this host among the nodes. Other hosts are reason enough to demand security, also
        where the cluster is called by a loopback address."""
        nodes, _ = await in_thread(_nodes, CALL_S)
        own = await in_thread(lambda: ray.get_runtime_context().get_node_id(), CALL_S)
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes if node["Alive"]}
        self.here = addresses[own]
        if set(addresses.values()) != {self.here}:
            port = address.rpartition(":")[2]
            demand_security(f"{self.here}:{port}", os.environ)

    async def all_hosts(self) -> tuple[RayHost, ...]:
        """All hosts and what each has free now; the controller's own last."""
        nodes, free = await in_thread(_nodes, CALL_S)
        nodes = [node for node in nodes if node["Alive"]]
        marked = {node["NodeID"] for node in nodes if MARK in node["Resources"]}
        found = [
            RayHost(
                node=node["NodeID"],
                address=node["NodeManagerAddress"],
                is_here=node["NodeManagerAddress"] == self.here,
                cores=int(node["Resources"].get("CPU", 0)),
                free=int(free.get(node["NodeID"], {}).get("CPU", 0)),
                label=node.get("Labels", {}).get(LABEL, ""),
                is_for_agents=not marked or node["NodeID"] in marked,
            )
            for node in nodes
        ]
        return tuple(sorted(found, key=lambda host: (host.is_here, host.address, host.node)))

    async def facts(self, hosts: Sequence[RayHost]) -> dict[str, AgentHost]:
        """Returns the state of hosts, by node, without those that did not answer."""
        ask: Any = ray.remote(runner.facts)

        def asked() -> list[Any]:
            pins = [NodeAffinitySchedulingStrategy(host.node, soft=False) for host in hosts]
            options = {"max_retries": 0, "num_cpus": 0}
            return [ask.options(scheduling_strategy=pin, **options).remote() for pin in pins]

        calls = [answer(call, CALL_S) for call in await in_thread(asked, CALL_S)]
        said = await asyncio.gather(*calls, return_exceptions=True)
        return {
            host.node: AgentHost("" if host.is_here else host.address, cores=host.cores, **each)
            for host, each in zip(hosts, said, strict=True)
            if not isinstance(each, BaseException)
        }

    async def reserve(
        self, hosts: Sequence[RayHost], spread: str, limit_s: float
    ) -> tuple[Room, ...]:
        """Room for an agent on each of these hosts, all of it or TimeoutError. It is tied to these
        hosts: room on one that died is not made up for on another, where it would be in the way."""
        bundles = [{"CPU": 1, f"node:{host.address}": 0.001} for host in hosts]
        strategy = "STRICT_SPREAD" if spread == "strict" else "PACK"

        def reserved() -> PlacementGroup:
            group: PlacementGroup = placement_group(bundles, strategy=strategy)
            self._groups.append(group)
            if group.wait(limit_s):
                return group
            self._groups.remove(group)
            remove_placement_group(group)
            raise TimeoutError

        group = await in_thread(reserved, limit_s + LEAVE_S)
        return tuple(Room(host, group, index) for index, host in enumerate(hosts))

    async def workers(self, rooms: Sequence[Room]) -> list[Any]:
        """Starts a worker in each of these."""
        kind: Any = ray.remote(runner.AgentRunner)
        options = {"max_restarts": 0, "max_concurrency": CALLS, "num_cpus": 1}

        def started() -> list[Any]:
            kept = ((room.group, room.index) for room in rooms if room.group is not None)
            places = (PlacementGroupSchedulingStrategy(*each) for each in kept)
            return [kind.options(scheduling_strategy=each, **options).remote() for each in places]

        return await in_thread(started, CALL_S)

    async def pinned(self, hosts: Sequence[RayHost]) -> list[Any]:
        """Starts a worker on each of these hosts, which takes no processor from agents."""
        kind: Any = ray.remote(runner.AgentRunner)
        options = {"max_restarts": 0, "max_concurrency": CALLS, "num_cpus": 0}

        def started() -> list[Any]:
            pins = [NodeAffinitySchedulingStrategy(host.node, soft=False) for host in hosts]
            return [kind.options(scheduling_strategy=pin, **options).remote() for pin in pins]

        return await in_thread(started, CALL_S)

    async def leave(self) -> None:
        """Gives all room back and leaves; it does not take for ever. It can be called twice."""
        if self._joining is None:
            return
        joining, self._joining = self._joining, None
        # Ray cannot join and leave at once, so the end waits until the cluster is joined.
        await asyncio.wait({joining}, timeout=LEAVE_S)
        if joining.done() and joining.exception() is None:
            with suppress(Exception):
                await in_thread(self._give_back, LEAVE_S)
            with suppress(Exception):
                await in_thread(_depart, LEAVE_S)

    def _give_back(self) -> None:
        while self._groups:
            remove_placement_group(self._groups.pop())


async def answer(call: Any, limit_s: float) -> Any:
    """Returns the result of a call to another host. Raises TimeoutError, or Ray's error."""
    async with asyncio.timeout(limit_s):
        return await asyncio.wrap_future(call.future())


async def in_thread(work: Callable[[], T], limit_s: float) -> T:
    """Makes a blocking call in a thread that does not delay the end of the process. In the main
    thread Ray would take SIGTERM for itself. Raises FleetError if Ray does not answer in time, or
    fails."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    outcome.add_done_callback(lambda done: done.cancelled() or done.exception())

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # Whatever it is belongs to who waits.
            error = raised
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="ray").start()
    await asyncio.wait({outcome}, timeout=limit_s)
    if not outcome.done():
        outcome.cancel()
        raise FleetError(f"the Ray cluster has not answered for {limit_s:.0f} s", LOOK)
    try:
        return outcome.result()
    except RayError as error:
        raise FleetError(f"the Ray cluster cannot be used: {loss_in_words(error)}", LOOK) from error


def _join(address: str) -> None:
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # Ray would write events of the cluster to stdout, whatever `log_to_driver` says.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    global _members
    try:
        with _MEMBERSHIP:
            if not _members:
                ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
            _members += 1
    except Exception as error:  # Ray raises whatever its parts raise.
        raise joining_in_words(address, error) from error
    ray.cloudpickle.register_pickle_by_value(runner)


def _depart() -> None:
    global _members
    with _MEMBERSHIP:
        _members -= 1
        if not _members:
            ray.shutdown()


def _take_signals_back() -> None:
    """Ray's native part puts a handler before those of Python, which prints a stack."""
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler is not None:
            signal.signal(number, handler)
            signal.siginterrupt(number, False)


def _address_here() -> str:
    """Returns the address of the cluster that this host is a part of, from the environment or `ray
    start`."""
    if (named := os.environ.get("RAY_ADDRESS", "auto")) != "auto":
        return named
    try:
        return str(ray._private.services.canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        raise FleetError(
            "found no Ray cluster on this host",
            "ray start --head on one host and ray start --address HEAD:PORT on the others; then "
            "run this on one of them, or name the cluster: --on ray://HOST:PORT",
        ) from error


async def _reach(address: str) -> None:
    """Checks that something listens there: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or f"no answer for {REACH_S:.0f} s"
        text = f"cannot reach the Ray cluster {address}: {reason}"
        hint = "is it the address of its head (GCS), and is Ray started there? ray status shows it"
        raise FleetError(text, hint) from error
    writer.close()


def _nodes() -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    return ray.nodes(), ray._private.state.available_resources_per_node()

"""The bridges of a run: the configuration of each small broker, and the number of bridges that are
up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.contract.plan import PlannedTls as PlanTls
from pubstorm.contract.target import Target
from pubstorm.errors import KeysError, TopologyError
from pubstorm.host.keys.files import read_psk
from pubstorm.host.sockets import LOOPBACK
from pubstorm.plan import planned_tls
from pubstorm.result import BridgeResult
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.topology import Bridge, Broker, Mosquitto
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology.bridge_lines import (
    BridgeAccess,
    Words,
    bridge_lines,
    psk_identity,
    psk_words,
    state_topic,
    tls_version,
    tls_words,
)
from pubstorm.topology.bridges.links import BridgeStates, Links, WatchedBridges
from pubstorm.topology.credentials import RunKeys
from pubstorm.topology.observer import Login, ObserverError

NOWHERE = Target(host="", port=0)
LISTENING_S = 5.0
"""Longest wait until the main broker accepts the observer."""
POLL_S = 0.1
"""Polling interval of the bridges that are up."""
SETTLE_S = 0.5
"""A bridge says that it is up, and only then subscribes; both are sent in one go."""
NAMED_MAX = 5
"""Bridges that are named where some are missing."""
UNKNOWN_HINT = "; a target that is no mosquitto may need try_private: false in their settings"
"""Hint if no bridge comes up."""


@dataclass(frozen=True, slots=True)
class BridgesOutside:
    """Bridges of one name to a target that the run did not start."""

    name: str
    spec: Bridge
    count: int
    target: Target

    def tls(self) -> PlanTls | None:
        """Returns the TLS of a client that connects as the bridges do; None without TLS."""
        own_id = self.spec.client_id or f"{self.name}-{{n}}"
        return planned_tls(self.spec.tls or Tls(), own_id) if self.target.tls else None


@dataclass(slots=True)
class _Bridges:
    """The bridges of one name."""

    name: str
    spec: Bridge
    count: int
    main: Target = NOWHERE
    """Address of the main broker, once it is up."""
    main_host: str = ""
    """On which address bridges find it: their network's, if they live in one."""
    ports: Sequence[int] = ()
    """Ports of the links that they go through instead, one for each bridge; none: they do not."""
    psk_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of an external target, by identity."""
    states: BridgeStates | None = None
    """None if the bridges do not report their state, or no observer can receive it."""
    uncounted: str | None = None
    """Reason why the bridges are not counted; None if they are."""
    up: int | None = None
    up_after_s: float | None = None


class Bridges:
    """All bridges of a run, or of several runs in turn."""

    def __init__(
        self,
        spec: TopologySpec,
        folder: Path,
        keys: RunKeys,
        cut: frozenset[str] = frozenset(),
        targets: Sequence[Target] = (),
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._keys = keys
        self._cut = cut
        self.links = Links()
        """The links of bridges that are cut or delayed."""
        self.links_at = LOOPBACK
        """Address of the links, which all small brokers reach."""
        self.given = {target.name: target for target in reversed(targets)}
        """Main brokers that the run does not start, by name."""
        self._opened_s = 0.0
        self._were_up = False
        brokers = spec.brokers
        self._bridges = {
            name: _Bridges(name, bridge, brokers[bridge.from_].count)
            for name, bridge in spec.bridges.items()
        }

    def is_main(self, group: str) -> bool:
        """Returns True if bridges lead to these brokers, which have to be up first."""
        return any(bridge.to == group for bridge in self._spec.bridges.values())

    async def open(
        self,
        ports: Mapping[str, tuple[str, int]],
        observers: Mapping[str, tuple[str, int]] | None = None,
        inside: Mapping[str, str] | None = None,
    ) -> None:
        """The main brokers are up: begins to listen for their bridges. `ports` says where they are
        by name, `observers` where they are without TLS, if that is elsewhere, and `inside` on
        which address bridges in a network find theirs, by the name of the bridge. Raises
        TopologyError where a bridge cannot receive its options."""
        self._opened_s = time.monotonic()
        for bridges in self._bridges.values():
            to = bridges.spec.to
            bridges.main = self._main(to, ports)
            if bridges.name in self._cut:
                await self._open_links(bridges)
            bridges.main_host = (inside or {}).get(bridges.name, bridges.main.host)
            host, port = (observers or {}).get(to, ports.get(to, (bridges.main.host, 0)))
            if to in self.given:
                bridges.psk_keys = _psk_keys(bridges.spec.tls)
                self._listen(bridges, bridges.main)
            else:
                self._listen(bridges, Target(host=host, port=port))
        for states in self.states():
            await asyncio.to_thread(states.wait_until_listening, LISTENING_S)

    def lines(self, group: str, number: int) -> str:
        """The `connection` sections of a small broker; empty where it has no bridge."""
        return "".join(
            bridge_lines(bridges.name, bridges.spec, number, self._access(bridges, number))
            for bridges in self._bridges.values()
            if bridges.spec.from_ == group
        )

    async def up(self, timeout_s: float, notify: Callable[[str], None] = lambda _: None) -> None:
        """Waits until all bridges that report their state are up, or none came up for `timeout_s`.
        `notify` receives their number, each time that there are more."""
        counted = [bridges for bridges in self._bridges.values() if bridges.states is not None]
        if not counted:
            return
        total = sum(bridges.count for bridges in counted)
        for bridges in counted:
            bridges.up = None
        most, moved_s = -1, time.monotonic()
        while most < total and time.monotonic() - moved_s < timeout_s:
            up = sum(states.up for states in self.states())
            if up > most:
                most, moved_s = up, time.monotonic()
                notify(f"{up} of {total} bridges up")
            for bridges in counted:
                self._see(bridges)
            if up < total:
                await asyncio.sleep(POLL_S)
        self._were_up = True
        await asyncio.sleep(SETTLE_S)

    def missing(self) -> Iterator[str]:
        """In words, which bridges were not up at the end of the wait, or cannot be counted."""
        for bridges in self._bridges.values():
            if bridges.uncounted is not None:
                yield f"bridges {bridges.name} are not counted: {bridges.uncounted}"
            if bridges.states is None or bridges.up == bridges.count:
                continue
            numbers = bridges.states.missing()
            named = ", ".join(f"{bridges.spec.from_}-{n}" for n in numbers[:NAMED_MAX])
            more = ", ..." if len(numbers) > NAMED_MAX else ""
            verb = "is" if len(numbers) == 1 else "are"
            of = f"{len(numbers)} of {bridges.count} bridges {bridges.name} {verb} not up"
            is_unknown = bridges.spec.to in self.given and not bridges.up
            yield f"{of}: {named}{more}{UNKNOWN_HINT if is_unknown else ''}"

    def states(self) -> list[BridgeStates]:
        """States of the bridges of each name that reports them."""
        return [bridges.states for bridges in self._bridges.values() if bridges.states is not None]

    def results(self) -> tuple[BridgeResult, ...]:
        """Returns the bridges for the result."""
        return tuple(
            BridgeResult(
                name=bridges.name,
                main=bridges.spec.to,
                small=bridges.spec.from_,
                bridges=bridges.count,
                up=bridges.up,
                up_after_s=bridges.up_after_s,
            )
            for bridges in self._bridges.values()
        )

    async def close(self) -> None:
        """Ends links and listening. May be called twice."""
        await asyncio.gather(*(asyncio.to_thread(states.stop) for states in self.states()))
        await self.links.stop()

    def outside(self) -> list[BridgesOutside]:
        """Bridges that have led to a target that the run did not start, and may have left something
        there."""
        return [
            BridgesOutside(bridges.name, bridges.spec, bridges.count, bridges.main)
            for bridges in self._bridges.values()
            if bridges.spec.to in self.given and bridges.main is not NOWHERE
        ]

    async def _open_links(self, bridges: _Bridges) -> None:
        """A link for each bridge, which leads to the main broker."""
        await self.links.start(self._folder)
        main = bridges.main
        bridges.ports = await self.links.open(
            bridges.name, (main.host, main.port), bridges.count, self.links_at
        )

    def _main(self, to: str, ports: Mapping[str, tuple[str, int]]) -> Target:
        if to in self.given:
            return self.given[to]
        host, port = ports[to]
        return Target(host=host, port=port)

    def _see(self, bridges: _Bridges) -> None:
        assert bridges.states is not None, "these are counted"
        up = bridges.states.up
        if bridges.up is None or up > bridges.up:
            bridges.up = up
            if not self._were_up:
                bridges.up_after_s = round(time.monotonic() - self._opened_s, 3)

    def _listen(self, bridges: _Bridges, target: Target) -> None:
        """Begins to follow the states of bridges that report them."""
        if not bridges.spec.notifications or bridges.states is not None:
            return
        broker = self._spec.brokers.get(bridges.spec.to)
        watched = WatchedBridges(
            name=bridges.name,
            count=bridges.count,
            topic=state_topic(bridges.name, "+"),
            target=target,
            login=self._observer(bridges),
            is_remembered=_keeps_state(broker),
            is_own=broker is not None,
        )
        states = BridgeStates(watched)
        try:
            states.start()
        except ObserverError as error:
            bridges.uncounted = str(error)
        else:
            bridges.states = states

    def _observer(self, bridges: _Bridges) -> Login:
        """On a broker of the run, its observer; elsewhere, what the first bridge is."""
        if bridges.spec.to not in self.given:
            return self._keys.observer(bridges.spec.to) or Login()
        username, password = self._keys.bridge_login(bridges.name, 0)
        outside = BridgesOutside(bridges.name, bridges.spec, bridges.count, bridges.main)
        return Login.numbered(username, password, outside.tls(), 0)

    def _access(self, bridges: _Bridges, number: int) -> BridgeAccess:
        main = self._spec.brokers.get(bridges.spec.to)
        username, password = self._keys.bridge_login(bridges.name, number)
        host, port = bridges.main_host, bridges.main.port
        if bridges.ports:
            host, port = self.links_at, bridges.ports[number]
        return BridgeAccess(
            host=host,
            port=port,
            username=username,
            password=password,
            tls=self._tls(bridges, number),
            knows_bridges=main is None or main.KNOWS_BRIDGES,
        )

    def _tls(self, bridges: _Bridges, number: int) -> Words:
        spec = bridges.spec
        if spec.to not in self.given:
            return self._keys.bridge_tls(bridges.name, number)
        if not bridges.main.tls:
            return {}
        tls = spec.tls or Tls()
        if tls.psk is None:
            # A certificate names the target, and not the end of the link to it.
            insecure = {"bridge_insecure": True} if bridges.ports else {}
            return {**tls_words(tls, number), **insecure}
        identity = psk_identity(bridges.name, spec, number)
        key = bridges.psk_keys.get(identity)
        if key is None:
            raise TopologyError(
                f"bridges {bridges.name}: found no key for {identity!r} in {tls.psk.file}",
                "pubstorm keys psk makes a file of keys",
            )
        return {**tls_version(tls), **psk_words(identity, key)}


def _psk_keys(tls: Tls | None) -> Mapping[str, str]:
    if tls is None or tls.psk is None:
        return {}
    try:
        return read_psk(tls.psk.file)
    except KeysError as error:
        raise TopologyError(f"keys for bridges: {error.message}", error.hint) from error


def _keeps_state(broker: Broker | None) -> bool:
    """Returns True if the broker of the run keeps messages and sessions over a restart."""
    return isinstance(broker, Mosquitto) and bool(broker.settings.get("persistence"))

"""Bridges between brokers of a run, where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pubstorm.result import BridgeResult
from pubstorm.scenario.topology import Topology as TopologySpec
from pubstorm.topology.keys import RunKeys


class Bridges:
    """The bridges of a topology that has none."""

    def __init__(
        self, spec: TopologySpec, folder: Path, keys: RunKeys, cut: frozenset[str] = frozenset()
    ) -> None:
        del folder, keys, cut
        self._mains = {bridge.to for bridge in spec.bridges.values()}

    def is_main(self, group: str) -> bool:
        """Whether brokers of this name must be up before the others start."""
        return group in self._mains

    def settings(self, group: str) -> Mapping[str, object]:
        """What bridges add to the settings of a main broker."""
        del group
        return {}

    async def open(self, ports: Mapping[str, tuple[str, int]]) -> None:
        """Main brokers are up there."""

    def lines(self, group: str, number: int) -> str:
        """What bridges add to the configuration of a small broker."""
        del group, number
        return ""

    async def up(self, timeout_s: float) -> None:
        """Waits until all are up."""

    def results(self) -> tuple[BridgeResult, ...]:
        """What the result says of them."""
        return ()

    async def close(self) -> None:
        """Ends what they need beside brokers."""

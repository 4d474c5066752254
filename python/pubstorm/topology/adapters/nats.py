"""NATS with its MQTT gateway, which keeps sessions and messages in JetStream, in the broker's
folder. Clients of its own protocol have a port of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pubstorm.host.preflight.need import Appetite
from pubstorm.topology.broker import BrokerProcess


class NatsBroker(BrokerProcess):
    """`nats-server` as a child process."""

    kind: ClassVar[str] = "nats"
    appetite: ClassVar[Appetite] = Appetite(32 * 2**20, 8, threads_per_core=2)
    programs: ClassVar[Sequence[str]] = ("nats-server",)
    instead: ClassVar[str] = ", or use kind: mosquitto"
    states_version: ClassVar[tuple[str, str] | None] = ("--version", r"v(\d\S*)")
    says_taken: ClassVar[str] = "address already in use"

    async def configure(self, program: str) -> Sequence[str]:
        """Writes nats.conf."""
        machine = self.place.machine
        self.port = self.observer_port = self.place.port or await machine.free_port()
        self.other_ports["nats"] = await machine.free_port()
        ours: dict[str, object] = {
            "server_name": json.dumps(self.name),
            "host": json.dumps(self.host),
            "port": self.other_ports["nats"],
            "jetstream.store_dir": json.dumps(str(self.folder.absolute())),
            "mqtt.host": json.dumps(self.host),
            "mqtt.port": self.port,
        }
        if await self.open_websocket():
            ours |= {
                "websocket.host": json.dumps(self.host),
                "websocket.port": self.websocket_port,
                "websocket.no_tls": True,
            }
        path = self.write("nats.conf", configuration(self.place.settings, ours))
        return (program, "-c", str(path))


def configuration(settings: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """The text of nats.conf: the user's settings win but for names, addresses and ports. A dot in a
    key stands for a block."""
    tree: dict[str, object] = {}
    for key, value in {**settings, **ours}.items():
        *blocks, last = key.split(".")
        place = tree
        for block in blocks:
            inner = place.setdefault(block, {})
            assert isinstance(inner, dict), "the scenario's check refuses a key that is a block too"
            place = inner
        place[last] = value
    return "\n".join(_lines(tree)) + "\n"


def _lines(tree: Mapping[str, object], indent: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{indent}{key} {{"
            yield from _lines(value, indent + "  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{key}: {_written(value)}"


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)

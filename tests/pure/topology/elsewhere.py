"""Hosts for tests: deputies as processes of this machine, each with a loopback address of its own.
They run without any installed package."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from pubstorm.fleet.local import LocalSlot
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.deputy.remote import NAME, RemoteMachine, pack
from pubstorm.host.machine import HERE, Machine


class Deputies:
    """A host for each label: 127.0.0.2, 127.0.0.3 and so on."""

    are_here = False
    watched: Collection[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slots: list[LocalSlot] = []
        self.by_label: dict[str, RemoteMachine] = {}

    @property
    def others(self) -> list[RemoteMachine]:
        return list(self.by_label.values())

    async def open(self, wanted: Mapping[str, int]) -> None:
        self.folder.mkdir()
        pack(self.folder / NAME)
        for number, label in enumerate(wanted, 2):
            words = (sys.executable, "-I", "-S", str(self.folder / NAME), str(self.folder), "10")
            slot = LocalSlot(
                AgentCommand(words, f"deputy {label}", 0), self.folder / f"{label}.log"
            )
            self.slots.append(slot)
            self.by_label[label] = RemoteMachine(slot, f"127.0.0.{number}")
            await self.by_label[label].open()

    def machine(self, label: str | None, number: int) -> Machine:  # noqa: ARG002
        return HERE if label is None else self.by_label[label]

    async def close(self) -> None:
        await asyncio.gather(*(machine.close() for machine in self.others))
        await asyncio.gather(*(slot.end() for slot in self.slots))

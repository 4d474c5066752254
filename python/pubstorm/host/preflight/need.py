"""One need of a run: the amount needed, the amount available, and the fix. Fixes are shell lines,
and together a script for the user to read and source: Pubstorm applies none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fix:
    """One setting of the host that repairs one need. Applying it twice does no harm."""

    kind: Literal["sysctl", "ulimit", "address"]
    name: str
    """Name of the kernel's setting, letter of the limit, or name of the interface."""
    value: int | str
    """The needed value, or the addresses with spaces between them."""

    @property
    def line(self) -> str:
        """The command."""
        match self.kind:
            case "sysctl":
                value = f'"{self.value}"' if " " in str(self.value) else self.value
                return f"sysctl -w {self.name}={value}"
            case "ulimit":
                return f"ulimit -{self.name} {self.value}"
            case "address":
                # `ip` takes an address without a length as one of its own.
                add = f"ip address replace $address dev {self.name}"
                return f"for address in {self.value}; do {add}; done"


@dataclass(frozen=True, slots=True)
class Need:
    """One need of a run, the available amount, and the remedy for a lack."""

    what: str
    needed: int
    available: int | None
    """None if unknown, as on the host of a broker elsewhere."""
    unit: str
    command: Fix | None = None
    """The command that repairs it on this host."""
    otherwise: str = ""
    """Another remedy, in words or as an option of `pubstorm`."""
    hint: str = ""
    """A remark for the user, although there is enough."""
    at_most: bool = False
    """True if the host must not have more than that."""

    @property
    def is_met(self) -> bool:
        """True if there is enough, or if the amount is unknown."""
        if self.available is None:
            return True
        return self.available <= self.needed if self.at_most else self.needed <= self.available

    @property
    def fix(self) -> str:
        """The remedies, in words."""
        ways = (self.command.line if self.command else "", self.otherwise)
        return ", or ".join(filter(None, ways))

    def __str__(self) -> str:
        """The amount needed of the amount available."""
        needed = f"{self.what}: {amount_text(self.needed, self.unit)}"
        if self.available is None:
            return needed
        return f"{needed} of {amount_text(self.available, self.unit)}"


def amount_text(number: int, unit: str) -> str:
    """An amount of a need's unit, such as `12 MiB`."""
    if number >= (2**60 if unit == "bytes" else 2**40):
        return "unlimited"
    return f"{number / 2**20:,.0f} MiB" if unit == "bytes" else f"{number:,}"


def script(name: str, needs: Sequence[Need]) -> str:
    """A shell script that repairs what is short for the scenario `name`."""
    short = [need for need in needs if not need.is_met]
    return "\n".join((*_head(name, bool(short)), *_commands(short), *_words(short))) + "\n"


def _head(name: str, short: bool) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"# Shortages of this host for the scenario {name}, as `pubstorm check` found them."
    if not short:
        yield "# Nothing is short."
        return
    yield "# Pubstorm runs none of it. Read it, then source it in the shell that is to start the"
    yield "# run (`. FILE`), or run single lines. It may be sourced again."


def _commands(short: Sequence[Need]) -> Iterator[str]:
    """Each setting once, with the largest value; the kernel's before the shell's."""
    for kind, note in _NOTES.items():
        settings: dict[tuple[str, str], Fix] = {}
        for command in (need.command for need in short):
            if command is None or command.kind != kind:
                continue
            key = command.name, str(command.value) if isinstance(command.value, str) else ""
            known = settings.get(key)
            if known is None or _size(command) > _size(known):
                settings[key] = command
        for setting in settings.values():
            yield ""
            for need in short:
                if need.command and (need.command.kind, need.command.name) == (kind, setting.name):
                    yield f"# {need.what}: {need.needed} needed, {need.available} there"
            yield f"# {note}"
            yield setting.line


def _words(short: Sequence[Need]) -> Iterator[str]:
    """Remedies that are not commands."""
    others = [need for need in short if need.otherwise]
    if others:
        yield ""
        yield "# Not for the shell:"
    for need in others:
        yield f"# - {need.what}: {need.otherwise}"


def _size(command: Fix) -> int:
    return command.value if isinstance(command.value, int) else 0


_NOTES = {
    "sysctl": "Needs root. Holds until the next boot; a line in /etc/sysctl.d/ keeps it.",
    "address": "Needs root. Holds until the next boot or until the interface goes down.",
    "ulimit": "Holds for this shell and what it starts. Above the hard limit it needs root.",
}


@dataclass(frozen=True, slots=True)
class Appetite:
    """The needs of one broker; high estimates for a kind that is not measured."""

    bytes: int
    """Private memory of its own and of the kernel for it."""
    threads: int
    """Threads, beside those for cores."""
    threads_per_core: int = 0
    """Threads for each core."""
    pipes: int = 0
    """Descriptors of Pubstorm for it, beside the one that stands for its process. A broker with
    pipes ends when they are closed; for the others the host needs `setpriv`."""
    client_bytes: int = 35_000
    """Memory for each client, without the kernel's memory for its end of the connection."""


Kinds = Mapping[Appetite, int]
"""Number of brokers that a run starts, by the needs of their kind."""


def broker_bytes(kinds: Kinds) -> int:
    """Memory of all brokers without clients."""
    return sum(kind.bytes * count for kind, count in kinds.items())


def client_bytes(kinds: Kinds) -> int:
    """Memory of a broker for each client, of the kind that needs the most."""
    return max((kind.client_bytes for kind in kinds), default=0)


def broker_threads(kinds: Kinds, cores: int) -> int:
    """Threads of all brokers."""
    return sum(n * (kind.threads + kind.threads_per_core * cores) for kind, n in kinds.items())


def descriptors_for(kinds: Kinds) -> int:
    """Descriptors that Pubstorm itself has for brokers."""
    return sum((1 + kind.pipes) * count for kind, count in kinds.items())

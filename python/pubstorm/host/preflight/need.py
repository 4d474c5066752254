"""One need of a run: the amount needed, the amount available, and the fix."""

from __future__ import annotations

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

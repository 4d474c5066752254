"""One thing that a run needs, what there is of it, and the fix. It knows neither plan nor host."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.preflight.fixes import Fix


@dataclass(frozen=True, slots=True)
class Need:
    """One thing a run needs, what there is of it, and what to do where it is short."""

    what: str
    needed: int
    available: int | None
    """None: nobody here knows, as on the host of a broker elsewhere."""
    unit: str
    command: Fix | None = None
    """What mends it on this host."""
    otherwise: str = ""
    """What helps instead, or else; in words, or as an option of `pubstorm`."""
    hint: str = ""
    """What to know although there is enough."""

    @property
    def is_met(self) -> bool:
        """Whether there is enough, as far as is known."""
        return self.available is None or self.needed <= self.available

    @property
    def fix(self) -> str:
        """What to do where it is short."""
        ways = (self.command.line if self.command else "", self.otherwise)
        return ", or ".join(filter(None, ways))

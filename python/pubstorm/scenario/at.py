"""A value of a scenario file with the path it stands at, as it was written: what is no mapping or
list reads as empty. It knows no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pubstorm.scenario.document import Path

Finding = tuple[Path, str, str | None]
"""Something that is wrong: where, what, and perhaps a hint."""


@dataclass(frozen=True, slots=True)
class At:
    """A value of the file with its path."""

    data: object
    path: Path = ()

    def __getitem__(self, key: str) -> At:
        inner = self.data.get(key) if isinstance(self.data, dict) else None
        return At(inner, (*self.path, key))

    def __contains__(self, key: str) -> bool:
        return isinstance(self.data, dict) and key in self.data

    def entries(self) -> Iterator[At]:
        """What is in a mapping or list."""
        if isinstance(self.data, dict):
            yield from (At(value, (*self.path, key)) for key, value in self.data.items())
        elif isinstance(self.data, (list, tuple)):
            yield from (At(value, (*self.path, n)) for n, value in enumerate(self.data))

    def named(self) -> Iterator[At]:
        """What is in a mapping; nothing of a list."""
        if isinstance(self.data, dict):
            yield from self.entries()

"""What phases are called: the spans that begin with a change of a population. It knows neither
scenario nor plan."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Literal

from pubstorm.units import PartOf


def change_name(
    kind: Literal["add", "remove", "rate"], amount: float | PartOf, population: str
) -> str:
    """What a change is called: `+500 device`, `-50% device`, `2 × device`."""
    match kind:
        case "add":
            return f"+{amount} {population}"
        case "remove":
            return f"-{amount} {population}"
        case "rate":
            return f"{amount:g} × {population}"


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    names = (name if n == 1 else f"{name} ({n})" for n in count(1))
    return next(each for each in names if each not in taken)

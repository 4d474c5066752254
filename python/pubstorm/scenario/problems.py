"""From pydantic's errors to problems in a user's words: what was found, what is allowed, a hint.
It knows the shape of a scenario, and no line.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shape import Shape, shape_of
from pubstorm.units import UnfitError, describe

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from pubstorm.scenario.document import Path


def explain(error: ValidationError) -> list[tuple[Path, str, str | None]]:
    """Each error as path, message and hint."""
    details = error.errors(include_url=False)
    # A list whose only item is wrong counts as empty; the item's own error says more.
    return [_explain(each) for each in details if each["type"] != "too_short" or not each["input"]]


def _explain(details: ErrorDetails) -> tuple[Path, str, str | None]:
    path = tuple(step for step in details["loc"] if step != "[key]")
    found = details["input"]
    match details["type"]:
        case "value_error":
            unfit = details["ctx"]["error"]
            return path, str(unfit), unfit.hint if isinstance(unfit, UnfitError) else None
        case "missing":
            return path, f"found no {path[-1]!r}, which is needed", None
        case "extra_forbidden":
            return _unknown_key(path)
        case "model_type" | "mapping_type" | "dict_type" | "model_attributes_type":
            return path, f"found {describe(found)}, allowed is a mapping", _keys_hint(path)
        case "tuple_type" | "list_type":
            return path, f"found {describe(found)}, allowed is a list", _list_hint(found)
        case "too_short":
            return path, f"found {describe(found)}, allowed is at least one", None
        case _:
            return path, f"found {describe(found)}: {details['msg']}", None


def _unknown_key(path: Path) -> tuple[Path, str, str | None]:
    keys = _shape_at(path[:-1]).keys
    close = get_close_matches(str(path[-1]), keys, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else None
    return path, f"found the unknown key {path[-1]!r}, allowed are {', '.join(keys)}", hint


def _keys_hint(path: Path) -> str | None:
    keys = _shape_at(path).keys
    return f"its keys are {', '.join(keys)}" if keys else None


def _list_hint(found: object) -> str | None:
    return f"write [{found}]" if isinstance(found, str) and len(found) < 40 else None


def _shape_at(path: Path) -> Shape:
    shape = shape_of(Scenario)
    for key in path:
        shape = shape.below(key)
    return shape

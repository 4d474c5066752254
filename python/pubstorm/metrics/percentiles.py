"""Names of percentiles such as `p95` and `p99.99`: those that are allowed, and those that a
scenario names."""

from __future__ import annotations

import re

ALLOWED = "any percentile between p0 and p100 such as .p95 or .p99.99"


def share_of(name: str) -> float | None:
    """The share that a percentile's name means, from 0 to 1; None: it names none."""
    found = _NAME.fullmatch(name)
    share = float(found[1]) / 100 if found else 0.0
    return share or None


def percentiles_in(text: str) -> dict[str, float]:
    """Shares, by name, of the percentiles that the text of a scenario names anywhere: each step of
    a series has the whole text. One too many costs one figure more in the result."""
    found = {name: share_of(name) for name in _NAMES.findall(text)}
    return {name: share for name, share in found.items() if share is not None}


def split_percentile(body: str) -> tuple[str, str] | None:
    """A metric and the percentile that it ends with; None: it ends with none."""
    found = _ENDING.fullmatch(body)
    return (found[1], found[2]) if found and share_of(found[2]) is not None else None


_NUMBER = r"\d{1,2}(?:\.\d{1,4})?"
_NAME = re.compile(rf"p({_NUMBER})", re.ASCII)
_NAMES = re.compile(rf"\.(p{_NUMBER})(?![\w.])", re.ASCII)
_ENDING = re.compile(rf"(.+)\.(p{_NUMBER})", re.ASCII)

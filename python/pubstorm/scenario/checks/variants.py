"""What the variants of a sweep ask of it: names that can be shown, variants to play that are there,
and values that its steps do not set."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.at import Finding
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.sweep import Sweep
from pubstorm.units import describe


def check_variants(sweep: Sweep) -> Iterator[Finding]:
    """That each can be told apart, that those to play are there, and that no value of theirs meets
    one of the steps."""
    for name in sweep.variants:
        if not name.strip() or len(name) > NAME_CHARS_MAX:
            message = f"found the name {describe(name)}, allowed are 1 to {NAME_CHARS_MAX}"
            yield ("sweep", "variants", name), f"{message} characters", None
    for number, name in enumerate(sweep.only):
        if name not in sweep.variants:
            yield ("sweep", "only", number), *unknown("variant", name, tuple(sweep.variants))
    for name, changed in sweep.variants.items():
        for path in changed:
            other = next((varied for varied in sweep.names if _meet(path, varied)), None)
            if other is not None:
                message = f"found {describe(path)}, which the steps vary as {describe(other)}"
                place = ("sweep", "variants", name, path)
                yield place, f"{message}, allowed are other values", None


def _meet(path: str, other: str) -> bool:
    """Whether one of two paths lies on or under the other."""
    steps = list(zip(path.split("."), other.split("."), strict=False))
    return all(one == two for one, two in steps)


NAME_CHARS_MAX = 64
"""Characters of a variant's name."""

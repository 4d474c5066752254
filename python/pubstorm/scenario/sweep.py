"""Sweep: one scenario played many times, with values that vary. The docstrings are the reference
that users read. It says which steps there are and what they are called, and applies no value.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from pubstorm.redact import REDACTED, has_reference, is_secret
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import DocumentError, Path, read_document
from pubstorm.scenario.fields import Duration, SmallCount, StopLine, Text, one_of, text
from pubstorm.units import KINDS, UnfitError

SECOND_NS = 10**9


class Sweep(Part):
    """A series of steps: each is the scenario with some values changed. Give `vary` or `steps`, or
    `variants` alone."""

    vary: Mapping[str, Any] = Field(default_factory=dict)
    """Lists of values by path, such as `populations.device.clients: [500, 1000]`; several paths
    make a grid, the last one varying fastest."""
    steps: tuple[Mapping[str, Any], ...] = ()
    """Instead of `vary`: the steps one by one, each with its values by path, and under `step` its
    name if it is to have one of its own."""
    variants: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Named sets of values by path, such as `{fast: {populations.device.publications.0.rate:
    10/s}}`: each step is played once for each of them, in order. `{}` is a variant too."""
    only: tuple[Text, ...] = ()
    """Which of the variants are played, by name. Default: all."""
    repeat: SmallCount = 1
    """How often each step is played, one time after the other."""
    broker: Annotated[Literal["fresh", "same"], BeforeValidator(one_of("fresh", "same"))] = "fresh"
    """Whether each step has brokers of its own, or all use those started for the first."""
    pause: Duration = 2 * SECOND_NS
    """Wait between two steps."""
    stop_when: tuple[StopLine, ...] = ()
    """What ends the series after a step: `failed`, `invalid`, or a condition as in thresholds that
    the step fulfils, such as `device.lost > 100`. With variants it ends that of the step: the
    others go on."""
    notes: Mapping[str, Text] = Field(default_factory=dict)
    """Free words for steps, by their label such as `clients 500` or their number, for the table."""

    @field_validator("vary", mode="before")
    @classmethod
    def check_vary(cls, value: object) -> object:
        """Keeps every path with a list of at least one value."""
        if value is None:
            return {}
        if isinstance(value, dict):
            for path, values in value.items():
                if not isinstance(values, list) or not values:
                    hint = None if isinstance(values, list | dict) else f"write [{values}]"
                    raise UnfitError(values, f"for {path} is a list of one or more values", hint)
        return value

    @field_validator("variants", mode="before")
    @classmethod
    def check_variants(cls, value: object) -> object:
        """Keeps every variant a mapping, with nothing written as an empty one."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return {name: {} if changed is None else changed for name, changed in value.items()}
        return value

    @field_validator("steps", mode="after")
    @classmethod
    def check_names(cls, steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Keeps every name a text of its own."""
        names = [text(step[NAME]) for step in steps if NAME in step]
        for number, name in enumerate(names):
            if not name or name in names[:number]:
                raise UnfitError(name, "is a name for each step that no other one has")
        return steps

    def variations(self) -> tuple[Variation, ...]:
        """What the steps change, without repeats, in the order of playing."""
        bases = zip(self._changes(), self._places(), self._given(), strict=True)
        return tuple(
            _of_variant(base, name, self.variants[name]) if name is not None else base
            for values, places, given in bases
            for base in [_base(values, places, given or _label(values, self.names))]
            for name in self.played or (None,)
        )

    @property
    def played(self) -> tuple[str, ...]:
        """The variants that are played, in the order of the file."""
        return tuple(name for name in self.variants if not self.only or name in self.only)

    @property
    def names(self) -> dict[str, str]:
        """What each path that the steps vary is called in their labels."""
        return _names([path for change in self._changes() for path in change])

    @property
    def size(self) -> int:
        """How many variations there are, without making them."""
        steps = prod(map(len, self.vary.values())) if self.vary else len(self._listed)
        return steps * max(1, len(self.played))

    @property
    def is_ladder(self) -> bool:
        """Whether the load grows from each step to the next: every value that varies is a quantity
        that never falls. Then the steps up to some point hold and those beyond do not. A grid of
        several paths has no such order, nor has a single step. With variants it is so for each of
        them."""
        changes = self._changes()
        paths = {path for change in changes for path in change}
        rises = all(_rises([change.get(path) for change in changes]) for path in paths)
        differ = all(low != high for low, high in itertools.pairwise(changes))
        return len(changes) > 1 and rises and differ

    def _changes(self) -> list[Mapping[str, Any]]:
        if not self.vary:
            return [_values(step) for step in self._listed]
        grid = itertools.product(*self.vary.values())
        return [dict(zip(self.vary, values, strict=True)) for values in grid]

    def _given(self) -> list[str | None]:
        """The names of the steps; None where one is called by what it changes."""
        if self.vary:
            return [None] * prod(map(len, self.vary.values()))
        return [step.get(NAME) for step in self._listed]

    @property
    def _listed(self) -> tuple[Mapping[str, Any], ...]:
        """The steps one by one; where only variants are given, the scenario as it is written."""
        return self.steps or (({},) if self.variants else ())

    def _places(self) -> list[dict[str, Path]]:
        """Where each value of each variation was written."""
        if not self.vary:
            return [
                {path: ("sweep", "steps", number, path) for path in _values(step)}
                for number, step in enumerate(self._listed)
            ]
        grid = itertools.product(*(range(len(values)) for values in self.vary.values()))
        return [
            {path: ("sweep", "vary", path, n) for path, n in zip(self.vary, place, strict=True)}
            for place in grid
        ]


@dataclass(frozen=True, slots=True)
class Variation:
    """The values of one step."""

    values: Mapping[str, Any]
    """By path of the scenario."""
    places: Mapping[str, Path]
    """Where in the file each was written."""
    label: str
    """They in short, such as `clients 500`, and the variant: `clients 500, fast`."""
    base: str
    """The label without the variant."""
    variant: str | None = None
    """The name of the variant; None where the sweep has none."""

    @property
    def overrides(self) -> dict[str, str]:
        """Each as `PATH=VALUE` for `--set`, by path."""
        return {path: f"{path}={written(value)}" for path, value in self.values.items()}


def written(value: object) -> str:
    """A value as YAML on one line, plain where that reads back as the same."""
    if isinstance(value, str):
        try:
            if value.strip() == value and read_document(value).data == value:
                return value
        except DocumentError:
            pass
    return json.dumps(value, ensure_ascii=False)


def shown(path: str, value: object) -> str:
    """The same, and a mark for a secret."""
    text = written(value)
    return REDACTED if is_secret((path,)) and not has_reference(text) else text


def _base(values: Mapping[str, Any], places: Mapping[str, Path], label: str) -> Variation:
    return Variation(values, places, label, label)


def _of_variant(base: Variation, name: str, changed: Mapping[str, Any]) -> Variation:
    """A step as one variant plays it: its values come after those of the step."""
    places = {path: ("sweep", "variants", name, path) for path in changed}
    return Variation(
        {**base.values, **changed},
        {**base.places, **places},
        name if base.label == AS_WRITTEN else f"{base.label}, {name}",
        base.label,
        name,
    )


def _values(step: Mapping[str, Any]) -> Mapping[str, Any]:
    return {path: value for path, value in step.items() if path != NAME}


def _names(paths: Sequence[str]) -> dict[str, str]:
    """For each path the fewest last words that tell it from the others; a number is no name."""
    names: dict[str, str] = {}
    for path in paths:
        words = path.split(".")
        for length in range(1, len(words) + 1):
            tail = words[-length:]
            others = (p.split(".")[-length:] for p in paths if p != path)
            if not tail[0].isdigit() and tail not in others:
                break
        names[path] = " ".join(tail)
    return names


def _label(values: Mapping[str, Any], names: Mapping[str, str]) -> str:
    parts = (f"{names[path]} {_short(shown(path, value))}" for path, value in values.items())
    return ", ".join(parts) or AS_WRITTEN


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _rises(values: Sequence[object]) -> bool:
    """Whether they are quantities of one kind, none smaller than the one before."""
    for read in KINDS:
        try:
            numbers = [read(value) for value in values]
        except UnfitError:
            continue
        return all(low <= high for low, high in itertools.pairwise(numbers))
    return False


NAME = "step"
"""The key of a step that names it."""
AS_WRITTEN = "as written"
"""The label of a step that changes nothing."""
VALUE_CHARS_MAX = 40
"""Characters of a value in a label."""

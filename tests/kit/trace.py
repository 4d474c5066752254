"""Walks: the functions of the program that handle a marked value, in the order of a traced run.

A function handles a value if one of its arguments or variables is the value, or if its result is
the value, or an object or container with the value as a field or element. The value is known by its
marks: the numbers and texts that it is on its way, in all its units. Numbers match exactly. A text
matches if it is one line and contains a mark. A class can be a form of the value, too.

A function that only passes on a larger object is no stop: a walk is the list of places that have
the value in hand. A function inside a function counts as the outer one. Comprehensions and lambdas
do not count."""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType
from typing import Any

ELEMENTS_MAX = 100
"""Elements of a container that are looked at."""


@dataclass(frozen=True)
class Marks:
    """One value in all the forms that it takes."""

    numbers: tuple[float, ...]
    texts: tuple[str, ...]
    classes: tuple[type, ...] = ()
    """Classes whose objects are a form of the value."""


class Trace:
    """The calls of functions below a folder that handle some values."""

    def __init__(self, folder: Path, marks: Mapping[str, Marks]) -> None:
        """`marks` are those of each walk, by its name."""
        self._folder = f"{folder}/"
        self._bits = {name: 1 << number for number, name in enumerate(marks)}
        self._open = sum(self._bits.values())
        self._numbers: dict[float, int] = {}
        self._texts: list[tuple[re.Pattern[str], re.Pattern[bytes], int]] = []
        self._classes: dict[type, int] = {}
        for name, each in marks.items():
            bit = self._bits[name]
            for number in each.numbers:
                self._numbers[number] = self._numbers.get(number, 0) | bit
            any_of = "|".join(map(re.escape, each.texts))
            self._texts.append((re.compile(any_of), re.compile(any_of.encode()), bit))
            self._classes |= dict.fromkeys(each.classes, bit)
        self._stops: dict[CodeType, str] = {}
        self._events = itertools.count()
        self._entered: dict[int, int] = {}
        self._first: dict[str, dict[str, int]] = {name: {} for name in marks}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Traces this thread, and those that it starts."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def end(self, name: str) -> None:
        """Ends a walk: its value has arrived."""
        self._open &= ~self._bits[name]

    def stops(self, name: str) -> list[str]:
        """Returns the stops of a walk as `file:function`, in the order in which the functions were
        first entered with the value."""
        first = self._first[name]
        return sorted(first, key=first.__getitem__)

    def _on_event(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in {"call", "return"} or not (stop := self._stop_of(frame.f_code)):
            return
        if event == "call":
            self._entered[id(frame)] = next(self._events)
            return
        entered = self._entered.pop(id(frame), 0)
        handled = self._held_by(result, 1)
        for value in frame.f_locals.values():
            handled |= self._held_by(value, 0)
        if handled := handled & self._open:
            for name, bit in self._bits.items():
                if handled & bit:
                    self._first[name].setdefault(stop, entered)
                    self._first[name][stop] = min(self._first[name][stop], entered)

    def _stop_of(self, code: CodeType) -> str:
        """Returns `file:function`; empty for code of others."""
        stop = self._stops.get(code)
        if stop is None:
            stop, file = "", code.co_filename
            if file.startswith(self._folder) and file.endswith(".py") and code.co_name[0] != "<":
                function = code.co_qualname.split(".<locals>")[0]
                stop = f"{file.removeprefix(self._folder)}:{function}"
            self._stops[code] = stop
        return stop

    def _held_by(self, value: Any, depth: int) -> int:
        """Returns the bits of the values that this one is, or has at most `depth` fields below."""
        kind = type(value)
        if kind is int or kind is float:
            return self._numbers.get(value, 0)
        if kind is str:
            lines = "\n" in value[:-1]
            return 0 if lines else sum(bit for text, _, bit in self._texts if text.search(value))
        if kind is bytes:
            lines = b"\n" in value[:-1]
            return 0 if lines else sum(bit for _, text, bit in self._texts if text.search(value))
        bits = self._classes.get(kind, 0)
        if depth or bits:
            below = depth if bits else depth - 1
            found = 0
            for part in _parts(value, kind):
                found |= self._held_by(part, below)
            return found & bits if bits and not depth else found
        return 0


def _parts(value: Any, kind: type) -> Iterable[Any]:
    """Returns the elements of a container, or the fields of an object."""
    if issubclass(kind, (dict, MappingProxyType)):
        return list(itertools.islice(value.values(), ELEMENTS_MAX))
    if issubclass(kind, (list, tuple, set, frozenset)):
        return list(itertools.islice(value, ELEMENTS_MAX))
    if issubclass(kind, type):
        return ()
    fields = getattr(value, "__dict__", None)
    parts = list(fields.values()) if type(fields) is dict else []
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__dict__" and hasattr(value, name):
                parts.append(getattr(value, name))
    return parts

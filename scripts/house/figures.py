"""Figures of the tree, and the values that `tests/house/figures.toml` holds them at.

A figure is its held value, and the growth for which the file names a reason. It is at that value
exactly: growth without a reason is a problem, and so is an improvement that is not written down.
Figures with a `step` are rounded up to a multiple of it, so that not every change touches them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts.house import picture, python_tree, rust_tree

FOLDER = Path("tests/house")
FILE = FOLDER / "figures.toml"
PACKAGE = Path("python/pubstorm")
CRATES = Path("crates")
SUFFIXES = {".py", ".rs"}
STORE = "make house STORE=yes"
LIST = '`make house OF="{}"`'


@dataclass(frozen=True)
class Figure:
    """One figure, and what is allowed."""

    key: str
    """Name in the file."""
    title: str
    now: int
    items: Sequence[str]
    """Files, modules or names that it counts."""
    held: int
    grown: int
    """Growth with a reason."""
    target: int

    @property
    def improved(self) -> int:
        """The held value, if the present value is to be what is allowed."""
        return self.held + self.now - self.allowed

    @property
    def allowed(self) -> int:
        """The value that the figure must have."""
        return self.held + self.grown

    @property
    def problem(self) -> str:
        """The problem of a figure that is not at its allowed value; empty if it is."""
        found = f"{self.title}: {self.now:,}, allowed are {self.allowed:,}"
        if self.now > self.allowed:
            by = self.now - self.allowed
            entry = f'[[growth]] with figure = "{self.key}", by = {by} and a reason'
            return f"{found}: {LIST.format(self.key)} lists them; undo it, or add {entry} to {FILE}"
        if self.now < self.allowed:
            return f"{found}: `{STORE}` writes the improvement down, held = {self.improved}"
        return ""


class Tree:
    """The files of a checkout, as far as figures are about them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def package(self) -> list[python_tree.Module]:
        """The modules of Python."""
        return python_tree.modules(self.root / PACKAGE)

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """Names of several classes of Python, with their number."""
        return python_tree.repeated_classes(self.package)

    @cached_property
    def circles(self) -> Mapping[str, list[list[str]]]:
        """Circles of files in Rust, by crate."""
        return {
            crate.name: found
            for crate in sorted((self.root / CRATES).iterdir())
            if (found := rust_tree.circles(rust_tree.imports(crate / "src")))
        }

    @cached_property
    def types(self) -> Mapping[str, list[str]]:
        """Names of several types of Rust, each with its files."""
        return rust_tree.repeated_types(self.root / CRATES)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text(encoding="utf-8")
            for folder in (PACKAGE, CRATES)
            for path in sorted((self.root / folder).rglob("*"))
            if path.suffix in SUFFIXES
        }

    @property
    def picture(self) -> str:
        """The drawing of the rooms of Python."""
        return picture.picture(python_tree.room_imports(self.package))

    def naming(self, pattern: str, below: list[str], but: list[str]) -> list[str]:
        """Returns the files below some folders, but not below others, that name something."""
        mark = re.compile(pattern)
        return [
            file
            for file, text in self._texts.items()
            if file.startswith(tuple(below)) and not file.startswith(tuple(but))
            if mark.search(text)
        ]


Counted = tuple[int, Sequence[str]]
"""A count, and what it counts."""


def _each(items: Sequence[str]) -> Counted:
    return len(items), items


COUNTED: Mapping[str, Callable[[Tree], Counted]] = {
    "Python files": lambda tree: _each([module.name for module in tree.package]),
    "Python lines": lambda tree: (
        sum(module.lines for module in tree.package),
        [f"{module.name}: {module.lines}" for module in tree.package],
    ),
    "modules with one importer": lambda tree: _each(
        [f"{name} by {by}" for name, by in python_tree.single_importers(tree.package).items()]
    ),
    "class names declared twice or more": lambda tree: _each(list(tree.classes)),
    "Rust type names declared twice or more": lambda tree: _each(
        [f"{name} in {', '.join(files)}" for name, files in tree.types.items()]
    ),
    "Rust files in circles": lambda tree: _each(
        [
            f"{crate}/src/{file}"
            for crate, found in tree.circles.items()
            for circle in found
            for file in circle
        ]
    ),
}


def figures(tree: Tree) -> list[Figure]:
    """Returns the figures that the file holds, in its order."""
    stored = tomllib.loads((tree.root / FILE).read_text(encoding="utf-8"))
    growth: list[dict[str, Any]] = stored.get("growth", [])
    found = []
    for key, title, (count, items), entry in _measured(tree, stored):
        step = entry.get("step", 1)
        now = -(-count // step) * step
        grown = sum(each["by"] for each in growth if each["figure"] == key)
        found.append(Figure(key, title, now, items, entry["held"], grown, entry["target"]))
    return found


def examples(tree: Tree) -> Mapping[str, list[str]]:
    """Returns the files that name the example of each kind of addition."""
    stored = tomllib.loads((tree.root / FILE).read_text(encoding="utf-8"))
    return {
        key: tree.naming(entry["pattern"], entry["below"], entry.get("but", []))
        for key, entry in stored["named"].items()
    }


def _measured(
    tree: Tree, stored: Mapping[str, Any]
) -> Iterator[tuple[str, str, Counted, Mapping[str, Any]]]:
    for key, entry in stored["counted"].items():
        yield key, key, COUNTED[key](tree), entry
    for key, files in examples(tree).items():
        yield key, f"files that name {key}", _each(files), stored["named"][key]
    for key, entry in stored["walks"].items():
        passed = dict.fromkeys(stop.partition(":")[0] for stop in stops(tree.root, key))
        yield key, f"files of the {key} walk", _each(list(passed)), entry


def stops(root: Path, walk: str) -> list[str]:
    """Returns the stops of a walk, each as `file:function`."""
    return walk_file(root, walk).read_text(encoding="utf-8").split()


def walk_file(root: Path, walk: str) -> Path:
    """Returns the file with the stops of a walk."""
    return root / FOLDER / f"{walk}.walk"


def store(root: Path, measured: list[Figure]) -> list[str]:
    """Writes the improvements into the file. Returns a line for each."""
    path = root / FILE
    text, lines = path.read_text(encoding="utf-8"), []
    for each in measured:
        if each.improved < each.held:
            entry = re.compile(rf'^("?{re.escape(each.key)}"? = {{ held = )\d+', re.MULTILINE)
            text = entry.sub(rf"\g<1>{each.improved}", text)
            lines.append(f"{each.title}: held is {each.improved:,}, was {each.held:,}")
    path.write_text(text, encoding="utf-8")
    return lines

"""The Python half: modules, their importers, and names of classes."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = "pubstorm"
LOOSE = "loose"
"""Room of the modules that are in no room."""


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    """Dotted name."""
    room: str
    lines: int
    tree: ast.Module


def modules(package: Path) -> list[Module]:
    """Returns the modules of a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        room = parts[1] if len(parts) > 2 else LOOSE
        found.append(Module(name, room, len(text.splitlines()), ast.parse(text)))
    return found


def rooms(package: list[Module]) -> Mapping[str, tuple[int, int]]:
    """Returns the files and the lines of each room."""
    found: dict[str, tuple[int, int]] = {}
    for module in package:
        files, lines = found.get(module.room, (0, 0))
        found[module.room] = files + 1, lines + module.lines
    return found


def room_imports(package: list[Module]) -> Mapping[str, set[str]]:
    """Returns the imports of each room, named `room/`, and of each module that is in none."""
    rooms = {module.room for module in package}

    def room(name: str) -> str:
        first = name.split(".")[1]
        return f"{first}/" if first in rooms else first

    found: dict[str, set[str]] = {}
    for module in package:
        if "." in module.name:
            ends = {room(name) for name in _imported(module.tree) if name.startswith(f"{ROOT}.")}
            start = room(module.name)
            found.setdefault(start, set()).update(ends - {start, "__version__"})
    return found


def single_importers(package: list[Module]) -> Mapping[str, str]:
    """Returns the modules that exactly one other module imports, each with that one."""
    names = {module.name for module in package}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in package:
        for name in _imported(module.tree):
            # `from package import name` asks for a module, or for an item of the package.
            asked = name if name in names else name.rpartition(".")[0]
            importers[asked].add(module.name)
    return {
        name: next(iter(importers[name])) for name in sorted(names) if len(importers[name]) == 1
    }


def _imported(tree: ast.Module) -> Iterator[str]:
    for statement in _statements(tree.body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yields statements and those inside them. A walk of all nodes takes ten times as long."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from _statements(getattr(statement, part, ()))


def repeated_classes(package: list[Module]) -> Mapping[str, int]:
    """Returns the names that more than one class at the top of a module has, with their number."""
    names = Counter(
        node.name
        for module in package
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}

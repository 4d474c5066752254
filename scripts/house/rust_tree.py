"""The Rust half: which file of a crate names an item of which other, and the circles among them.

An edge leads from a file to the file that declares what it names: in a `use`, or in a path that
begins with `crate`, `super`, `self` or a module below. A name that a module exports again leads to
the file that declares it. From a module to those that it contains there is no edge, and none comes
from code that only test builds have. Such modules have edges among themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Edges = Mapping[str, set[str]]
WORDS = re.compile(r"[A-Za-z_]\w*|::|[{},;*]")
NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|r(#+)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^']+|[^'\\])'", re.DOTALL
)
ONLY_IN_TESTS = re.compile(r"#\[cfg\(test\)\](?!\s*mod \w+;)")
USE = re.compile(r"\buse ([^;]+);")
MOD = re.compile(r"\bmod (\w+)\s*([;{])")
ROOTS = frozenset({"crate", "self", "super"})
DEPTH_MAX = 8
"""Imports of imports that are followed."""
TYPE = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|type) (\w+)", re.MULTILINE)
"""A type at the top of its file. Those inside tests are indented."""
TESTS = "tests.rs"
"""End of the names of files that only test builds have."""
PATH = re.compile(r"(?<![\w:])[a-z_]\w*(?:::\w+)+")


@dataclass
class Module:
    """A module, with its own file or written inside another's."""

    file: str
    parent: Module | None
    children: dict[str, Module] = field(default_factory=dict)
    uses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Path of each imported name."""
    globs: list[tuple[str, ...]] = field(default_factory=list)
    """Paths of `use path::*`."""
    paths: list[tuple[str, ...]] = field(default_factory=list)
    """Other paths in its code."""

    def root(self) -> Module:
        """Returns the module of the crate."""
        return self if self.parent is None else self.parent.root()

    def walk(self) -> Iterator[Module]:
        """Yields the module and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


def imports(source: Path) -> Edges:
    """Returns the edges among the files of a crate, by paths below its folder `src`."""
    edges: dict[str, set[str]] = {}
    for name in ("lib.rs", "main.rs"):
        if (source / name).exists():
            for module in _read(source, source / name, source, None).walk():
                found = {target.file for path in _named(module) if (target := _find(module, path))}
                ends = {end for end in found if not _contains(module.file, end)}
                edges.setdefault(module.file, set()).update(ends)
    return edges


def repeated_types(crates: Path) -> Mapping[str, list[str]]:
    """Returns the names of types that are declared twice or more, each with its files."""
    found: dict[str, list[str]] = {}
    for path in sorted(crates.glob("*/src/**/*.rs")):
        if not path.name.endswith(TESTS):
            for name in TYPE.findall(path.read_text(encoding="utf-8")):
                found.setdefault(name, []).append(str(path.relative_to(crates)))
    return {name: files for name, files in sorted(found.items()) if len(files) > 1}


def _contains(file: str, other: str) -> bool:
    """True if the module of a file contains the module of another one, or is that module."""
    stem = file.removesuffix(".rs").removesuffix("/mod")
    return file == other or stem in {"lib", "main"} or other.startswith(f"{stem}/")


def circles(edges: Edges) -> list[list[str]]:
    """Returns the files that reach each other, by groups, the largest first."""
    reached = {file: _reached(edges, file) for file in edges}
    groups = {
        tuple(sorted(other for other in edges if other in ends and file in reached[other]))
        for file, ends in reached.items()
    }
    return sorted((list(group) for group in groups if len(group) > 1), key=len, reverse=True)


def _reached(edges: Edges, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for file in edges.get(waiting.pop(), ()):
            if file not in found:
                found.add(file)
                waiting.append(file)
    return found


def _read(source: Path, file: Path, folder: Path, parent: Module | None) -> Module:
    """Reads a file, and those of its modules, which lie in a folder."""
    text = _product(NOT_CODE.sub(" ", file.read_text(encoding="utf-8")))
    module = Module(str(file.relative_to(source)), parent)
    _fill(module, text, source, folder)
    return module


def _fill(module: Module, text: str, source: Path, folder: Path) -> None:
    while (found := MOD.search(text)) is not None:
        name, rest = found[1], text[found.end() :]
        if found[2] == "{":
            inside, rest = _closed(rest)
            child = Module(module.file, module)
            _fill(child, inside, source, folder / name)
            module.children[name] = child
        else:
            for file in (folder / f"{name}.rs", folder / name / "mod.rs"):
                if file.exists():
                    module.children[name] = _read(source, file, folder / name, module)
        text = text[: found.start()] + rest
    for words in map(WORDS.findall, USE.findall(text)):
        # A path that begins with `::` leads to another crate.
        for path, name in _tree([] if words[0] == "::" else words, ()):
            if name == "*":
                module.globs.append(path)
            else:
                module.uses[name] = path
    module.paths = [tuple(path.split("::")) for path in PATH.findall(USE.sub("", text))]


def _product(text: str) -> str:
    """Returns the text without items and match arms that only test builds have."""
    while (found := ONLY_IN_TESTS.search(text)) is not None:
        rest = text[found.end() :]
        depth = 0
        for at, letter in enumerate(rest):
            depth += (letter in "({") - (letter in ")}")
            if depth < 0:
                rest = rest[at:]
                break
            if depth == 0 and letter in ";,}":
                rest = rest[at + 1 :]
                break
        text = text[: found.start()] + rest
    return text


def _closed(text: str) -> tuple[str, str]:
    """Returns the text up to the brace that closes a block, and the rest."""
    depth = 1
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[:at], text[at + 1 :]
    return text, ""


def _tree(words: list[str], head: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields path and name of each item of a `use`, and takes its words away."""
    path, name = head, ""
    while words:
        word = words.pop(0)
        if word == "{":
            yield from _tree(words, path)
            name = ""
        elif word in {",", "}"}:
            if name:
                yield path, name
            path, name = head, ""
            if word == "}":
                return
        elif word == "as":
            name = words.pop(0)
        elif word == "*":
            name = "*"
        elif word == "self" and path:
            name = path[-1]
        elif word != "::":
            path, name = (*path, word), word
    if name:
        yield path, name


def _named(module: Module) -> Iterator[tuple[str, ...]]:
    yield from module.uses.values()
    yield from module.globs
    yield from module.paths


def _find(module: Module, path: tuple[str, ...], depth: int = 0) -> Module | None:
    """Returns the module that declares the item of a path; None if it is of another crate."""
    if depth > DEPTH_MAX or not (path[0] in ROOTS or path[0] in _names(module)):
        return None
    here: Module | None = module
    for number, word in enumerate(path):
        if here is None:
            return None
        rest = path[number + 1 :]
        if word == "crate":
            here = here.root()
        elif word == "super":
            here = here.parent
        elif word in here.children:
            here = here.children[word]
        elif word in here.uses:
            return _find(here, (*here.uses[word], *rest), depth + 1)
        elif word != "self":
            targets = (_find(here, path, depth + 1) for path in here.globs)
            known = (target for target in targets if target and word in _names(target))
            again = next(known, None)
            return _find(again, (word, *rest), depth + 1) if again else here
    return here


def _names(module: Module) -> set[str]:
    return {*module.children, *module.uses}

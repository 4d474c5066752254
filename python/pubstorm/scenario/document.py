"""A scenario's text as plain values with the line of each. YAML is bounded in size, depth and
expansion, has no key twice, and means nothing beyond null, true, false, numbers and text.
References to secrets are resolved as it is read, and its stored text has no secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from re import Match
from typing import Any

import yaml

from pubstorm.errors import (
    REDACTED,
    REFERENCE,
    has_reference,
    is_secret,
    may_be_secret,
    without_credentials,
)
from pubstorm.files import content_of

Path = tuple[str | int, ...]
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
        """Yields the values of a mapping or list."""
        if isinstance(self.data, dict):
            yield from (At(value, (*self.path, key)) for key, value in self.data.items())
        elif isinstance(self.data, (list, tuple)):
            yield from (At(value, (*self.path, n)) for n, value in enumerate(self.data))

    def named(self) -> Iterator[At]:
        """Yields the values of a mapping; nothing of a list."""
        if isinstance(self.data, dict):
            yield from self.entries()


class DocumentError(ValueError):
    """The text is no document that a scenario can be read from; `line` counts from 1."""

    def __init__(self, line: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """Plain values, the line of each path, and the keys that were given twice."""

    data: object
    lines: dict[Path, int]
    duplicates: tuple[tuple[Path, int], ...]


def yaml_of(values: Mapping[str, Any]) -> str:
    """Returns the values as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None).rstrip()


def read_document(text: str) -> YamlDocument:
    """Reads one YAML document; raises `DocumentError`."""
    try:
        text.encode()
        _check_size(text)
        root = yaml.compose(text, Loader=Loader)
    except UnicodeEncodeError:
        raise DocumentError(1, "found characters that are not Unicode text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # At the end of the file, the parser's mark lies behind the last line.
        line = 1 if mark is None else min(mark.line, text.count("\n")) + 1
        problem = " ".join(str(part) for part in (error.problem, error.context) if part)
        hint = "indent with spaces, not tabs" if "\\t" in problem else None
        raise DocumentError(line, f"found no valid YAML: {problem}", hint) from None
    except yaml.YAMLError as error:
        summary = str(error).splitlines()[0]
        raise DocumentError(1, f"found no valid YAML: {summary}") from None
    if root is None:
        return YamlDocument(None, {}, ())
    walk = _Walk()
    data = walk.value(root, ())
    return YamlDocument(data, walk.lines, tuple(walk.duplicates))


def _check_size(text: str) -> None:
    """Bounds depth and nodes before the composer, which recurses, sees the text."""
    depth = nodes = 0
    for event in _events(text):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > DEPTH_MAX:
            raise _too_deep(event)
        if nodes > NODES_MAX:
            raise _too_many(event)


def _events(text: str) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=Loader)


@dataclass(slots=True)
class _Walk:
    """Turns nodes into values; an alias is walked again wherever it stands."""

    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int]] = field(default_factory=list)
    nodes: int = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        self.nodes += 1
        if len(path) > DEPTH_MAX:
            raise _too_deep(node)
        if self.nodes > NODES_MAX:
            raise _too_many(node)
        self.lines.setdefault(path, _line(node))
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path)
            case yaml.SequenceNode():
                return [self.value(item, (*path, n)) for n, item in enumerate(node.value)]
            case _:
                return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise DocumentError(_line(key_node), "found a key that is no text")
            key = str(key_node.value)
            if key in mapping:
                self.duplicates.append(((*path, key), _line(key_node)))
            self.lines[(*path, key)] = _line(key_node)
            mapping[key] = self.value(value_node, (*path, key))
        return mapping


def _scalar(node: yaml.Node) -> object:
    text = str(node.value)
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "null":
            return None
        case "bool" if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case "int" if _INTEGER.fullmatch(text):
            return int(text.replace("_", ""))
        case "float" if _FLOAT.fullmatch(text):
            return float(text.replace("_", ""))
        case "str" | "bool" | "int" | "float" | "timestamp" | "merge" | "value":
            return text
        case _:
            raise DocumentError(_line(node), f"found the tag {node.tag}, allowed are plain values")


def _line(node: yaml.Node | yaml.Event) -> int:
    mark = node.start_mark
    return 1 if mark is None else mark.line + 1


def _too_deep(node: yaml.Node | yaml.Event) -> DocumentError:
    return DocumentError(_line(node), f"found deeper nesting than the {DEPTH_MAX} levels allowed")


def _too_many(node: yaml.Node | yaml.Event) -> DocumentError:
    return DocumentError(_line(node), f"found more than the {NODES_MAX} values allowed")


DEPTH_MAX = 20
NODES_MAX = 100_000

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,40})", re.ASCII)
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]{0,40}\.[0-9_]{0,40}(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


SECRET_BYTES_MAX = 65_537
"""Bytes of the longest text of a scenario, and of the line break after it."""
TEMPLATES = ("populations", "topology")
"""Parts of a scenario whose texts are templates, in which braces are written twice."""
NO_TEMPLATES = ("settings", "command", "binary")
"""Keys below them whose texts are none."""


class References:
    """Resolves `${env:NAME}` and `${file:PATH}` in the values of a scenario."""

    def __init__(self, folder: FilePath, *, lenient: bool = False) -> None:
        """`folder`: where relative paths begin. If `lenient`, a stand-in replaces a secret that is
        not there."""
        self.problems: list[tuple[Path, str, str | None]] = []
        """References that lead nowhere: path, message and hint."""
        self.paths: set[Path] = set()
        """Paths of the references."""
        self._folder = folder
        self._lenient = lenient

    def resolved(self, value: object, path: Path = ()) -> object:
        """A value with the secrets in the places of the references. The values of a sweep are
        resolved when a step is read. The commands of faults may have none: a shell reads them."""
        match value:
            case str() if "${" in value and path[-3:-2] != ("faults",):
                return REFERENCE.sub(lambda found: self._secret(found, path), value)
            case dict() if path != ("sweep",):
                return {key: self.resolved(each, (*path, key)) for key, each in value.items()}
            case list():
                return [self.resolved(each, (*path, n)) for n, each in enumerate(value)]
            case _:
                return value

    def _secret(self, found: Match[str], path: Path) -> str:
        self.paths.add(path)
        if found[0].startswith("$$"):
            text = found[0][1:]
        else:
            try:
                text = _read(found["kind"], found["name"], self._folder)
            except (OSError, ValueError) as error:
                text, hint = "redacted", _HINTS[found["kind"]]
                if not self._lenient:
                    self.problems.append((path, f"found {found[0]}: {error}", hint))
        is_template = path[0] in TEMPLATES and not set(path) & {*NO_TEMPLATES}
        return text.replace("{", "{{").replace("}", "}}") if is_template else text


@lru_cache(maxsize=8)
def redacted_text(text: str) -> str:
    """The text of a scenario, or of a value of it, without the secrets that it holds."""
    root = yaml.compose(text, Loader=Loader)
    spans = sorted({*_spans(root, ())}, reverse=True) if root is not None else []
    for start, end in spans:
        anchor = _ANCHOR.match(text[start:end])
        ending = "\n" if text[start:end].endswith("\n") else ""
        words = f'{anchor[0] if anchor else ""}"{REDACTED}"{ending}'
        text = text[:start] + words + text[end:]
    return without_credentials(text)


def redacted_override(override: str) -> str:
    """An override, `PATH=VALUE`, without the secrets that it holds."""
    path, equals, value = override.partition("=")
    if may_be_secret((path,)):
        kept = has_reference(value) or value.strip() in {"true", "false", "null", ""}
        return override if kept else f"{path}={REDACTED}"
    try:
        return f"{path}{equals}{redacted_text(value)}"
    except yaml.YAMLError:
        return without_credentials(override)


def _spans(node: yaml.Node, path: Path) -> Iterator[tuple[int, int]]:
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                yield from _spans(value, (*path, str(key.value)))
        case yaml.SequenceNode():
            for item in node.value:
                yield from _spans(item, path)
        case yaml.ScalarNode() if is_secret(path) and not has_reference(node.value):
            if node.tag.rpartition(":")[2] not in {"bool", "null"}:
                assert node.start_mark is not None and node.end_mark is not None
                yield node.start_mark.index, node.end_mark.index


def _read(kind: str, name: str, folder: FilePath) -> str:
    """Returns the text that a reference leads to. Raises OSError or ValueError if there is none."""
    if kind == "env":
        if name not in os.environ:
            raise ValueError("this environment variable is not set")
        return os.environ[name]
    try:
        content = content_of(folder / name, SECRET_BYTES_MAX, follows_links=True)
    except OSError as error:
        raise ValueError(f"this file cannot be read: {error.strerror}") from error
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("this file is not UTF-8") from None


_ANCHOR = re.compile(r"&\S+\s+")
_HINTS = {
    "env": "export it before, or write ${file:PATH}; $${env:NAME} stands for the text itself",
    "file": "a relative path is from the folder of the scenario file",
}

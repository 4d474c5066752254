"""YAML as plain values with the line of each. Documents are bounded in size, depth and expansion,
have no key twice, and mean nothing beyond null, true, false, numbers and text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

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

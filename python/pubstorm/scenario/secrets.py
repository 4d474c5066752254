"""Secrets of a scenario: references to them, resolved when it is read, and its text without those
that it holds itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path as FilePath
from re import Match

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
from pubstorm.scenario.document import Loader, Path

SECRET_BYTES_MAX = 60_000
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

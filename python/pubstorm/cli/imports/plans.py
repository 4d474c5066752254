"""Files of other tools in XML. A file has no document type, and so no entities of its own, and its
size, its depth and its elements have limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from pubstorm.cli.imports.scenario import RESERVED
from pubstorm.errors import UsageError
from pubstorm.files import content_of

XML_BYTES_MAX = 2**24
"""Largest file that is read."""
DEPTH_MAX = 200
"""Most elements around an element."""
ELEMENTS_MAX = 100_000
"""Most elements of a file."""
NAME_CHARS_MAX = 40


class _Builder(TreeBuilder):
    """Builds the elements of a file. Raises UsageError for a file that is beyond the limits."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._depth = self._number = 0

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Refuses a document type: its entities could stand for anything."""
        del name, pubid, system
        raise UsageError(
            f"found a document type in {self._path}, allowed is XML without <!DOCTYPE>",
            "delete it: neither JMeter nor HiveMQ Swarm writes one",
        )

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        """Opens an element."""
        self._depth += 1
        self._number += 1
        if self._depth > DEPTH_MAX or self._number > ELEMENTS_MAX:
            raise UsageError(
                f"found too many elements in {self._path}, allowed are"
                f" {ELEMENTS_MAX:,}, and {DEPTH_MAX} within each other"
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        """Closes an element."""
        self._depth -= 1
        return super().end(tag)


def read_plan(path: str, root: str) -> Element:
    """Returns the outermost element of a file, which is called `root`. Raises UsageError."""
    parser = XMLParser(target=_Builder(path))
    try:
        parser.feed(content_of(Path(path), XML_BYTES_MAX, follows_links=True))
        found: Element = parser.close()
    except OSError as error:
        raise UsageError(f"found {path}, which cannot be read: {error.strerror}") from error
    except (ParseError, ValueError, LookupError) as error:
        raise UsageError(
            f"found {path}, which is no XML: {error}", f"the file begins with <{root}>"
        ) from error
    if found.tag != root:
        raise UsageError(f"found <{found.tag[:40]}> in {path}, allowed is <{root}>")
    return found


def population_name(text: str, taken: Iterable[str]) -> str:
    """Returns a name for a population that is like a text and not taken yet."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = "-".join(words)[:NAME_CHARS_MAX].strip("-")
    name = name if name[:1].isalpha() and name not in RESERVED else f"clients-{name}".strip("-")
    others, number, unique = set(taken), 2, name
    while unique in others:
        unique, number = f"{name}-{number}", number + 1
    return unique

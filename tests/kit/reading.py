"""Reads a page as a browser would, without one."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self._within: list[str] = []
        self._joins = False
        self._script = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":
            self._joins = True
            return
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        self._within.append(tag)
        if tag == "script":
            self._script = attributes.get("id", "code")

    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._within[-1:] == ["script"]:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        elif "style" not in self._within:
            self.texts.append(self.texts.pop() + data if self._joins else data)
        self._joins = False

    @property
    def text(self) -> str:
        """All that is shown, with single spaces."""
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def figures(self) -> dict[str, Any]:
        """The plots by key."""
        found: dict[str, Any] = json.loads(self.scripts["figures"])
        return found

    def attributes(self, name: str) -> list[str]:
        """Every value that an attribute has in the page."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]

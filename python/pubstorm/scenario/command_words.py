"""Words of a command with values to fill in: `{host}`, `{port}` and `{folder}`, and `{{` and `}}`
for braces."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

COMMAND_VALUES = ("host", "port", "folder")
"""Values that a word may ask for."""
WEBSOCKET_PORT = "websocket_port"
"""One more, of a broker with WebSocket."""


def asked_for(word: str) -> list[str]:
    """The values that a word asks for. Raises ValueError with words where braces do not match."""
    return [field for _, field, _, _ in Formatter().parse(word) if field is not None]


def filled(word: str, values: Mapping[str, str]) -> str:
    """The word with its values."""
    return "".join(
        text + ("" if field is None else values[field])
        for text, field, _, _ in Formatter().parse(word)
    )

"""Secrets: which keys hold them, and what stands in their place wherever a text is stored, printed
or mailed. A reference such as `${env:NAME}` is no secret and stays."""

from __future__ import annotations

import re
from collections.abc import Sequence

REDACTED = "***"
REFERENCE = re.compile(r"\$?\$\{(?P<kind>env|file):(?P<name>[^{}]*)\}")
"""A reference to a secret; with `$$` the text itself is meant."""


def is_secret(path: Sequence[str | int]) -> bool:
    """Returns True if a path of a scenario leads to a secret, by its last key."""
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    return _SECRET.search(key.rpartition(".")[2]) is not None


def has_reference(text: str) -> bool:
    """Returns True if a text refers to a secret instead of holding it."""
    return REFERENCE.search(text) is not None


def without_credentials(text: str) -> str:
    """A text whose URLs name no user and no password."""
    return _CREDENTIALS.sub(
        lambda found: found[0] if has_reference(found[0]) else f"{found[1]}{REDACTED}@", text
    )


_SECRET = re.compile(r"(?i)^(?!.*file$).*(?:password|requirepass|masterauth|secret|token)")
_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]*://)(?!\[\[USER\]:PASSWORD@\])[^\s'\"]*@")
"""Credentials of a URL, but for the form of an address as messages show it."""

"""The error tree: every error that Pubstorm reports instead of a traceback.

PubstormError           exit code 3 unless said otherwise; has a message and, mostly, a hint
├── UsageError          2   wrong arguments, or a path that cannot be used
│   ├── ScenarioError   2   every problem of a scenario, reported together
│   └── KeysError       2   keys or certificates that cannot be made or read
├── BinaryError         3   engine, broker or proxy is not built
├── TopologyError       3   a broker that the run starts does not come up
├── StoreError           3   a Redis cannot be reached, or refuses what it is asked
├── FleetError          3   an agent does not start or breaks the contract
└── StoredRunError      2   a run directory cannot be written or read
    └── OtherFormatError 2  another version of Pubstorm has written it

Errors quote what they found, so the rules for secrets stand here too: which keys hold them, and
what replaces them wherever a text is stored, printed or mailed. A reference such as `${env:NAME}`
is no secret and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


class PubstormError(Exception):
    """Something the user can act on: what was found, and a hint what to do about it."""

    default_exit_code: ClassVar[int] = 3

    def __init__(self, message: str, hint: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = self.default_exit_code if exit_code is None else exit_code


class UsageError(PubstormError):
    """Wrong arguments, or a path that cannot be used."""

    default_exit_code = 2


@dataclass(frozen=True, slots=True)
class ScenarioProblem:
    """One thing wrong with a scenario; `place` is `FILE:LINE` or the `--set` that brought it."""

    place: str
    path: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.place}: {self.path}: " if self.path else f"{self.place}: "
        return f"{where}{self.message}"


class ScenarioError(UsageError):
    """Every problem of a scenario, in the order of the file."""

    def __init__(self, problems: Sequence[ScenarioProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class KeysError(UsageError):
    """Keys or certificates that cannot be made or read, or do not fit."""


class BinaryError(PubstormError):
    """The engine, the embedded broker or the proxy is not built, or not where it was said to be."""


class TopologyError(PubstormError):
    """A broker that the run starts does not come up."""


class StoreError(PubstormError):
    """A Redis cannot be reached, or refuses what it is asked."""


class FleetError(PubstormError):
    """An agent does not start, or breaks the contract."""


class StoredRunError(PubstormError):
    """A run directory cannot be written or read."""

    default_exit_code = 2


class OtherFormatError(StoredRunError):
    """Another version of Pubstorm has written what is stored."""


REDACTED = "***"
REFERENCE = re.compile(r"\$?\$\{(?P<kind>env|file):(?P<name>[^{}]*)\}")
"""A reference to a secret; with `$$` the text itself is meant."""


def is_secret(path: Sequence[str | int]) -> bool:
    """Returns True if a path of a scenario leads to a secret: a header, the data of an
    authentication, or by its last key."""
    steps = [part.strip("\"'") for step in path for part in str(step).split(".")]
    of_connection = "headers" in steps and "publications" not in steps
    if of_connection or steps[-2:] == ["authentication", "data"]:
        return True
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    return _SECRET.search(key.rpartition(".")[2].strip("\"'")) is not None


def has_reference(text: str) -> bool:
    """Returns True if a text refers to a secret instead of holding it."""
    return REFERENCE.search(text) is not None


def without_credentials(text: str) -> str:
    """A text whose URLs name no user and no password."""
    return _CREDENTIALS.sub(
        lambda found: found[0] if has_reference(found[0]) else f"{found[1]}{REDACTED}@", text
    )


def extra_hint(extra: str) -> str:
    """Returns how an extra of Pubstorm is installed."""
    return f"install the wheel of Pubstorm with its extra: pip install 'WHEEL[{extra}]'"


def meant(name: str, known: Iterable[str], otherwise: str, *, least: float = 0.6) -> str:
    """Returns a hint for a name that is not known: the name that is most alike, or `otherwise`.
    `least` is their smallest likeness, from 0 to 1."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=least)
    return f"did you mean {close[0]}?" if close else otherwise


def may_be_secret(path: Sequence[str | int]) -> bool:
    """Returns True if a path leads to a secret, or to a key that is written almost as that of a
    secret."""
    from difflib import get_close_matches

    key = str(path[-1]).rpartition(".")[2].strip("\"'").lower() if path else ""
    return is_secret(path) or bool(get_close_matches(key, _SECRETS, n=1, cutoff=0.75))


_SECRETS = (
    *("password", "passphrase", "passwd", "pwd", "pass", "requirepass", "masterauth", "secret"),
    "token",
)
_SECRET = re.compile(
    r"(?i)^(?!.*file$).*(?:password|passphrase|requirepass|masterauth|secret|token|nkey|jwt)"
)
_CREDENTIALS = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,20}:/{1,2})"
    r"(?!\[\[USER\]:PASSWORD@\])"
    r"(?:[^\s/@'\":]{0,200}:(?!\d{1,5}(?:[\s,;:)/'\"]|$))[^\n]{0,200}?@"
    r"(?=[\w\[][\w.:\[\]-]{0,300}(?:[\s/'\",;)]|$))"
    r"|(?<=//)[^\s'\"]{0,2000}@)"
)
"""Credentials of a URL, but for the form of an address as messages show it. A password may have
blanks and quotes, and the URL one slash, as a path of a file has it. A port has no `@` after it."""

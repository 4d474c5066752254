"""Files of keys: only the owner reads private ones, no file is overwritten without a request, and
no file is incomplete. Pre-shared keys: lines `identity:key`, the key in hexadecimal, as mosquitto
and the engine read them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import KeysError
from pubstorm.files import content_of

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644
FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is to be written."""

    path: Path
    content: bytes
    private: bool = True
    """True if only its owner may read it."""


def write_files(files: Sequence[NewFile], *, force: bool = False) -> None:
    """Writes all of them, or raises KeysError: none if one exists already, unless `force`."""
    twice = [path for path, times in Counter(file.path for file in files).items() if times > 1]
    if twice:
        raise KeysError(f"{twice[0]} would be written twice", "each client needs its own: use {n}")
    there = [] if force else [file.path for file in files if os.path.lexists(file.path)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise KeysError(f"{there[0]}{more} would be overwritten", "use --force to replace keys")
    for folder in dict.fromkeys(file.path.parent for file in files):
        _make_folder(folder)
    for file in files:
        _write(file)


def read_file(path: str | Path) -> bytes:
    """The content of a file. Raises KeysError if it cannot be read."""
    try:
        return content_of(Path(path), follows_links=True)
    except FileNotFoundError as error:
        raise KeysError(f"found no file {path}", PATH_HINT) from error
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}", PATH_HINT) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise KeysError(f"cannot make the folder {folder}: {error.strerror}") from error


def _write(file: NewFile) -> None:
    mode = PRIVATE_MODE if file.private else PUBLIC_MODE
    temporary = file.path.with_name(f".{file.path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
        temporary.replace(file.path)
    except OSError as error:
        raise KeysError(f"cannot write {file.path}: {error.strerror}") from error


PATH_HINT = "a relative path is from the folder of the scenario file; pubstorm keys makes keys"


KEY_BYTES = 32
"""Of a new key: as strong as the strongest cipher."""
KEY_BYTES_MAX = 512
IDENTITY_BYTES_MAX = 256
"""OpenSSL's bounds."""


def new_keys(identities: Iterable[str]) -> dict[str, str]:
    """A new random key for each identity."""
    keys: dict[str, str] = {}
    for identity in identities:
        _require_fit(identity)
        if identity in keys:
            hint = "each client needs its own: use {n}"
            raise KeysError(f"found the identity {identity!r} more than once", hint)
        keys[identity] = _new_key()
    return keys


def psk_text(keys: Iterable[tuple[str, str]]) -> bytes:
    """The text of a file of these identities and keys."""
    return "".join(f"{identity}:{key}\n" for identity, key in keys).encode()


def read_psk(path: str | Path) -> dict[str, str]:
    """The keys of a file by identity, in its order; KeysError names the line that is wrong."""
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise KeysError(f"found bytes in {path} that are not UTF-8", LINE_HINT) from error
    keys: dict[str, str] = {}
    for number, line in _lines(text):
        identity, colon, key = line.partition(":")
        key = key.strip()
        wrong = _what_is_wrong(identity, colon, key)
        if wrong is None and identity in keys:
            wrong = f"the identity {identity!r} a second time"
        if wrong is not None:
            raise KeysError(f"{path}:{number}: found {wrong}", LINE_HINT)
        keys[identity] = key
    if not keys:
        raise KeysError(f"found no key in {path}", LINE_HINT)
    return keys


def shares(clients: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    """The clients of a population for each of `count` agents: client c belongs to agent c %
    count."""
    return tuple(tuple(clients[index::count]) for index in range(count))


def _new_key() -> str:
    """Without a leading zero byte, which older mosquittos drop as they read a key as a number."""
    return f"{1 + secrets.randbelow(255):02x}{secrets.token_hex(KEY_BYTES - 1)}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.removesuffix("\r")
        if bare.strip() and not bare.startswith("#"):
            yield number, bare


def _what_is_wrong(identity: str, colon: str, key: str) -> str | None:
    if not colon:
        return "a line without a colon"
    if not identity:
        return "a line without an identity"
    if len(identity.encode()) > IDENTITY_BYTES_MAX:
        return f"an identity of more than {IDENTITY_BYTES_MAX} bytes"
    if not key:
        return f"no key for {identity!r}"
    if not set(key) <= HEXADECIMAL or len(key) % 2:
        return f"a key of {identity!r} that is not in pairs of hexadecimal digits"
    if len(key) > 2 * KEY_BYTES_MAX:
        return f"a key of {identity!r} of more than {KEY_BYTES_MAX} bytes"
    return None


def _require_fit(identity: str) -> None:
    wrong = next((word for sign, word in FORBIDDEN.items() if sign in identity), None)
    if wrong or not identity or identity.startswith("#"):
        found = f"found {wrong or 'no identity or one with # in front'} in {identity!r}"
        raise KeysError(found, "a line of a key file is identity:key")
    if len(identity.encode()) > IDENTITY_BYTES_MAX:
        raise KeysError(
            f"found the identity {identity[:20]!r}… of {len(identity.encode())} bytes, allowed are "
            f"{IDENTITY_BYTES_MAX}"
        )


HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
FORBIDDEN = {":": "a colon", "\n": "a line break", "\r": "a line break", "\0": "a NUL"}
LINE_HINT = "a line is identity:key, the key in hexadecimal; pubstorm keys psk makes such a file"

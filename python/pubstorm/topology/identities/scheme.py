"""Schemes: the places in Redis at which a broker looks for users and rights, as keys, fields and
values with `{user}`, `{topic}` and so on in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from string import Formatter

from pydantic import ConfigDict, ValidationError

from pubstorm.contract.value import Value
from pubstorm.errors import UsageError
from pubstorm.files import text_of
from pubstorm.scenario.document import DocumentError, read_document
from pubstorm.topology.identities.accounts import Access, Account

Hash = tuple[str, Mapping[str, str]]
"""A key of Redis and the fields that it is to have."""


class UserKeys(Value):
    """Place of a user: one hash for each."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    key: str
    """The key, with `{user}` in it."""
    fields: dict[str, str]
    """Fields and values, which may have `{user}`, `{password}`, `{salt}` and `{hash}`: the SHA-256
    of salt and password in hexadecimal."""


class RightKeys(Value):
    """Place of rights: one hash for each user, with one field for each topic filter."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    key: str
    """The key, with `{user}` in it."""
    field: str = "{topic}"
    """The field, with `{topic}` in it."""
    value: str = "{access}"
    """The value, with `{access}` in it."""
    access: dict[Access, str]
    """Values of `{access}` for `publish`, `subscribe` and `both`."""


class Scheme(Value):
    """Places of users and rights."""

    user: UserKeys
    acl: RightKeys

    def hashes(self, account: Account) -> tuple[Hash, ...]:
        """Yields the entries of an account."""
        texts = self._texts
        names = {"user": account.user, "password": account.password}
        if texts.has_salt:
            names["salt"] = salt_of(account.user)
            names["hash"] = hashlib.sha256((names["salt"] + account.password).encode()).hexdigest()
        fields = {name: text(names) for name, text in texts.fields}
        user = texts.user_key(names), fields
        if not account.rights:
            return (user,)
        rights = {
            texts.field(topic=topic): texts.values[access]
            for topic, access in account.rights.items()
        }
        return user, (texts.acl_key(names), rights)

    @cached_property
    def _texts(self) -> _Texts:
        user, acl = self.user, self.acl
        return _Texts(
            user_key=user.key.format_map,
            fields=tuple((name, text.format_map) for name, text in user.fields.items()),
            has_salt=any("{salt}" in text or "{hash}" in text for text in user.fields.values()),
            acl_key=acl.key.format_map,
            field=acl.field.format,
            values={access: acl.value.format(access=word) for access, word in acl.access.items()},
        )


@dataclass(frozen=True, slots=True)
class _Texts:
    """A scheme ready to be filled in for a million users."""

    user_key: Callable[[Mapping[str, str]], str]
    fields: tuple[tuple[str, Callable[[Mapping[str, str]], str]], ...]
    has_salt: bool
    acl_key: Callable[[Mapping[str, str]], str]
    field: Callable[..., str]
    values: Mapping[Access, str]


def salt_of(user: str) -> str:
    """A user's salt. It follows from the name, so that what is written can be read back and
    compared."""
    return hashlib.sha256(f"pubstorm {user}".encode()).hexdigest()[:SALT_CHARS]


def scheme_of(name: str) -> Scheme:
    """A scheme by its name, or out of a YAML file; raises UsageError."""
    if name in SCHEMES:
        return SCHEMES[name]
    path = Path(name)
    if not path.is_file():
        known = " and ".join(SCHEMES)
        raise UsageError(f"found no scheme {name}, allowed are {known} or a YAML file", SCHEME_HINT)
    try:
        data = read_document(text_of(path, follows_links=True)).data
        scheme = Scheme.model_validate(data)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read the scheme {path}: {reason}") from error
    except DocumentError as error:
        raise UsageError(f"{path}:{error.line}: {error}", error.hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {place}: {first['msg'].lower()}", SCHEME_HINT) from error
    _check(scheme, path)
    return scheme


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of a scheme: where it stands, what it may have in it and what it has to have."""

    place: str
    text: str
    allowed: tuple[str, ...]
    needed: str = ""


def _check(scheme: Scheme, path: Path) -> None:
    """Raises UsageError where a text has something else in braces, or lacks what distinguishes
    users or topics."""
    of_users = partial(_Text, allowed=("user", "password", "salt", "hash"))
    texts = [
        _Text("user.key", scheme.user.key, ("user",), "user"),
        *(of_users(f"user.fields.{name}", text) for name, text in scheme.user.fields.items()),
        _Text("acl.key", scheme.acl.key, ("user",), "user"),
        _Text("acl.field", scheme.acl.field, ("topic",), "topic"),
        _Text("acl.value", scheme.acl.value, ("access",)),
    ]
    for each in texts:
        words = " and ".join(f"{{{word}}}" for word in each.allowed)
        try:
            parts = list(Formatter().parse(each.text))
        except ValueError as error:
            found = f"{path}: {each.place}: found {each.text!r}, allowed is text with {words}"
            raise UsageError(found, "write {{ and }} for braces") from error
        used = {word for _, word, _, _ in parts if word is not None}
        plain = all(not form and convert is None for _, word, form, convert in parts if word)
        if not used <= {*each.allowed} or not plain:
            found = f"{path}: {each.place}: found {each.text!r}, allowed are {words}"
            raise UsageError(found, "write {{ and }} for braces")
        if each.needed and each.needed not in used:
            found = f"{path}: {each.place}: found {each.text!r}, needed is {{{each.needed}}} in it"
            raise UsageError(found)
    if missing := [access.value for access in Access if access not in scheme.acl.access]:
        found = f"{path}: acl.access: found nothing for {', '.join(missing)}"
        raise UsageError(found, SCHEME_HINT)


SALT_CHARS = 16
SCHEME_HINT = 'the page "users" of the guide shows a scheme'

SCHEMES: Mapping[str, Scheme] = {
    # EMQ 2 to 4: the password as it is; 1 subscribe, 2 publish, 3 both.
    "emqx": Scheme(
        user=UserKeys(key="mqtt_user:{user}", fields={"password": "{password}"}),
        acl=RightKeys(key="mqtt_acl:{user}", access=dict.fromkeys(Access, "3")),
    ),
    # EMQX 5, with password_hash_algorithm {name = sha256, salt_position = prefix}.
    "emqx5": Scheme(
        user=UserKeys(
            key="mqtt_user:{user}",
            fields={"password_hash": "{hash}", "salt": "{salt}", "is_superuser": "0"},
        ),
        acl=RightKeys(
            key="mqtt_acl:{user}",
            access={
                Access.PUBLISH: "publish",
                Access.SUBSCRIBE: "subscribe",
                Access.BOTH: "all",
            },
        ),
    ),
}

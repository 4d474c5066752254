"""Accounts: users and passwords of the clients of a population, and the topics that they use, from
the templates of the plan. Schemes: the places in Redis at which a broker looks for users and
rights, as keys, fields and values with `{user}`, `{topic}` and so on in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from itertools import combinations, pairwise
from pathlib import Path
from string import Formatter

from pydantic import ConfigDict, ValidationError

from pubstorm.contract import Value
from pubstorm.contract.offered_load import template_of
from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.template import VARIED, Template, VariableKind
from pubstorm.errors import UsageError
from pubstorm.files import text_of
from pubstorm.scenario.document import DocumentError, read_document


class Access(Enum):
    """Right of a user to a topic."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Account:
    """One user."""

    user: str
    password: str
    rights: Mapping[str, Access]
    """Rights of the user, by topic filter."""


@dataclass(frozen=True)
class Accounts:
    """Accounts from the same templates, one for each client, in the order of their numbers."""

    population: str
    """Name of the population; several names where its users are clients of several."""
    count: int
    """Number of accounts; one if all clients are the same user with the same topics."""
    first: int
    """Number `{n}` of the first."""
    username: Template
    password: Template
    rights: tuple[tuple[Template, Access], ...]
    """Templates of topic filters, each once."""

    @classmethod
    def of(cls, population: PlannedPopulation) -> Accounts:
        """Returns the accounts of a population with user names and passwords."""
        username = template_of(population, str(population.username))
        password = template_of(population, str(population.password))
        rights = tuple(_rights(population))
        templates = (username, password, *(template for template, _ in rights))
        # A range makes many rows of one and the same client.
        differs = any(v.kind not in VARIED for template in templates for v in template.variables)
        count = population.clients if differs else min(population.clients, 1)
        first = population.first if differs else 0
        return cls(population.name, count, first, username, password, rights)

    @property
    def end(self) -> int:
        """Number after that of the last client."""
        return self.first + self.count

    @cached_property
    def rows_each(self) -> int:
        """Rows of one account: the user, and one for each topic filter."""
        return 1 + sum(template.variants for template, _ in self.rights)

    @property
    def rows(self) -> int:
        """Rows of all of them."""
        return self.count * self.rows_each

    def at(self, index: int) -> Account:
        """The account of one client."""
        n = self.first + index
        username, password, topics = self._texts
        rights: dict[str, Access] = {}
        for text, variant, access in topics:
            topic = text(n, variant)
            rights[topic] = _joined(rights[topic], access) if topic in rights else access
        return Account(username(n, 0), password(n, 0), rights)

    @cached_property
    def _texts(self) -> tuple[_Rendered, _Rendered, Sequence[tuple[_Rendered, int, Access]]]:
        """User name, password and topics, the latter with the number of a value of the range."""
        topics = [
            (_text_of(template), variant, access)
            for template, access in self.rights
            for variant in range(template.variants)
        ]
        return _text_of(self.username), _text_of(self.password), topics

    @property
    def description(self) -> tuple[object, ...]:
        """All that they depend on."""
        rights = [(template.source, access.value) for template, access in self.rights]
        who = self.username.source, self.password.source
        templates = (self.username, self.password, *(template for template, _ in self.rights))
        files = {t.rows.file.digest: t.rows.first for t in templates if t.rows is not None}
        return (self.population, self.count, self.first, *who, rights, *files.items())


def accounts_of(
    populations: Sequence[PlannedPopulation], names: Collection[str] | None = None
) -> tuple[Accounts, ...]:
    """The accounts of all populations that have user names, or of those of some names alone, each
    user once with the rights of all populations that it is in. Raises UsageError where none has,
    where a password is missing, or where one user would have two."""
    if names is not None:
        populations = [each for each in populations if (each.whole or each.name) in names]
    named = [population for population in populations if population.username is not None]
    if not named:
        names = ", ".join(dict.fromkeys(population.name for population in populations))
        raise UsageError(
            f"found no user names in the populations {names}, needed is one with username",
            'for example username: "device-{n}" and password: "secret-{n}"',
        )
    for population in named:
        if population.password is None:
            raise UsageError(
                f"found user names of population {population.name} without passwords",
                'write password: "secret-{n}" beside username',
            )
    found = tuple(dict.fromkeys(map(Accounts.of, named)))
    for one, other in combinations(found, 2):
        if _contradict(one, other):
            raise UsageError(
                f"found two passwords for users of the populations {one.population} and "
                f"{other.population}, allowed is one for each user",
                "give one of them other user names, or name the population whose users are to be "
                "written",
            )
    return tuple(_each_once(found))


def digest(*parts: object) -> str:
    """A name for what is written, the same for the same users in the same scheme."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGEST_CHARS]


def _each_once(found: Sequence[Accounts]) -> Iterator[Accounts]:
    """The same users without repeats, as far as their templates say it: ranges of numbers that do
    not overlap, each with the rights of all whose range it lies in."""
    by_login: dict[tuple[Template, Template], list[Accounts]] = {}
    for each in found:
        by_login.setdefault((each.username, each.password), []).append(each)
    for same in by_login.values():
        parts: list[Accounts] = []
        bounds = sorted({bound for each in same for bound in (each.first, each.end)})
        for first, end in pairwise(bounds):
            there = [each for each in same if each.first <= first and end <= each.end]
            if not there:
                continue
            part = _together(there, first, end)
            if parts and parts[-1].end == first and set(parts[-1].rights) == set(part.rights):
                part = _together([parts[-1], part], parts.pop().first, end)
            parts.append(part)
        yield from parts


def _together(there: Sequence[Accounts], first: int, end: int) -> Accounts:
    """One range of users, with what they may do in any of the populations."""
    rights: dict[Template, Access] = {}
    for template, access in (right for each in there for right in each.rights):
        rights[template] = _joined(rights.get(template), access)
    names = (name for each in there for name in each.population.split(", "))
    return replace(
        there[0],
        population=", ".join(dict.fromkeys(names)),
        first=first,
        count=end - first,
        rights=tuple(rights.items()),
    )


def _rights(population: PlannedPopulation) -> Iterator[tuple[Template, Access]]:
    """Yields the topics that the clients use, each template once."""
    rights: dict[str, Access] = {}
    published = [publication.topic for publication in population.publications]
    if population.will is not None:
        published.append(population.will.topic)
    for topic in published:
        rights[topic] = Access.PUBLISH
    for subscription in population.subscriptions:
        rights[subscription.filter] = _joined(rights.get(subscription.filter), Access.SUBSCRIBE)
    for source, access in rights.items():
        yield template_of(population, source), access


def _text_of(template: Template) -> _Rendered:
    """Returns a function that fills a template in for a client's number and a value of its range. A
    template with `{n}` alone takes a quarter of the time, which counts with a million users."""
    parts = template.parts
    if any(not isinstance(part, str) and part.kind is not VariableKind.NUMBER for part in parts):
        return template.text
    pattern = "".join(
        part.replace("%", "%%") if isinstance(part, str) else "%(n)d" for part in parts
    )
    return lambda n, _: pattern % {"n": n}


def _joined(one: Access | None, other: Access) -> Access:
    return other if one in (None, other) else Access.BOTH


def _contradict(one: Accounts, other: Accounts) -> bool:
    """Returns True if clients of both are surely the same users with different passwords."""
    overlap = one.first < other.first + other.count and other.first < one.first + one.count
    return overlap and one.username == other.username and one.password != other.password


DIGEST_CHARS = 16
_Rendered = Callable[[int, int], str]


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

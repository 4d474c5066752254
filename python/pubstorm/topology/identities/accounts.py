"""Accounts: users and passwords of the clients of a population, and the topics that they use, from
the templates of the plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import combinations, pairwise

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.template import VARIED, Template, VariableKind
from pubstorm.contract.texts import template_of
from pubstorm.errors import UsageError


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

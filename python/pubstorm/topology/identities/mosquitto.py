"""Users and rights as mosquitto reads them: a file of passwords and one of rights, both complete or
absent. The lines of every user follow from the scenario, except for the salt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import UsageError
from pubstorm.host.keys.files import PRIVATE_MODE
from pubstorm.topology.adapters.mosquitto import hashed, is_password
from pubstorm.topology.identities.accounts import Access, Account, Accounts, digest
from pubstorm.topology.identities.seeding import Meter, SeedVerification

PASSWORDS, RIGHTS = "passwords", "acl"
WORDS: Mapping[Access, str] = {
    Access.PUBLISH: "write",
    Access.SUBSCRIBE: "read",
    Access.BOTH: "readwrite",
}
HEAD = "# written by pubstorm seed: "
"""First line of both files; the digest of what is written follows."""


@dataclass(frozen=True)
class MosquittoFiles:
    """The files of a scenario's users in one folder."""

    folder: Path
    accounts: Sequence[Accounts]

    @property
    def paths(self) -> tuple[Path, Path]:
        """The file of passwords and that of rights."""
        return self.folder / PASSWORDS, self.folder / RIGHTS

    def write(self, meter: Meter, *, replace: bool) -> None:
        """Writes both; raises UsageError if one exists already, unless they are to be
        replaced, or if a name is not allowed in them."""
        there = [path for path in self.paths if path.exists()]
        if there and not replace:
            raise UsageError(f"found {there[0]} already", "--restart writes it anew")
        new = [path.with_name(f".{path.name}.new") for path in self.paths]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in new:
                path.unlink(missing_ok=True)
                path.touch(mode=PRIVATE_MODE)
            self._fill(new[0], new[1], meter)
            for path, target in zip(new, self.paths, strict=True):
                path.replace(target)
        except OSError as error:
            raise UsageError(f"cannot write into {self.folder}: {error.strerror}") from error
        finally:
            for path in new:
                with contextlib.suppress(OSError):
                    path.unlink()

    def verify(self, meter: Meter) -> SeedVerification:
        """Reads both files and compares them."""
        passwords, rights = self.paths
        hashes = dict(_pairs(passwords))
        granted: dict[tuple[str, str], str] = {}
        user = ""
        for word, rest in _words(rights):
            if word == "user":
                user = rest
            elif word == "topic":
                access, _, topic = rest.partition(" ")
                granted[user, topic] = access
        findings = SeedVerification()
        for accounts in self.accounts:
            for index in range(accounts.count):
                _compare(accounts.at(index), hashes, granted, findings)
                findings.rows += accounts.rows_each
                meter.advance(accounts.rows_each)
        return findings

    def remove(self) -> int:
        """Deletes them, if they are those of these users; how many there were."""
        there = [path for path in self.paths if path.exists()]
        for path in there:
            try:
                with path.open(encoding="utf-8", errors="replace") as stream:
                    first = stream.readline()
            except OSError as error:
                raise UsageError(f"cannot read {path}: {error.strerror}") from error
            if first != self._head:
                hint = "delete it yourself if it is not needed"
                raise UsageError(f"found {path}, which has not been written for these users", hint)
        for path in there:
            path.unlink(missing_ok=True)
        return len(there)

    def _fill(self, passwords: Path, rights: Path, meter: Meter) -> None:
        seen: set[str] = set()
        with (
            passwords.open("w", encoding="utf-8") as users,
            rights.open("w", encoding="utf-8") as acl,
        ):
            users.write(self._head)
            acl.write(self._head)
            for accounts in self.accounts:
                for index in range(accounts.count):
                    account = accounts.at(index)
                    _check_lines(account)
                    if account.user not in seen:
                        seen.add(account.user)
                        users.write(f"{account.user}:{hashed(account.password)}\n")
                    acl.write(f"user {account.user}\n")
                    for topic, access in account.rights.items():
                        acl.write(f"topic {WORDS[access]} {topic}\n")
                    meter.advance(accounts.rows_each)

    @property
    def _head(self) -> str:
        return f"{HEAD}{digest([accounts.description for accounts in self.accounts])}\n"


def _check_lines(account: Account) -> None:
    for text in (account.user, *account.rights):
        if "\n" in text or "\r" in text or text != text.strip():
            raise UsageError(f"found {text!r}, which mosquitto's files have no way to write")
    if ":" in account.user or account.user.startswith("#"):
        found = f"found the user name {account.user!r}, allowed is one without : and # before it"
        raise UsageError(found, "these have a meaning in mosquitto's file of passwords")


def _compare(
    account: Account,
    hashes: Mapping[str, str],
    granted: Mapping[tuple[str, str], str],
    findings: SeedVerification,
) -> None:
    user = account.user
    if user not in hashes:
        findings.add("missing", PASSWORDS, [user])
    elif not is_password(account.password, hashes[user]):
        findings.add("wrong", PASSWORDS, [user])
    for topic, access in account.rights.items():
        found = granted.get((user, topic))
        if found != WORDS[access]:
            findings.add("wrong" if found else "missing", RIGHTS, [f"{user} {topic}"])


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for line in _lines(path):
        user, _, word = line.partition(":")
        yield user, word


def _words(path: Path) -> Iterator[tuple[str, str]]:
    for line in _lines(path):
        word, _, rest = line.partition(" ")
        yield word, rest


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file that say something; none where it is not there."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from (line.rstrip("\n") for line in stream if line[:1] not in "#\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error

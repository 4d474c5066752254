"""Keys, fields and values of the schemes, and what a user's own may be."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pubstorm.errors import UsageError
from pubstorm.topology.identities.accounts import SCHEMES, Access, Account, salt_of, scheme_of

RIGHTS = {"up/{a}": Access.PUBLISH, "down/#": Access.SUBSCRIBE, "x": Access.BOTH}
ACCOUNT = Account("d{1}", "s%3", RIGHTS)
OWN = """\
user:
  key: "users/{user}"
  fields: {secret: "{password}", name: "<{user}>", level: 1}
acl:
  key: "rights/{user}"
  field: "topic:{topic}"
  value: "may {access}"
  access: {publish: 2, subscribe: 1, both: 3}
"""


def test_emqx_has_a_plain_password_and_the_access_3() -> None:
    assert SCHEMES["emqx"].hashes(ACCOUNT) == (
        ("mqtt_user:d{1}", {"password": "s%3"}),
        ("mqtt_acl:d{1}", {"up/{a}": "3", "down/#": "3", "x": "3"}),
    )


def test_emqx5_has_a_salted_hash_and_words() -> None:
    salt = salt_of("d{1}")
    digest = hashlib.sha256(f"{salt}s%3".encode()).hexdigest()
    assert SCHEMES["emqx5"].hashes(ACCOUNT) == (
        ("mqtt_user:d{1}", {"password_hash": digest, "salt": salt, "is_superuser": "0"}),
        ("mqtt_acl:d{1}", {"up/{a}": "publish", "down/#": "subscribe", "x": "all"}),
    )


def test_who_uses_no_topic_has_no_rights() -> None:
    assert len(SCHEMES["emqx"].hashes(Account("u", "p", {}))) == 1


def test_a_file_says_the_same_for_other_brokers(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    assert scheme_of(str(path)).hashes(ACCOUNT) == (
        ("users/d{1}", {"secret": "s%3", "name": "<d{1}>", "level": "1"}),
        ("rights/d{1}", {"topic:up/{a}": "may 2", "topic:down/#": "may 1", "topic:x": "may 3"}),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("users/{user}", "users", r"user\.key: found 'users', needed is \{user\}"),
        ("rights/{user}", "rights", r"acl\.key: found 'rights', needed is \{user\}"),
        ("topic:{topic}", "topic", r"acl\.field: found 'topic', needed is \{topic\}"),
        ("{password}", "{passwort}", r"user\.fields\.secret: .* allowed are \{user\} and"),
        ("{password}", "{password!r}", r"user\.fields\.secret: found"),
        ("{password}", "{password", r"user\.fields\.secret: found '\{password', allowed is text"),
        ("<{user}>", "{user.__class__}", r"user\.fields\.name: found"),
        (", both: 3", "", r"acl\.access: found nothing for both"),
        ("both: 3", "all: 3", r"acl\.access"),
        ("acl:", "rights:", r"acl: field required"),
        ("user:\n", "user: [\n", r":\d+: "),
        (OWN, "", r"the file: "),
    ],
)
def test_what_is_wrong_with_a_file_is_reported(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        scheme_of(str(path))


def test_a_scheme_that_is_not_there_is_reported() -> None:
    with pytest.raises(UsageError, match="found no scheme emq, allowed are emqx and emqx5 or a"):
        scheme_of("emq")

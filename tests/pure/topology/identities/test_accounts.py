"""Accounts of populations: from their templates to users and rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.errors import UsageError
from pubstorm.plan import provisional_plan
from pubstorm.scenario.load import parse_scenario
from pubstorm.topology.identities.accounts import Access, Account, Accounts, accounts_of
from tests.system.topology.identities.conftest import USERS

B, P, S = Access.BOTH, Access.PUBLISH, Access.SUBSCRIBE


def populations(text: str) -> tuple[PlannedPopulation, ...]:
    return provisional_plan(parse_scenario(text, "s.yaml")).populations


def one(**keys: Any) -> tuple[PlannedPopulation, ...]:
    written = "\n".join(f"    {key}: {value}" for key, value in keys.items())
    return populations(
        f"target: mqtt://localhost\npopulations:\n  device:\n{written}\nstages: [connect]\n"
    )


def test_an_account_has_a_row_for_its_user_and_one_for_each_topic() -> None:
    (device,) = accounts_of(populations(USERS.format(clients=3)))
    assert (device.population, device.count, device.rows_each, device.rows) == ("device", 3, 5, 15)
    rights = {"up/6/1": P, "up/6/2": P, "both/6": B, "down/6/#": S}
    assert device.at(1) == Account("device-6", "secret-6", rights)


def test_a_will_is_published() -> None:
    (device,) = accounts_of(
        one(clients=1, username="u", password="p", will='{topic: "gone/{n}", payload: bye}')
    )
    assert device.at(0).rights == {"gone/0": P}


def test_clients_that_are_one_user_are_written_once() -> None:
    (device,) = accounts_of(one(clients=1000, username="u", password="p", subscriptions='["a/#"]'))
    assert device.count == 1
    (device,) = accounts_of(one(clients=9, username="u", password="p", subscriptions='["a/{n}"]'))
    assert device.count == 9


def test_users_that_differ_by_the_hundred_are_all_written() -> None:
    keys = {"clients": 200, "username": '"u{n/100}"', "password": "p"}
    assert accounts_of(one(**keys))[0].at(199).user == "u1"


def test_rows_of_a_file_name_users_and_topics(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    path.write_text("serial,key,site\nA,ka,north\nB,kb,south\nC,kc,north\n")
    keys = {
        "clients": 3,
        "rows": path,
        "username": '"{row.serial}"',
        "password": '"{row.key}"',
        "subscriptions": '["{row.site}/{row.serial}/#"]',
    }
    (device,) = accounts_of(one(**keys))
    assert device.at(1) == Account("B", "kb", {"south/B/#": S})
    before = device.description
    path.write_text("serial,key,site\nA,ka,north\nB,other,south\nC,kc,north\n")
    (changed,) = accounts_of(one(**keys))
    assert changed.description != before


def test_templates_that_come_to_the_same_topic_make_one_right() -> None:
    topics = '["a/{n}", "a/{n%10}"]'
    (device,) = accounts_of(one(clients=20, username='"{n}"', password="p", subscriptions=topics))
    assert device.at(3).rights == {"a/3": S}
    assert device.at(13).rights == {"a/13": S, "a/3": S}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "found no user names in the populations device"),
        ({"username": '"u{n}"'}, "found user names of population device without passwords"),
    ],
)
def test_populations_without_user_or_password_are_reported(
    keys: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        accounts_of(one(clients=2, **keys))
    assert "secret-{n}" in str(caught.value.hint)


def two(first: int, password: str) -> tuple[Accounts, ...]:
    text = (
        "target: mqtt://localhost\npopulations:\n"
        '  a: {clients: 10, username: "u{n}", password: "p{n}"}\n'
        f'  b: {{clients: 10, first: {first}, client_id: "b{{n}}",'
        f' username: "u{{n}}", password: "{password}"}}\n'
        "stages: [connect]\n"
    )
    return accounts_of(populations(text))


def test_one_user_in_two_populations_has_one_password() -> None:
    assert [(each.population, each.count) for each in two(9, "p{n}")] == [("a, b", 19)]
    assert len(two(10, "other")) == 2
    with pytest.raises(UsageError, match="found two passwords for users of the populations a and"):
        two(9, "other")


def test_a_user_of_two_populations_has_the_rights_of_both() -> None:
    text = (
        "target: mqtt://localhost\npopulations:\n"
        '  up: {clients: 4, username: "u{n}", password: x, publications: [{topic: "t/{n}",'
        " rate: 1/s}]}\n"
        '  down: {clients: 4, first: 2, client_id: "d{n}", username: "u{n}", password: x,'
        ' subscriptions: ["t/{n}", all]}\n'
        "stages: [connect]\n"
    )
    found = accounts_of(populations(text))
    assert [(each.population, each.first, each.count) for each in found] == [
        ("up", 0, 2),
        ("up, down", 2, 2),
        ("down", 4, 2),
    ]
    assert found[1].at(1).rights == {"t/3": Access.BOTH, "all": Access.SUBSCRIBE}
    assert sum(each.rows for each in found) == 2 * 2 + 2 * 3 + 2 * 3


def test_the_same_population_of_many_steps_is_written_once() -> None:
    step = populations(USERS.format(clients=3))
    assert len(accounts_of([*step, *step])) == 1

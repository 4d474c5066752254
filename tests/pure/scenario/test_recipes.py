"""Recipes: what a good one becomes, and the problems of damaged ones, each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError, UsageError
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.recipes import (
    Recipe,
    find_recipe,
    load_recipe,
    parse_recipe,
    recipe_names,
)
from tests.pure.scenario.bases import BROKER, changed

GOOD = """\
name: Some Broker
source: a package
install: get it
broker:
  kind: command
  command: ["{brokers}/some/broker", "--config", "{folder}/etc/some.conf"]
  files: {etc/some.conf: "listen {host}:{port}\\nwebsocket {websocket_port}\\nstore off\\n"}
  environment: {SOME_HOME: "{folder}"}
  version: [cat, "{brokers}/some/VERSION"]
persistent:
  files: {etc/some.conf: "listen {host}:{port}\\nwebsocket {websocket_port}\\nstore on\\n"}
websocket: true
login: {username: me, password: word}
warm_up: 1min
garbage: true
known: [It is not there.]
"""


def read(text: str) -> Recipe:
    return parse_recipe(text, "some.yaml")


def test_a_recipe_says_how_a_broker_is_started() -> None:
    recipe = read(GOOD)
    assert (recipe.warm_up, recipe.garbage, recipe.tls) == (60 * 10**9, True, False)
    assert recipe.login is not None and recipe.login.username == "me"
    assert recipe.broker.kind == "command"


def test_an_entry_is_a_broker_of_a_scenario() -> None:
    recipe = read(GOOD)
    plain, other = recipe.entry(), recipe.entry(persistent=True, websocket=True)
    assert "store off" in plain["files"]["etc/some.conf"]
    assert "store on" in other["files"]["etc/some.conf"]
    assert other["environment"] == plain["environment"]
    for entry in (plain, other):
        text = changed(BROKER, f"topology.brokers.b: {json.dumps(entry)}")
        broker = parse_scenario(text, "s.yaml").topology.brokers["b"]
        assert broker.serves_websocket == (entry is other)
    assert read(GOOD).entry() == plain, "an entry is a copy"


def test_an_entry_under_tls_has_keys_of_the_run() -> None:
    text = "{name: M, source: p, install: i, broker: mosquitto, tls: true}"
    assert read(text).entry(tls=True) == {"kind": "mosquitto", "tls": "server"}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_fits(name: str) -> None:
    recipe = load_recipe(find_recipe(name))
    assert recipe.changed or recipe.untried
    assert recipe.persistent or recipe.known


DAMAGED = {
    ("name: Some Broker", "nam: Some Broker"): (1, "nam"),
    ("install: get it\n", ""): (1, "install"),
    ("  kind: command", "  kind: comand"): (5, "broker.kind"),
    ("listen {host}:{port}\\nwebsocket {websocket_port}\\nstore off", "x"): (6, "broker.command"),
    ('{etc/some.conf: "listen', '{../some.conf: "listen'): (7, "broker.files.../some.conf"),
    ('{SOME_HOME: "{folder}"}', '{SOME_HOME: "{home}"}'): (8, "broker.environment.SOME_HOME"),
    ("store on", "store {on}"): (11, "persistent.files.etc/some.conf"),
    ("websocket {websocket_port}\\nstore on", "x"): (10, "persistent.command"),
    ("websocket {websocket_port}\\nstore off", "x"): (12, "websocket"),
    ("websocket: true", "websocket: yes-please"): (12, "websocket"),
    ("garbage: true", "name: Twice"): (15, "name"),
    ("garbage: true", "garbage: [true"): (16, ""),
    ("known: [It is not there.]", "known: [7]"): (16, "known.0"),
    ("known: [It is not there.]", "tls: true"): (16, "tls"),
}


@pytest.mark.parametrize(("change", "place"), DAMAGED.items())
def test_a_damaged_recipe_names_the_line(change: tuple[str, str], place: tuple[int, str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(GOOD.replace(*change, 1))
    found = {(problem.place, problem.path) for problem in caught.value.problems}
    assert (f"some.yaml:{place[0]}", place[1]) in found
    assert all("found" in problem.message for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["", "- a", "text", "\0", "&a [*a]", "a: " + "[" * 30])
def test_a_file_without_a_mapping_is_no_recipe(text: str) -> None:
    with pytest.raises(ScenarioError):
        read(text)


def test_all_problems_are_reported_by_line() -> None:
    text = GOOD.replace("garbage: true", "garbage: 7").replace("kind: command", "kind: x")
    with pytest.raises(ScenarioError) as caught:
        read(text)
    lines = [int(problem.place.rpartition(":")[2]) for problem in caught.value.problems]
    assert len(lines) >= 2 and lines == sorted(lines)


def test_a_recipe_is_found_by_name_or_path(tmp_path: Path) -> None:
    assert find_recipe("mosquitto").stem == "mosquitto"
    assert find_recipe("./mosquitto.yaml") == Path("mosquitto.yaml")
    with pytest.raises(UsageError, match="no recipe 'mosquito'") as caught:
        find_recipe("mosquito")
    assert caught.value.hint == "did you mean mosquitto?"
    with pytest.raises(ScenarioError, match="no such file"):
        load_recipe(tmp_path / "nowhere.yaml")

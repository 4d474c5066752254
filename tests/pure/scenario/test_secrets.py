"""Secrets of a scenario: where they come from, and where they do not go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubstorm.contract.template import Template
from pubstorm.errors import (
    ScenarioError,
    StoredRunError,
    is_secret,
    may_be_secret,
    without_credentials,
)
from pubstorm.experiment.invocation import Invocation, again
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.document import redacted_override, redacted_text
from pubstorm.scenario.problems import Shape, shape_of

SCENARIO = """\
target: mqtt://127.0.0.1
populations:
  device:
    clients: 1
    username: user
    password: {password}
stages: [connect]
"""
SECRET = "s3cr3t"


def read(password: str, folder: Path, *overrides: str) -> Scenario:
    (folder / "a.yaml").write_text(SCENARIO.replace("{password}", password))
    return load_scenario(folder / "a.yaml", overrides)


def password_of(scenario: Scenario) -> str:
    template = scenario.populations["device"].password
    assert template is not None
    return Template.parse(template).text(7)


def problems_of(password: str, folder: Path, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        read(password, folder, *overrides)
    return "\n".join(f"{each} {each.hint}" for each in caught.value.problems)


def test_a_secret_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQTT_PASSWORD", "a{b}c")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    for written, found in (
        ("${env:MQTT_PASSWORD}", "a{b}c"),
        ("${env:MQTT_PASSWORD}-{n}", "a{b}c-7"),
        ("${file:secret}", SECRET),
        (f"${{file:{tmp_path}/secret}}", SECRET),
        ("$${env:MQTT_PASSWORD}", "${env:MQTT_PASSWORD}"),
    ):
        scenario = read(f'"{written}"', tmp_path)
        assert password_of(scenario) == found
        assert written in scenario.source_text
    given = read("x", tmp_path, "populations.device.password=${file:secret}")
    assert password_of(given) == SECRET
    assert SECRET not in given.source_text


def test_a_reference_can_stand_in_any_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "192.0.2.1")
    scenario = read("x", tmp_path, "target=mqtt://${env:BROKER}:1884")
    assert str(scenario.target[0]) == "192.0.2.1:1884"


def test_a_reference_that_leads_nowhere_is_a_problem_with_line_and_hint(tmp_path: Path) -> None:
    found = problems_of("${env:PUBSTORM_HAS_NONE}", tmp_path)
    assert "a.yaml:6: populations.device.password: found ${env:PUBSTORM_HAS_NONE}: " in found
    assert "this environment variable is not set export it before" in found
    found = problems_of("${file:none}", tmp_path)
    assert "found ${file:none}: this file cannot be read: No such file or directory" in found
    found = problems_of("x", tmp_path, "populations.device.password=${env:PUBSTORM_HAS_NONE}")
    assert "--set populations.device.password=${env:PUBSTORM_HAS_NONE}: " in found


@pytest.mark.parametrize(
    ("password", "allowed"),
    [
        (f'"{SECRET * 20_000}"', "is text of at most 65535 bytes"),
        ("12345678", "is text"),
        (f'"{{{SECRET}}}"', "is a template"),
    ],
    ids=["long", "number", "template"],
)
def test_a_message_about_a_secret_says_what_is_allowed(
    password: str, allowed: str, tmp_path: Path
) -> None:
    found = problems_of(password, tmp_path)
    assert f"found a secret that does not fit here, allowed {allowed} " in found
    assert SECRET not in found


def test_a_secret_may_have_a_nul(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"a\0b\n")
    assert password_of(read("${file:secret}", tmp_path)) == "a\0b"
    found = problems_of("x", tmp_path, "populations.device.username=${file:secret}")
    assert "found a secret that does not fit here, allowed is text without NUL" in found


def test_a_stored_scenario_can_be_read_without_its_secrets(tmp_path: Path) -> None:
    text = SCENARIO.replace("{password}", "${env:PUBSTORM_HAS_NONE}")
    assert password_of(parse_scenario(text, str(tmp_path / "a.yaml"), lenient=True)) == "redacted"


@pytest.mark.parametrize("password", [f"{{{SECRET}}}", f"{SECRET}{{", "12345678"])
def test_no_message_names_a_secret(password: str, tmp_path: Path) -> None:
    quoted = f'"{password}"' if "{" in password else password
    found = problems_of(quoted, tmp_path)
    assert "a.yaml:6: populations.device.password: found a secret that does not fit" in found
    assert password not in found
    assert SECRET not in found
    found = problems_of("x", tmp_path, f"populations.device.password={quoted}")
    assert "--set populations.device.password=***: " in found
    assert password not in found
    assert SECRET not in found


def test_no_message_names_the_credentials_of_a_url(tmp_path: Path) -> None:
    found = problems_of("x", tmp_path, f"target=mqtt://user:{SECRET}@host")
    assert "mqtt://***@host" in found
    assert SECRET not in found


def test_the_text_of_a_scenario_is_redacted_where_it_holds_secrets() -> None:
    text = f"""\
populations:
  a: {{password: {SECRET}, username: u}}
  b:
    password: &word '{SECRET}'  # a comment
  c: {{password: "${{env:WORD}}"}}
  d: {{password: *word}}
  e:
    password: |
      {SECRET}
    username: u
topology:
  brokers: {{main: {{passwords: true, settings: {{requirepass: {SECRET}, password_file: f}}}}}}
monitors: {{redis: "redis://:{SECRET}@h:1"}}
sweep: {{vary: {{populations.a.password: [{SECRET}, "{SECRET}2"]}}}}
"""
    found = redacted_text(text)
    assert SECRET not in found
    assert found.count('"***"') == 6
    for kept in ("# a comment", "${env:WORD}", "passwords: true", "password_file: f", "*word"):
        assert kept in found
    assert "redis://***@h:1" in found
    assert redacted_text(found) == found


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("populations.a.password=x", "populations.a.password=***"),
        (
            'sweep.steps.0."populations.a.password"=x',
            'sweep.steps.0."populations.a.password"=***',
        ),
        ("populations.a.password=${env:X}", "populations.a.password=${env:X}"),
        ("populations.a={clients: 1, password: x}", 'populations.a={clients: 1, password: "***"}'),
        ("populations.a.clients=10k", "populations.a.clients=10k"),
        ("topology.brokers.a.passwords=true", "topology.brokers.a.passwords=true"),
        ("target=mqtt://u:p@h", "target=mqtt://***@h"),
        ("populations.a={", "populations.a={"),
        ("populations.a.pasword=x", "populations.a.pasword=***"),
    ],
)
def test_overrides_are_shown_without_secrets(override: str, shown: str) -> None:
    assert redacted_override(override) == shown
    assert shown in Invocation("a.yaml", (override,)).command()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mqtt:/u:PW@h:1: found no such file", "mqtt:/***@h:1: found no such file"),
        ("found 'mqtt://u:my PW@h', allowed", "found 'mqtt://***@h', allowed"),
        ("mqtt://u:P'W@h:1883 x@y", "mqtt://***@h:1883 x@y"),
        ("mqtt://u:p@ PW@h", "mqtt://***@h"),
        ("mqtt://u:12345@[::1]:1883/", "mqtt://***@[::1]:1883/"),
        ("mqtt://h:1883 is not lost@load", "mqtt://h:1883 is not lost@load"),
        ("C:/x@y and ${file:/run/pw}@h", "C:/x@y and ${file:/run/pw}@h"),
        ("a://b:c " * 9000, "a://b:c " * 9000),
    ],
)
def test_a_password_in_a_url_is_hidden_however_it_is_written(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_a_target_with_a_blank_in_its_password_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SCENARIO.replace("{password}", "x"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "a.yaml", (), f"mqtt://u:{SECRET[:3]} {SECRET[3:]}@h")
    assert SECRET[3:] not in str(caught.value)
    assert "found 'mqtt://***@h'" in str(caught.value)


def test_no_key_of_a_scenario_is_written_almost_as_that_of_a_secret() -> None:
    keys = {*_keys(shape_of(Scenario))}
    assert len(keys) > 150 and "publications" in keys
    assert [key for key in keys if may_be_secret((key,)) and not is_secret((key,))] == []


def _keys(shape: Shape, depth: int = 0) -> Iterator[str]:
    """Yields the keys of a shape and of its parts."""
    if shape.kind in {"names", "items"}:
        yield from _keys(shape.below("x"), depth)
    for part in (shape, *shape.kinds.values()) if depth < 6 else ():
        for key in part.keys:
            yield key
            yield from _keys(part.below(key), depth + 1)


def test_a_run_is_played_again_with_the_secrets_of_its_source(tmp_path: Path) -> None:
    scenario = read(SECRET, tmp_path)
    stored = tmp_path / "scenario.yaml"
    stored.write_text(scenario.source_text)
    assert SECRET not in stored.read_text()
    asked = Invocation(str(tmp_path / "a.yaml"))
    assert password_of(again(asked, stored)) == SECRET
    (tmp_path / "a.yaml").write_text(SCENARIO)
    with pytest.raises(StoredRunError, match="has no secrets, and") as caught:
        again(asked, stored)
    assert "${env:NAME}" in str(caught.value.hint)
    given = Invocation("a.yaml", ("populations.device.password=***",))
    with pytest.raises(StoredRunError, match=r"--set populations.device.password was not stored"):
        again(given, stored)


def test_keys_of_secrets_are_distinguished_from_others() -> None:
    assert is_secret(("populations", "a", "password"))
    assert is_secret(("services", "r", "settings", "requirepass"))
    assert is_secret(("sweep", "vary", "populations.a.password", 0))
    assert not is_secret(("populations", "password-tester", "clients"))
    assert not is_secret(("settings", "password_file"))
    assert without_credentials("mail a@b, see http://h/a@b") == "mail a@b, see http://***@b"

"""`pubstorm init`: the text of each combination, its questions on a terminal, and the files that it
leaves alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pubstorm.cli.init import LOADS, scenario_text
from pubstorm.scenario import parse_scenario
from tests.kit import program
from tests.kit.terminal import on_terminal

INIT = (*program.PUBSTORM, "init")


def init(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return program.run(
        ("init", *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
    )


@pytest.mark.parametrize("broker", ["embedded", "mqtt://host", "wss://host/path", "nats://host"])
@pytest.mark.parametrize("kind", LOADS)
def test_every_combination_is_a_scenario_with_the_clients_asked_for(kind: str, broker: str) -> None:
    scenario = parse_scenario(scenario_text(broker, kind, "2k"), "scenario.yaml")
    clients = {name: each.clients for name, each in scenario.populations.items()}
    assert clients == {name: 2000 if name in LOADS[kind].many else 1 for name in clients}
    assert bool(scenario.target) == (broker != "embedded")


@pytest.mark.parametrize("broker", ["mqtts://host", "natss://host"])
@pytest.mark.parametrize("kind", ["pub", "pairs", "fan-in", "fan-out"])
def test_lines_without_their_comment_sign_are_read_too(kind: str, broker: str) -> None:
    text = scenario_text(broker, kind, "10")
    open_text, count = re.subn(r"^( *)# (search|username|tls):", r"\1\2:", text, flags=re.M)
    assert count >= 3
    scenario = parse_scenario(open_text.replace("ca: ca.crt", "verify: false"), "scenario.yaml")
    assert scenario.search is not None


def test_without_a_terminal_options_and_defaults_answer(tmp_path: Path) -> None:
    found = init("-c", "50", "--kind", "pub", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    text = (tmp_path / "scenario.yaml").read_text()
    assert text == scenario_text("embedded", "pub", "50")
    assert init("-", cwd=tmp_path).stdout == scenario_text("embedded", "pairs", "100")


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    found = init("mine.yaml", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr == "error: found mine.yaml, which exists\n  hint: --force replaces it\n"
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert init("mine.yaml", "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "mine.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--broker", "host:1883"), "write mqtt://host:1883"),
        (("--broker", "zmq://host:1883"), "allowed is embedded or mqtt[s]://"),
        (("--broker", "zmq://host:1883"), "see pubstorm scenarios for ZeroMQ"),
        (("-c", "0"), "clients: found '0', allowed is 1 to"),
        (("--kind", "burst"), "'burst' is not one of"),
        (("no/folder.yaml",), "cannot write no/folder.yaml: No such file or directory"),
    ],
)
def test_wrong_options_are_errors(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    found = init(*words, cwd=tmp_path)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_asks_and_asks_again(tmp_path: Path) -> None:
    with on_terminal([*INIT, "mine.yaml", "--kind", "fan-out"], tmp_path) as terminal:
        terminal.until("[embedded]: ")
        terminal.press("localhost\n")
        terminal.until("write mqtt://localhost")
        terminal.press("mqtt://localhost\n")
        terminal.until("[100]: ")
        terminal.press("\n")
        assert terminal.end() == 0
    assert (tmp_path / "mine.yaml").read_text() == scenario_text(
        "mqtt://localhost", "fan-out", "100"
    )


def test_a_question_can_be_left_with_control_c(tmp_path: Path) -> None:
    with on_terminal([*INIT], tmp_path) as terminal:
        terminal.until("[embedded]: ")
        terminal.interrupt_the_question()
        assert terminal.end() == 130
    assert list(tmp_path.iterdir()) == []

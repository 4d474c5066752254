"""Keys on a terminal while a run is played, and the terminal after every kind of end."""

from __future__ import annotations

import json
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.terminal import Terminal, on_terminal

SCENARIO = """
monitors: {host: false}
topology: {brokers: {main: {kind: embedded}}}
populations:
  device:
    clients: 10
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
  backend: {clients: 2, subscriptions: [{topic: "up/#", qos: 1}]}
stages: [connect, publish: 10min, hold: 10min, disconnect]
validity: {lateness_p99: 1min, busy: 100%}
fleet: {agents: 2}
"""
RUN = (sys.executable, "-m", "pubstorm", "run", "scenario.yaml", "--out", "run", "--no-report")
LAUNCHER = """
import os, signal, sys, termios
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def has_keys():
    return not termios.tcgetattr(0)[3] & termios.ICANON
_, status = os.waitpid(child, os.WUNTRACED)
assert os.WIFSTOPPED(status)
print("stopped, with keys" if has_keys() else "stopped, as before", flush=True)
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGCONT)
_, status = os.waitpid(child, 0)
os.tcsetpgrp(0, os.getpgrp())
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A shell of one job: reports the state of the terminal once the job is stopped, and continues the
job in the foreground."""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with on_terminal(RUN, tmp_path) as terminal:
        yield terminal


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/result.json").read_text())
    return found


def has_keys(terminal: Terminal) -> bool:
    """True if the terminal gives each key at once."""
    return not termios.tcgetattr(terminal.slave)[3] & termios.ICANON


@pytest.mark.slow("a run with two agents, steered through three stages")
def test_keys_pause_change_the_rate_and_end_stages(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("2/4")
    assert has_keys(terminal)
    terminal.press("+")
    terminal.until("1.1 × device")
    terminal.press("p")
    terminal.until("pause device")
    terminal.press("p")
    terminal.until("1.1 × device (2)")
    terminal.press("-")
    terminal.until("1 × device")
    terminal.press("s")
    terminal.until("stage publish is ended by the user")
    terminal.until("3/4")
    terminal.press("+")
    terminal.until("no publish stage is on")
    terminal.press("\x1b[A")
    terminal.press("s")
    terminal.until("stage hold is ended by the user")
    assert terminal.end() == 0, terminal.text
    assert terminal.is_as_before
    result = result_of(tmp_path)
    assert not result["interrupted"]
    populations = result["populations"]
    sent = populations["device"]["sent_total"]
    assert 0 < sent < 10 * 20 * 600
    assert populations["device"]["skipped_total"] == 0
    assert populations["backend"]["received_total"] == 2 * sent
    assert populations["backend"]["lost_total"] == 0
    changes = [event["text"] for event in result["events"] if event["kind"] == "change"]
    assert changes == ["1.1 × device", "pause device", "1.1 × device (2): resumed", "1 × device"]
    publish = result["stages"][1]
    assert publish["duration_s"] < 300


@pytest.mark.parametrize("end", ["\x03", signal.SIGHUP], ids=["Ctrl-C", "SIGHUP"])
def test_the_terminal_is_as_before_after_every_end(
    end: str | signal.Signals, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.until("2/4")
    assert has_keys(terminal)
    if isinstance(end, str):
        terminal.press(end)
    else:
        terminal.process.send_signal(end)
    assert terminal.end() == 130
    assert terminal.is_as_before
    assert "\x1b[?25h" in terminal.text, "the cursor is shown again"
    assert result_of(tmp_path)["interrupted"]


def test_a_stopped_run_gives_the_terminal_back_and_takes_it_again(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with on_terminal([sys.executable, "-c", LAUNCHER, *RUN], tmp_path) as terminal:
        terminal.until("2/4")
        terminal.press("\x1a")
        terminal.until("stopped, as before")
        terminal.until("2/4")
        terminal.press("s")
        terminal.until("3/4")
        assert has_keys(terminal)
        terminal.press("q")
        assert terminal.end() == 130
        assert terminal.is_as_before


def test_without_a_terminal_at_stdin_keys_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("10min", "1s"))
    line = ["sh", "-c", 'exec "$@" </dev/null', "sh", *RUN]
    with on_terminal(line, tmp_path) as terminal:
        terminal.until("2/4")
        assert terminal.is_as_before
        assert terminal.end() == 0, terminal.text
        assert "pause" not in terminal.text

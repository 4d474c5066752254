"""Broken outputs and bad moments for a signal: no command gives a traceback or another exit code
because of them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from pubstorm import output
from pubstorm.host.children import lack_of
from pubstorm.host.signals import ending_signals
from pubstorm.output import ASCII_ERRORS, guard, visible
from pubstorm.report.text import PlainConsole
from tests.kit.program import PUBSTORM

BROKEN = {
    "no streams at all": 'exec "$@" <&- >&- 2>&-',
    "a reader that has gone": '{ "$@"; echo $? >code; } | true; exit $(cat code)',
    "full disks": 'exec "$@" >/dev/full 2>&1',
}
WIDE = """
description: 10 µs – fast ✓
target: mqtt://h
populations: {a: {clients: 1}}
stages: [connect]
"""


def shell(line: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line, "sh", *PUBSTORM, *words],
        capture_output=True,
        encoding="latin-1",
        check=False,
        cwd=folder,
        timeout=60,
    )


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_a_broken_output_changes_no_exit_code(line: str, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    outcome = shell(line, "check", "wide.yaml", folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert "Exception ignored" not in outcome.stderr


def test_characters_that_an_encoding_lacks_get_similar_ones(tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    for encoding, words in (("ascii", "10 us - fast +"), ("latin-1", "10 \xb5s - fast +")):
        line = f'PYTHONIOENCODING={encoding} exec "$@"'
        outcome = shell(line, "check", "wide.yaml", folder=tmp_path)
        assert (outcome.returncode, outcome.stderr) == (0, "")
        assert words in outcome.stdout


def test_an_output_that_is_not_complete_is_reported_once(tmp_path: Path) -> None:
    outcome = shell('exec "$@" >/dev/full', "scenarios", folder=tmp_path)
    assert outcome.stderr == ("warning: standard output is not complete: No space left on device\n")


def test_a_reader_that_does_not_read_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with monkeypatch.context() as patched:
        patched.setattr(output, "_DESCRIPTORS", (writing, writing))
        patched.setattr(sys, "stdout", sys.stdout)
        patched.setattr(sys, "stderr", sys.stderr)
        guard()
        with output.never_waiting():
            for _ in range(10_000):
                output.warn("more than a pipe can hold")
        assert os.read(reading, 25) == b"more than a pipe can hold"
        os.close(reading)
        output.warn("the reader has gone")
        output.say("the reader has gone")
        assert output.finish() is None
    os.close(writing)


def test_control_characters_are_shown_and_not_obeyed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = PlainConsole(force_terminal=True, color_system=None, width=80)
    console.print(Text("red \x1b[31m bell \x07\x9b31m \u202eback"))
    output.say("\x1b]0;title\x07 stays\ton its\nlines")
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert not set("\x07\x9b\u202e") & set(out)
    assert "stays\ton its\nlines" in out
    assert visible("plain – text") == "plain – text"


@pytest.mark.parametrize(("no_color", "styled"), [("", True), ("1", False)])
def test_without_colours_nothing_is_dim_either(
    monkeypatch: pytest.MonkeyPatch, no_color: str, styled: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=True, width=80)
    console.print(Text("limited by", style="dim"), Text("failed", style="bold red"))
    assert ("\x1b[" in stream.getvalue()) is styled
    assert "limited by" in stream.getvalue()


def test_every_character_of_our_own_has_a_similar_one() -> None:
    package = Path(output.__file__).parent
    own = {c for path in package.rglob("*.py") for c in path.read_text() if ord(c) > 127}
    superscripts = set("⁰¹³⁴⁵⁶⁷⁸⁹")
    for character in own - superscripts - {output.REPLACEMENT}:
        assert character.encode("ascii", ASCII_ERRORS) != b"?", character


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_imports_ends_with_130_and_no_word(
    number: signal.Signals, tmp_path: Path
) -> None:
    # A module of the standard library that is imported late stands for all others.
    (tmp_path / "click.py").write_text(
        f"import os, signal\nos.kill(os.getpid(), {int(number)})\nsignal.pause()\n"
    )
    # Tests that run in the background of a shell inherit that SIGINT is ignored.
    outcome = subprocess.run(
        ["env", "--default-signal=INT,TERM,HUP", *PUBSTORM, "scenarios"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        timeout=60,
    )
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "", "")


def test_a_signal_that_is_ignored_from_the_start_stays_ignored() -> None:
    assert signal.SIGHUP in ending_signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("mebibytes", [60, 120])
def test_too_little_memory_is_an_error_in_words(mebibytes: int, tmp_path: Path) -> None:
    outcome = shell(f'ulimit -v {mebibytes << 10}; exec "$@"', "scenarios", folder=tmp_path)
    assert outcome.returncode in {0, 3}, outcome.stderr
    assert "Traceback" not in outcome.stderr
    if outcome.returncode == 3:
        assert (
            "error: cannot continue: this process met a lack of memory\n  hint: " in outcome.stderr
        )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "a lack of memory"),
        (OSError(12, "Cannot allocate memory"), "a lack of memory"),
        (ImportError("x.so: failed to map segment from shared object"), "a lack of memory"),
        (RuntimeError("can't start new thread"), "processes and threads"),
        (ValueError("something else"), None),
    ],
)
def test_shortages_of_the_host_are_distinguished_from_other_errors(
    error: Exception, words: str | None
) -> None:
    wrapped = SystemError("from that")
    wrapped.__cause__ = error
    for each in (error, wrapped):
        lack = lack_of(each)
        assert (lack is None) == (words is None)
        assert lack is None or str(words) in lack[0]


def test_an_interrupt_before_the_signals_are_caught_leaves_no_traceback() -> None:
    program = """
import importlib.abc, os, signal, sys
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pubstorm.output":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from pubstorm.__main__ import main
main()
"""
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stderr) == (-signal.SIGINT, "")

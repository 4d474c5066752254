"""Plays the tutorial as a reader does: writes its files, runs its commands, compares the output."""

import re
import shlex
from pathlib import Path

import pytest

from tests.kit import program
from tests.kit.runs import ANY_SPEED, DATA_ONLY

PAGE = (Path(__file__).parents[3] / "docs/tutorial/first-scenario.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", PAGE, re.M | re.S))
QUICK = ("--set", "stages.1.publish=1s")
"""Options of runs whose thresholds name no number of messages."""
COMMANDS = re.findall(r"^```console\n\$ pubstorm ([^\n]+)\n(.*?)^```", PAGE, re.M | re.S)
NUMBER = re.compile(r"[+±≥]?\d[\d\u202f,.:-]*(?: ?(?:ns|µs|ms|s|min|%|[kMGKT]?i?B)\b(?:/s)?|%)?")
FRAME = re.compile(r"[│╭╮╰╯─━]+")
LEFT_OUT = "..."
OF_THE_MACHINE = "the generator kept up"
"""Evidence that a verdict has only if the machine was quiet enough: the wording is compared
with the verdicts of the pure tests."""
VERDICTS = Path(__file__).parents[2] / "pure/result/verdicts.golden"


def seen(line: str) -> str:
    """Returns a line of output without what differs between two runs: numbers, their units, widths,
    and the component that set the limit, which on a busy machine is the host."""
    line = re.sub(r"(; )?limited by .*|\b(?:none|host|broker)\s*$", "", FRAME.sub(" ", line))
    return " ".join(NUMBER.sub("#", line).split()).rstrip(".")


def test_the_tutorial_has_steps() -> None:
    assert len(FILES) == 4
    assert len(COMMANDS) == 6


def test_the_tutorial_shows_evidence_of_the_machine_as_verdicts_word_it() -> None:
    worded = {seen(line) for line in VERDICTS.read_text(encoding="utf-8").splitlines()}
    shown = {seen(line) for line in PAGE.splitlines() if OF_THE_MACHINE in line}
    assert len(shown) == 1
    assert {line.replace("• ", "> - ") for line in shown} <= worded


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[each[0] for each in COMMANDS])
def test_each_command_prints_what_the_tutorial_shows(
    tmp_path: Path, command: str, shown: str
) -> None:
    for name, text in FILES.items():
        # A latency of more than a second is no failure of a busy machine.
        (tmp_path / name).write_text(text.replace("p99 < 1s", "p99 < 1min"), encoding="utf-8")
    words = shlex.split(command)
    if words[0] == "run":
        words += [*ANY_SPEED, *DATA_ONLY, *(() if "acked ==" in FILES[words[1]] else QUICK)]
    played = program.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert played.returncode == (1 if "misspelt" in command else 0), played.stderr
    printed, position = " ".join(map(seen, played.stdout.splitlines())), 0
    for line in shown.splitlines():
        if OF_THE_MACHINE in line:
            continue
        position = printed.find(seen(line), position) if line != LEFT_OUT else position
        assert position >= 0, f"not printed: {line}\n{played.stdout}"

"""The output of `pubstorm run`: one screen, tables, or JSON, as options ask for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.kit import program
from tests.kit.starved import passes

SCHEMA = Path(__file__).parents[3] / "contract" / "conclusion.schema.json"
ANY_SPEED = ("--set", "validity.lateness_p99=1min", "--set", "validity.busy=100%")


def bench(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return program.run(
        ("bench", "pairs", *words), capture_output=True, text=True, cwd=cwd, timeout=120
    )


@pytest.mark.slow("a whole run with its reports")
def test_json_is_all_that_stdout_has(tmp_path: Path) -> None:
    found = bench("-c", "5", "--for", "1s", *ANY_SPEED, "--json", cwd=tmp_path)
    outcome = json.loads(found.stdout)
    jsonschema.validate(outcome, json.loads(SCHEMA.read_text()))
    result = json.loads((tmp_path / outcome["run_directory"] / "result.json").read_text())
    assert passes(found.returncode, result), found.stderr
    assert outcome["exit_code"] == found.returncode
    assert outcome["headline"] == result["verdict"]["headline"]
    assert outcome["populations"]["publisher"]["sent_total"] == 5
    assert "publish" in found.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--details", "--json"), "found --details and --json, allowed is one of them"),
        (("--details", "--quiet"), "found --details and --quiet, allowed is one of them"),
        (("--progress", "fast"), "--progress: found 'fast', allowed is a duration"),
        (("--progress", "1ms"), "--progress: found '1ms', allowed is 1s to"),
    ],
)
def test_options_that_do_not_fit_are_errors(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    found = bench(*words, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert message in found.stderr
    assert list(tmp_path.iterdir()) == []

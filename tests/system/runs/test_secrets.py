"""A run with passwords: none of them is in any file that it leaves, nor in what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.kit import program

RunMaker = Callable[..., Any]

SCENARIO = """
description: "\\e[31mred"
monitors: {host: false}
topology: {brokers: {ours: {kind: embedded}}}
populations:
  written:
    {clients: 1, username: a, password: in-the-file-1, publications: [{topic: t, rate: 10/s}]}
  given: {clients: 1, username: b, password: x}
  named: {clients: 1, username: c, password: "${env:SECRET_OF_THE_TEST}"}
stages: [connect, publish: 200ms]
"""
SECRETS = ("in-the-file-1", "by-an-option-2", "by-a-variable-3")


def test_no_password_is_stored_or_printed(start: RunMaker) -> None:
    run = start(
        SCENARIO,
        "--set",
        f"populations.given.password={SECRETS[1]}",
        environment={"SECRET_OF_THE_TEST": SECRETS[2]},
        report=True,
    )
    assert run.finish() == 0
    assert run.result()["populations"]["named"]["connected_max"] == 1
    plan = json.loads((run.directory / "plan.json").read_text())
    assert [each["password"] for each in plan["populations"]] == ["***"] * 3
    files = [path for path in run.directory.rglob("*") if path.is_file()]
    texts = {str(path): path.read_text(errors="replace") for path in files}
    texts |= {"stdout": run.stdout, "stderr": run.stderr}
    assert [(n, s) for n, text in texts.items() for s in SECRETS if s in text] == []
    assert [n for n, text in texts.items() if "\x1b" in text] == []
    shown = (run.directory / "scenario.yaml").read_text()
    assert "${env:SECRET_OF_THE_TEST}" in shown
    assert "# with --set populations.given.password=***" in shown
    assert program.run(("report", str(run.directory)), capture_output=True).returncode == 0

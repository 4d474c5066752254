"""Messages about scenarios: `messages.golden` has them all, `UPDATE_GOLDEN=1` writes them.

A section begins with `[BASE] CHANGES`: a scenario of `bases.py`, and the changes of all its cases.
A case is a line `CHANGES => PROBLEM | HINT`; further problems have lines of their own, and a case
that fits has `nothing is wrong`. The path of a problem is written from the change on, or as a whole
where no change leads to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pubstorm.contract.target import parse_targets
from pubstorm.errors import ScenarioError, ScenarioProblem, UsageError
from pubstorm.play.changes import parse_change
from pubstorm.quantities import UnfitError
from pubstorm.scenario import parse_scenario
from tests.kit import golden
from tests.pure.scenario import bases
from tests.pure.scenario.bases import changed

GOLDEN = Path(__file__).parent / "messages.golden"
ARROW = " => "
FITS = "nothing is wrong"


def test_the_messages_are_those_of_the_golden_file(tmp_path: Path) -> None:
    stored = GOLDEN.read_text(encoding="utf-8").splitlines()
    golden.agree(GOLDEN, "".join(f"{line}\n" for line in written(stored, tmp_path)))


def written(lines: list[str], folder: Path) -> Iterator[str]:
    """Yields the lines of the golden file with the problems that there are now."""
    base = changes = ""
    for line in lines:
        if line.startswith("["):
            base, _, changes = line[1:].partition("]")
        if not line or line.startswith(("[", "#")):
            yield line
        elif not line.startswith(ARROW):
            case = line.partition(ARROW)[0]
            found = problems_of(base, changes, case, folder)
            problems = [shown(each, case).replace(f"{folder}/", "") for each in found] or [FITS]
            yield case + ARROW + problems[0]
            yield from (ARROW + problem for problem in problems[1:])


def shown(problem: ScenarioProblem, case: str) -> str:
    """Returns a problem in words, with its path below the change that it is about."""
    steps = problem.path.split(".")
    about = (n for n in range(len(steps), 0, -1) if f"{'.'.join(steps[:n])}:" in case)
    path = ".".join(["", *steps[n:]] if (n := next(about, 0)) else steps)
    hint = f" | {problem.hint}" if problem.hint else ""
    return f"{path}{': ' if path else ''}{problem.message}{hint}"


def problems_of(base: str, changes: str, case: str, folder: Path) -> tuple[ScenarioProblem, ...]:
    try:
        read(base, changes, case, folder)
    except ScenarioError as error:
        return error.problems
    except (UsageError, UnfitError) as error:
        return (ScenarioProblem("", "", str(error), error.hint),)
    return ()


def read(base: str, changes: str, case: str, folder: Path) -> None:
    """Reads a case, which raises an error. A case in double quotes is the file `data.csv`."""
    match base:
        case "a change by hand":
            parse_change(case)
        case "targets":
            parse_targets(case.split(", "))
        case "a text":
            parse_scenario(json.loads(case), "s.yaml")
        case "--set":
            parse_scenario(bases.SMALL, "s.yaml", [case])
        case _:
            text, is_table = changed(getattr(bases, base), changes), case.startswith('"')
            text = text if is_table else changed(text, case)
            if "data.csv" in text:
                table = json.loads(case) if is_table else bases.TABLE
                (folder / "data.csv").write_bytes(table.encode("latin-1"))
            parse_scenario(text, str(folder / "s.yaml"))

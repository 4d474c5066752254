"""The script of `make results`: rows of the page on results, their tables and their days."""

from __future__ import annotations

import shlex

import pytest

from pubstorm.scenario.load import find_scenario, load_scenario
from scripts.measure_results import NEVER, PAGES, ROW, day_of, replaced, tables_in

TEXT = """\
# Results

<!-- dates -->

<!-- end -->

## One

Prose.

<!-- make: pubstorm run one | Steps -->

Played on 2026-11-21: `pubstorm run one`

| old |

<!-- made -->

## Two

<!-- make: pubstorm run two --set a=b | Faults, Messages -->
<!-- made -->
"""


def test_a_row_that_is_played_has_its_table_and_its_day_and_the_others_stay() -> None:
    page = replaced(TEXT, 1, "\nPlayed on 2026-11-28 at commit 12345678\n\n| new |\n\n")
    one, two = ROW.finditer(page)
    assert [day_of(one), day_of(two)] == ["2026-11-21", "2026-11-28"]
    assert "| old |" in one["body"] and "| new |" in two["body"]
    assert "| one | 2026-11-21 | `pubstorm run one` |" in page
    assert "| two | 2026-11-28 | `pubstorm run two --set a=b` |" in page
    assert page.count("Prose.") == 1
    assert replaced(page, 1, two["body"]) == page, "to write it again changes nothing"


def test_a_row_that_was_never_played_says_so() -> None:
    one, _ = ROW.finditer(TEXT)
    page = replaced(TEXT, 0, one["body"])
    assert f"| two | {NEVER} | `pubstorm run two --set a=b` |" in page


def test_tables_are_those_below_the_headings_of_a_report() -> None:
    report = "# run\n\nIt passed.\n\n## Steps\n\n| a |\n| - |\n\n## Faults\n\n| b |\n"
    assert [*tables_in(report, ["Faults", "Steps"])] == ["| b |", "| a |\n| - |"]
    with pytest.raises(KeyError):
        [*tables_in(report, ["Phases"])]


def test_each_page_lists_the_days_of_its_rows() -> None:
    pages = [path.read_text(encoding="utf-8") for path in PAGES]
    with_rows = [(page, row) for page in pages for row in [*ROW.finditer(page)][:1]]
    assert len(with_rows) == 2
    assert all(replaced(page, 0, row["body"]) == page for page, row in with_rows)


@pytest.mark.parametrize(
    "command", sorted(row["command"] for p in PAGES for row in ROW.finditer(p.read_text()))
)
def test_the_command_of_a_row_has_a_scenario_that_can_be_read(command: str) -> None:
    _, _, scenario, *options = shlex.split(command)
    assert set(options[::2]) <= {"--set"}
    load_scenario(find_scenario(scenario), options[1::2])

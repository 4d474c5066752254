"""Recorded runs: everything that their users can see is as it was. A commit that changes it on
purpose stores the texts anew, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.golden import agree
from tests.kit.recorded import FOLDER, NAMES, unpack
from tests.kit.rendered import grammar, rendered


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_is_rendered_as_before(name: str, tmp_path: Path) -> None:
    parts = rendered(unpack(name, tmp_path / name))
    text = "".join(f"== {part}\n" + "".join(f"{line}\n" for line in parts[part]) for part in parts)
    agree(FOLDER / f"{name}.txt.xz", text)


def test_each_expression_is_allowed_or_refused_as_before() -> None:
    agree(FOLDER / "expressions.txt.xz", "".join(f"{line}\n" for line in grammar()))

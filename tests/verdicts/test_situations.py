"""The verdicts of situations that are provoked on purpose: each must name what was the limit, on a
quiet machine and beside two busy loops. `make verdicts` writes the table of docs/explanation."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.runs import MosquittoMaker, RunMaker
from tests.kit.verdict_table import Row, store
from tests.verdicts.situations import COUNTS, SITUATIONS, Place, Situation, busy_loop

pytestmark = pytest.mark.slow("each situation is a run of some seconds")
LOOPS = {"quiet": 0, "busy": 2}
LATE = "invalid, host"
"""Outcome of a run whose agents were late, since others had the processors."""


@pytest.fixture
def place(tmp_path: Path, mosquitto: MosquittoMaker, start: RunMaker) -> Iterator[Place]:
    with contextlib.ExitStack() as ending:
        yield Place(tmp_path, mosquitto, start, ending)


@pytest.mark.parametrize("each", SITUATIONS, ids=lambda each: each.play.__name__)
@pytest.mark.parametrize("machine", LOOPS)
def test_the_verdict_names_what_was_the_limit(each: Situation, machine: str, place: Place) -> None:
    is_busy = LOOPS[machine] > 0
    if is_busy and not any("invalid" in outcome for outcome in each.expected):
        place.rules = COUNTS
    with contextlib.ExitStack() as busy:
        for _ in range(LOOPS[machine]):
            busy.enter_context(busy_loop())
        try:
            run = each.play(place)
        except pytest.skip.Exception as skipped:
            store(Row(each.name, machine, f"skipped: {skipped}"))
            raise
        run.finish()
    verdict = run.result()["verdict"]
    outcome = f"{verdict['status']}, {verdict['limited_by']}"
    said = json.dumps([verdict["headline"], *verdict["evidence"]])
    if not is_busy or outcome != LATE or "the generator was late" not in said:
        assert outcome in each.expected, said
        assert each.says in said, said
    store(Row(each.name, machine, outcome, verdict["headline"]))

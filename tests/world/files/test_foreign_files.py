"""5,000 damaged run directories and 20,000 scenarios with mistakes: every reader has words for what
it found, and ends in time. Samples of both are among the pure tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import damage, mutation

SEEDS = range(10)
FOLDERS = 500
"""Folders of a seed."""
SCENARIOS = 2000
"""Scenarios of a seed."""


@pytest.mark.slow("reads five hundred run directories")
@pytest.mark.concerns(
    "python/pubstorm/files.py",
    "python/pubstorm/contract/",
    "python/pubstorm/result/",
    "python/pubstorm/report/",
    "python/pubstorm/web/",
    "python/pubstorm/play/",
    "python/pubstorm/measure/",
)
@pytest.mark.parametrize("seed", SEEDS)
def test_readers_of_damaged_runs_have_words(seed: int, tmp_path: Path) -> None:
    damage.survive(seed, FOLDERS, tmp_path)


@pytest.mark.slow("checks two thousand scenarios")
@pytest.mark.concerns("python/pubstorm/scenario/", "python/pubstorm/plan/", "python/pubstorm/host/")
@pytest.mark.parametrize("seed", SEEDS)
def test_scenarios_with_mistakes_have_words(seed: int, tmp_path: Path) -> None:
    mutation.survive(seed, SCENARIOS, tmp_path)

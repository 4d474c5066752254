"""The time that further runs take: by their plans, and by what runs so far took beyond theirs."""

from __future__ import annotations

import pytest

from pubstorm.experiment.player import Outlook, run_s
from pubstorm.experiment.search.strategy import Settings, State, Strategy, TrialOutcome, trials_left
from pubstorm.scenario import parse_scenario

SCENARIO = """
target: mqtt://h
populations: {device: {clients: 100, publications: [{topic: a, rate: 1/s}]}}
stages: [connect: {rate: 50/s}, publish: 30s, hold: 5s, disconnect: {rate: 100/s}]
"""


def test_a_run_takes_its_stages_and_its_pause() -> None:
    assert run_s(parse_scenario(SCENARIO, "s.yaml")) == pytest.approx(2 + 30 + 5 + 1)
    swept = SCENARIO + "sweep: {vary: {seed: [1, 2]}, pause: 7s}\n"
    assert run_s(parse_scenario(swept, "s.yaml")) == pytest.approx(38 + 7)


def test_runs_to_come_take_what_runs_so_far_took_beyond_their_plans() -> None:
    now_s = 0.0
    outlook = Outlook(lambda: now_s)
    assert outlook.of(90, 3) == 90
    for took_s in (34, 38):
        outlook.begin(30)
        now_s += took_s
        outlook.end()
    assert outlook.of(60, 2) == 60 + 2 * 6
    outlook.begin(30)
    outlook.end()
    assert outlook.of(60, 3) == 60 + 3 * 4, "a run is never shorter than its plan"


@pytest.mark.parametrize("limit", [3_000.0, 43_607.0, 900_000.0])
def test_trials_that_are_left_become_fewer_and_end_at_none(limit: float) -> None:
    settings, outcomes = Settings(1000, 1_000_000), list[tuple[float, TrialOutcome]]()
    strategy, estimates = Strategy(settings), [trials_left(Settings(1000, 1_000_000), ())]
    while (following := strategy.next) is not None:
        state: State = "passed" if following.value <= limit else "failed"
        outcomes.append((following.value, TrialOutcome(state)))
        strategy.take(outcomes[-1][1])
        estimates.append(trials_left(settings, outcomes))
    assert estimates[-1] == 0
    assert estimates[0] > 10
    real = len(outcomes)
    late = estimates[real * 2 // 3 :]
    assert all(abs(each - (len(late) - 1 - n)) <= 6 for n, each in enumerate(late))

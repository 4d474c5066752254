"""Answers of searches: intervals, lower bounds, limiting parts, and the validity of a trial."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pubstorm.experiment.search.answer import (
    EVIDENCE_MAX,
    Terms,
    answer_of,
    clients_of,
    evaluated,
    in_words,
    outcome_of,
    question_of,
    uncounted,
)
from pubstorm.experiment.search.strategy import Candidate, Settings, State, Strategy, TrialOutcome
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import THIN_SPACE
from pubstorm.result import (
    LimitedBy,
    RunResult,
    SearchAnswer,
    Status,
    ThresholdOutcome,
    Trial,
    Verdict,
)
from pubstorm.result.interval import Estimate, interval, t_quantile
from pubstorm.result.search import beyond
from pubstorm.scenario import parse_scenario
from tests.kit.example_search import search_of
from tests.kit.measured import measured_run
from tests.pure.experiment.test_pivot import trial as trial_of

TERMS = Terms("per_s", 1.0, "backend.received_per_s", "per_s", 0.95)
EVIDENCE = "device.lost == 0: found 7"


def trial(number: int, value: float, outcome: TrialOutcome) -> Trial:
    """A trial as a run with this outcome leaves it."""
    is_passed, is_failed = outcome.state == "passed", outcome.state == "failed"
    return trial_of(
        number,
        value,
        outcome.figure,
        status=Status.PASS if is_passed else Status.FAIL,
        limited_by=LimitedBy.BROKER if is_failed else LimitedBy.HOST,
        counted=is_passed or is_failed,
        why=None if is_passed or is_failed else "this host was the limit: it was full",
        evidence=(EVIDENCE,) if is_failed else (),
    )


def searched(
    settings: Settings, state_of: Callable[[Candidate], State], *missed: ThresholdOutcome
) -> tuple[Strategy, list[Trial]]:
    """The trials of a search on a system, and what each failing one missed."""
    strategy, trials = Strategy(settings), list[Trial]()
    while (following := strategy.next) is not None:
        state = state_of(following)
        figure = min(following.value, 20_000) if settings.has_figure else None
        outcome = TrialOutcome(state, figure)
        made = trial(len(trials) + 1, following.value, outcome)
        thresholds = missed if state == "failed" else ()
        update = {"thresholds": thresholds, "phase": following.phase}
        trials.append(made.model_copy(update=update))
        strategy.take(outcome)
    return strategy, trials


def limited(limit: float, host: float = 1e12) -> Callable[[Candidate], State]:
    """A system that fails at a limit, on a host that is full beyond another."""

    def state_of(each: Candidate) -> State:
        return "uncounted" if each.value > host else "passed" if each.value <= limit else "failed"

    return state_of


def answered(settings: Settings, limit: float, host: float = 1e12) -> SearchAnswer:
    strategy, trials = searched(settings, limited(limit, host))
    answer = answer_of(trials, strategy.facts, TERMS)
    return answer.model_copy(update={"text": answer.text.replace(THIN_SPACE, " ")})


@pytest.mark.parametrize(
    ("confidence", "degrees", "t"),
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 9, 2.262), (0.99, 4, 4.604), (0.9, 30, 1.697)],
)
def test_quantiles_are_those_of_the_tables(confidence: float, degrees: int, t: float) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(t, abs=0.0006)


def test_the_interval_of_repeats_is_that_of_student() -> None:
    assert interval([10.0, 12.0, 14.0], 0.95) == pytest.approx((12, 7.0317, 16.9683), abs=1e-3)
    assert interval([5.0], 0.95) == (5.0, 5.0, 5.0)


def test_an_answer_has_its_interval_its_limit_and_what_broke() -> None:
    answer = answered(Settings(1000, 1_000_000), 43_607)
    assert answer.best is not None
    assert answer.best.bound == "exact"
    assert answer.best.repeats == 3
    assert answer.best.low <= answer.best.value <= answer.best.high
    assert answer.limited_by is LimitedBy.BROKER
    assert answer.confirmed
    assert answer.best_trial == answer.trials
    assert answer.text.startswith("43")
    assert "passes (3 repeats, 95 % confidence); " in answer.text
    assert f"/s fails, limited by broker: {EVIDENCE}; played again, " in answer.text


def test_an_answer_that_breaks_again_is_the_value_below_it_that_passed() -> None:
    strategy, trials = searched(
        Settings(1000, 1_000_000),
        lambda each: limited(42_700 if each.phase == "confirm" else 43_607)(each),
    )
    answer = answer_of(trials, strategy.facts, TERMS)
    confirmed = trials[-1]
    assert answer.best is not None
    assert answer.confirmed
    assert answer.best.value == answer.confirmed_at == confirmed.value
    assert answer.best_trial == confirmed.number
    assert answer.best.low == confirmed.value < answer.best.high
    assert answer.best.bound == "none"
    said = answer.text.replace(THIN_SPACE, " ")
    assert said.startswith(f"the limit is {answer.best.text}".replace(THIN_SPACE, " "))
    assert " failed and " in said


@pytest.mark.parametrize(
    ("host", "again", "expected"),
    [
        (1e12, "failed", (False, "none", Status.FAIL)),
        (1e12, "uncounted", (None, "none", Status.OPEN)),
        (1e12, "passed", (True, "exact", Status.PASS)),
        (40_000, "failed", (False, "none", Status.FAIL)),
        (40_000, "uncounted", (None, "at_least", Status.OPEN)),
        (40_000, "passed", (True, "at_least", Status.OPEN)),
    ],
)
@pytest.mark.parametrize("retries", [0, 2])
def test_only_an_answer_that_passed_again_passes(
    host: float, again: State, expected: tuple[bool | None, str, Status], retries: int
) -> None:
    def system(each: Candidate) -> State:
        return again if each.phase == "confirm" else limited(43_607, host)(each)

    strategy, trials = searched(Settings(1000, 1_000_000, retries=retries), system)
    answer = answer_of(trials, strategy.facts, TERMS)
    assert answer.best is not None
    found = search_of(trials=tuple(trials), answer=answer)
    confirmed, bound, status = expected
    assert (answer.confirmed, answer.best.bound, found.status) == expected
    said = (answer.headline, answer.text)
    assert [text.startswith("not confirmed: ") for text in said].count(True) == (
        0 if confirmed else 2 if status is Status.FAIL or host > 1e6 else 1
    )
    assert ("passes (3 repeats, 95 % confidence)" in answer.text) == (bound == "exact")
    assert answer.headline.startswith("not found: ") == (status is Status.OPEN and host < 1e6)


def test_the_span_of_an_answer_that_fails_again_begins_below_its_failures() -> None:
    strategy, trials = searched(
        Settings(1000, 1_000_000),
        lambda each: limited(0 if each.phase == "confirm" else 43_607)(each),
    )
    answer = answer_of(trials, strategy.facts, TERMS)
    failures = [value for value, _ in strategy.facts.confirmations]
    assert 2 <= len(failures) <= 3
    assert answer.best is not None
    assert answer.best.low < min(failures) < 43_607 < answer.best.high
    assert any(t.passed and t.value == answer.best.low for t in trials)
    assert answer.best_trial is not None
    ends = (f"{round(each):_}/s" for each in (answer.best.low, answer.best.high))
    span = " to ".join(ends).replace("_", THIN_SPACE)
    assert answer.headline.startswith(f"not confirmed: {span}")
    assert {f"{t.value:.0f}" for t in trials if not t.passed} >= {f"{answer.best.high:.0f}"}


def test_a_search_that_reached_its_bound_is_not_open() -> None:
    strategy, trials = searched(Settings(1000, 8000), limited(1e12))
    answer = answer_of(trials, strategy.facts, TERMS)
    assert answer.best is not None and answer.best.bound == "at_least"
    assert search_of(trials=tuple(trials), answer=answer).status is Status.PASS


@pytest.mark.parametrize(
    ("settings", "limits", "bound", "limited_by", "text"),
    [
        (
            Settings(1000, 10**6, repeat=1),
            (43_607, 1e12),
            "none",
            "broker",
            "the limit is 43.+ … .+",
        ),
        (
            Settings(1000, 10**6),
            (1e12, 43_607),
            "at_least",
            "host",
            "≥ 41.+is not counted: this host was the limit: it was full.*",
        ),
        (
            Settings(1000, 8000),
            (1e12, 1e12),
            "at_least",
            "none",
            "≥ 8 000/s passes; the search goes no further; played again, 8 000/s passed",
        ),
        (Settings(1000, 8000), (0, 1e12), None, "broker", "no value passed; .+"),
    ],
)
def test_an_answer_has_its_bound_its_limit_and_its_words(
    settings: Settings,
    limits: tuple[float, float],
    bound: str | None,
    limited_by: str,
    text: str,
) -> None:
    answer = answered(settings, *limits)
    assert (answer.best and answer.best.bound, answer.limited_by) == (bound, limited_by)
    assert re.fullmatch(text, answer.text)
    if bound == "none":
        assert answer.best is not None and answer.best.low <= limits[0] < answer.best.high


@pytest.mark.parametrize("figure", [False, True], ids=["plain", "figure"])
@pytest.mark.parametrize(
    ("limit", "host"), [(43_607, 1e12), (1e12, 43_607), (1e12, 1e12), (137, 1e12), (0, 1e12)]
)
def test_a_search_that_ends_early_has_the_answer_of_the_trials_that_it_played(
    limit: float, host: float, figure: bool
) -> None:
    settings = Settings(1000, 64_000, retries=0, has_figure=figure)
    _, whole = searched(settings, limited(limit, host))
    strategy, trials = Strategy(settings), list[Trial]()
    for played in whole:
        answer = answer_of(trials, strategy.facts, TERMS)
        found = search_of(trials=tuple(trials), answer=answer)
        passed = [trial.value for trial in trials if trial.passed]
        if not trials:
            assert answer.text == found.remark == "no trial ended"
        elif not passed:
            assert answer.text.startswith("no value passed")
            assert found.remark == "no value passed"
        else:
            assert answer.best is not None and answer.best.low <= max(passed)
            assert answer.best_trial in {trial.number for trial in trials if trial.passed}
            assert "no value passed" not in f"{answer.headline} {answer.text}"
            is_open = "goes no further" not in answer.text and answer.limited_by is None
            reached = any(trial.value >= settings.high for trial in trials)
            assert is_open == (not reached and all(trial.passed for trial in trials))
        figures = [trial.figure for trial in trials if trial.counted and trial.figure is not None]
        assert (answer.most is not None) == bool(figures)
        again = [trial for trial in trials if trial.phase == "confirm"]
        assert found.remark is None or bool(again) == (
            found.remark not in {"no trial ended", "no value passed", "it was not played again"}
        )
        trials.append(played)
        strategy.take(outcome_of(played))


def test_values_that_passed_above_one_that_failed_are_no_answer_and_are_not_denied() -> None:
    def system(each: Candidate) -> State:
        return "passed" if each.value > 1000 else "failed"

    strategy, trials = searched(Settings(1000, 8000, has_figure=True), system)
    answer = answer_of(trials, strategy.facts, TERMS)
    assert answer.best is None
    said = {text.partition(";")[0].replace(THIN_SPACE, " ") for text in answer.statements}
    assert len(said) == 1 and said.pop().startswith("no value passed below those that failed")


def test_the_largest_figure_has_an_interval_of_its_own() -> None:
    answer = answered(Settings(1000, 1_000_000, has_figure=True), 10_000)
    assert answer.most is not None
    assert (answer.most.value, answer.most.repeats, answer.most.bound) == (20_000, 3, "exact")
    assert "the largest backend.received_per_s is 20 000/s, at " in answer.text
    assert answer.most_trial is not None


def test_a_trial_that_does_not_fit_is_not_tried_again_and_one_that_failed_to_start_is() -> None:
    empty = trial(1, 1000, TrialOutcome("passed")).model_copy(
        update={"status": None, "limited_by": None}
    )
    small = uncounted(empty, "it needs 2 GB", LimitedBy.HOST)
    failed = uncounted(empty, "no broker")
    assert outcome_of(small) == TrialOutcome("uncounted", final=True)
    assert outcome_of(failed) == TrialOutcome("uncounted")
    assert in_words(failed) == "is not counted: no broker"


QUESTIONS = """
target: mqtt://h
populations:
  device: {clients: 10, publications: [{topic: "a/{n}", total_rate: 30/s, size: 50B}]}
thresholds: [device.skipped == 0]
"""


@pytest.mark.parametrize(
    ("vary", "ends", "words", "clients"),
    [
        ("publications.0.total_rate", "from: 10/s, to: 1M/s", "{} messages/s in all", 1),
        ("publications.0.rate", "from: 1/s, to: 1k/s", "{} messages/s in all", 10),
        ("publications.0.size", "from: 10B, to: 1kB", "messages of {} of device", 1),
        ("clients", "from: 10, to: 1k", "{} clients", 1),
        ("keep_alive", "from: 10s, to: 60s", "keep_alive {}", 1),
    ],
)
def test_an_answer_speaks_in_the_unit_of_its_question(
    vary: str, ends: str, words: str, clients: int
) -> None:
    search = f"search: {{vary: populations.device.{vary}, {ends}}}\n"
    text = (
        QUESTIONS.replace("total_rate: 30/s", "rate: 3/s") if vary.endswith(".rate") else QUESTIONS
    )
    scenario = parse_scenario(text + search, "s.yaml")
    assert (question_of(scenario), clients_of(scenario)) == (words, clients)


def test_the_rate_of_each_client_is_answered_as_the_load_of_all() -> None:
    strategy, trials = searched(Settings(1000, 64_000, repeat=1), limited(43_607), MISSED)
    terms = replace(TERMS, question="{} messages/s in all", clients=100)
    answer = answer_of(trials, strategy.facts, terms)
    assert answer.best is not None and answer.whole is not None
    assert answer.whole.value == 100 * answer.best.value
    assert answer.of_load == answer.whole
    said = answer.headline.replace(THIN_SPACE, " ")
    assert re.match(
        r"4 3\d0 000 messages/s in all, 43 \d00/s from each client; at 4 3\d0 000/s", said
    )


def test_with_more_than_one_population_the_question_names_one() -> None:
    other = '  other: {clients: 3, publications: [{topic: "b", rate: 1/s}]}\nthresholds'
    text = QUESTIONS.replace("thresholds", other)
    for key, ends, words in (
        ("publications.0.total_rate", "from: 10/s, to: 1M/s", "{} messages/s of device"),
        ("clients", "from: 10, to: 1k", "{} clients of device"),
    ):
        search = f"search: {{vary: populations.device.{key}, {ends}}}\n"
        assert question_of(parse_scenario(text + search, "s.yaml")) == words


def headline(limit: float, outcome: ThresholdOutcome | None, host: float = 1e12) -> str:
    """The headline of a search over total_rate, with what each failing trial missed."""
    missed = () if outcome is None else (outcome,)
    settings = Settings(1000, 64_000, repeat=1)
    strategy, trials = searched(settings, limited(limit, host), *missed)
    terms = replace(TERMS, question="{} messages/s in all")
    return answer_of(trials, strategy.facts, terms).headline.replace(THIN_SPACE, " ")


MISSED = ThresholdOutcome(
    expression="subscriber.latency.p99 <= 100ms",
    figure="subscriber.latency.p99",
    metric="latency",
    found=131_000.0,
    unit="us",
    passed=False,
    text="found 131 ms",
)


def test_a_headline_has_the_answer_and_what_the_next_value_showed() -> None:
    assert re.fullmatch(
        r"43 \d00 messages/s in all; at 43 \d00/s p99 was 131 ms", headline(43_607, MISSED)
    )
    acknowledged = {"metric": "ack_latency", "figure": "publisher.ack_latency.mean"}
    assert "/s mean of acknowledgements was 131 ms" in headline(
        43_607, MISSED.model_copy(update=acknowledged)
    )
    lost = {"metric": "lost", "figure": "device.lost", "found": 7.0, "unit": ""}
    assert headline(43_607, MISSED.model_copy(update=lost)).endswith("/s lost was 7")


def test_a_headline_without_a_figure_beyond_the_answer() -> None:
    assert headline(1e9, None) == "at least 64 000 messages/s in all"
    assert "/s fails, limited by broker: device.lost" in headline(43_607, None)
    ended = headline(1e9, None, host=40_000)
    assert ended.startswith("not found: at least ")
    assert ended.endswith("/s this host was the limit")
    assert headline(0, MISSED) == "no value passed; at 1.95/s p99 was 131 ms"


def test_of_several_attempts_the_one_that_says_most_is_beyond_the_answer() -> None:
    passed = trial(1, 10, TrialOutcome("passed", None))
    host = trial(4, 20, TrialOutcome("uncounted", None))
    generator = host.model_copy(update={"number": 2, "limited_by": LimitedBy.GENERATOR})
    failed = trial(3, 20, TrialOutcome("failed", None))
    higher = trial(5, 30, TrialOutcome("failed", None))
    best = Estimate(value=10, low=10, high=20)
    for said, others in (
        (host, [host, higher]),
        (generator, [generator, host, higher]),
        (failed, [generator, failed, host, higher]),
    ):
        assert beyond([passed, *others], best) is said


POINT = Trial(number=1, value=10, written="10/s", folder="trials/001-10-s", phase="grow")
FULL = "the host's processors were busy for 99.8 % of the time under load"
LATE = "the generator was late: p99 26.1 ms"


def result_of(status: Status, limited_by: LimitedBy, *evidence: str) -> RunResult:
    verdict = Verdict(status=status, limited_by=limited_by, evidence=evidence, thresholds=())
    return RunResult.of(measured_run(), verdict)


@pytest.mark.parametrize(
    ("status", "limited_by", "state", "why"),
    [
        (Status.PASS, LimitedBy.NONE, "passed", None),
        (Status.PASS, LimitedBy.HOST, "passed", None),
        (Status.FAIL, LimitedBy.BROKER, "failed", None),
        (Status.FAIL, LimitedBy.PUBLISHER, "failed", None),
        (Status.FAIL, LimitedBy.UNKNOWN, "failed", None),
        (Status.FAIL, LimitedBy.HOST, "uncounted", f"this host was the limit: {FULL}"),
        (
            Status.INVALID,
            LimitedBy.GENERATOR,
            "uncounted",
            f"the load generator was the limit: {LATE}",
        ),
        (Status.INVALID, LimitedBy.TARGET, "uncounted", f"the run is invalid: {LATE}"),
    ],
)
def test_a_trial_counts_unless_generator_or_host_made_it_fail(
    status: Status, limited_by: LimitedBy, state: str, why: str | None
) -> None:
    # A verdict has the facts about its limit first.
    facts = (FULL, LATE) if limited_by is LimitedBy.HOST else (LATE, FULL)
    result = result_of(status, limited_by, *facts)
    trial = evaluated(POINT, result, None)
    assert outcome_of(trial).state == state
    assert not outcome_of(trial).final
    assert trial.counted == (why is None)
    assert trial.why == why


def test_a_trial_has_its_figure_and_the_first_facts() -> None:
    result = result_of(Status.PASS, LimitedBy.NONE, *map(str, range(9)))
    trial = evaluated(POINT, result, parse_expression("device.clients"))
    assert trial.figure == result.populations["device"].clients
    assert len(trial.evidence) == EVIDENCE_MAX
    missing = evaluated(POINT, result, parse_expression("broker.cpu"))
    assert missing.figure is None
    assert missing.counted

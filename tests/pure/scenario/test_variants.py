"""Variants of a sweep and tables over its steps: what is played, and what is wrong with them."""

from __future__ import annotations

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.scenario import Scenario, Sweep, parse_scenario
from tests.pure.scenario import varied
from tests.pure.scenario.varied import BASE, CLIENTS, RATE, labels

SWEEP = f"{{vary: {{{CLIENTS}: [5, 9]}}, variants: {{slow: , fast: {{{RATE}: 9/s}}}}}}"


def load(sweep: str, *more: str, overrides: tuple[str, ...] = ()) -> Scenario:
    return varied.load(f"sweep: {sweep}", *more, overrides=overrides)


def problems(sweep: str, *more: str) -> list[str]:
    return varied.problems(f"sweep: {sweep}", *more)


def test_each_step_is_played_as_each_variant() -> None:
    steps = load(SWEEP).steps
    assert [step.variation.label for step in steps] == [
        "clients 5, slow",
        "clients 5, fast",
        "clients 9, slow",
        "clients 9, fast",
    ]
    assert [(step.variation.base, step.variation.variant) for step in steps[:2]] == [
        ("clients 5", "slow"),
        ("clients 5", "fast"),
    ]
    device = steps[3].scenario.populations["device"]
    assert (device.clients, device.flows[0].rate) == (9, 9)
    assert steps[3].variation.values == {CLIENTS: 9, RATE: "9/s"}


def test_variants_alone_are_steps() -> None:
    assert labels(variants={"as it is": {}, "fast": {RATE: "9/s"}}) == ["as it is", "fast"]
    named = [{"step": "as written", CLIENTS: 3}, {"step": "few"}]
    assert labels(steps=named, variants={"a": {}})[1] == "few, a"


def test_only_some_variants_can_be_played() -> None:
    sweep = load(SWEEP, overrides=("sweep.only=[fast]",)).sweep
    assert sweep is not None
    assert sweep.played == ("fast",)
    assert sweep.size == 2
    assert [v.label for v in sweep.variations()] == ["clients 5, fast", "clients 9, fast"]


def test_a_ladder_is_one_for_each_of_its_variants() -> None:
    assert Sweep.model_validate(
        {"vary": {CLIENTS: [1, 2]}, "variants": {"b": {}, "a": {}}}
    ).is_ladder


@pytest.mark.parametrize(
    ("sweep", "problem"),
    [
        (
            f"{{vary: {{{CLIENTS}: [5]}}, variants: {{fast: {{{RATE}: soon}}}}}}",
            f"sweep.variants.fast.{RATE}: found 'soon', allowed is a rate",
        ),
        (
            f"{{vary: {{{CLIENTS}: [5]}}, variants: {{few: {{{CLIENTS}: 2}}}}}}",
            f"found '{CLIENTS}', which the steps vary as '{CLIENTS}', allowed are other values",
        ),
        (
            f"{{vary: {{{CLIENTS}: [5]}}, variants: {{few: {{populations.device: {{}}}}}}}}",
            f"found 'populations.device', which the steps vary as '{CLIENTS}'",
        ),
        ("{variants: {fast: }, only: [fats]}", "unknown variant 'fats', allowed are fast"),
        ("{variants: {fast: {tables: {}}}}", "found 'tables', allowed are the other keys"),
        ("{variants: {fast: 5}}", "sweep.variants.fast: found 5, allowed is a mapping"),
        ("{variants: [fast]}", "allowed is a mapping"),
        ("{variants: {}}", "found neither vary nor steps, needed is one of them, or variants"),
    ],
)
def test_a_wrong_variant_says_what_is_allowed(sweep: str, problem: str) -> None:
    found = problems(sweep)
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_table_takes_what_varies_and_the_metrics_of_variants() -> None:
    columns = f"{{n: clients, m: {CLIENTS}, s: step, lost: {{variant: fast, metric: device.lost}}}}"
    tables = load(SWEEP, f"tables: {{t: {columns}}}").tables
    assert {heading: column.metric for heading, column in tables["t"].items()} == {
        "n": "clients",
        "m": CLIENTS,
        "s": "step",
        "lost": "device.lost",
    }


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (
            "device.lost",
            "tables.t.c: found 'device.lost' of no variant, needed is one of slow, fast "
            "[write {variant: slow, metric: device.lost}]",
        ),
        (
            "{variant: fats, metric: device.lost}",
            "unknown variant 'fats', allowed are slow, fast [did you mean fast?]",
        ),
        ("{variant: fast, metric: clients}", "found a variant for 'clients', allowed is none"),
        ("{variant: fast, metric: devise.lost}", "found the unknown population 'devise'"),
        ("{variant: fast, metric: device.lots}", "found 'lots', allowed are the metrics"),
        ("{variant: fast, metric: device.lost@soon}", "found the unknown span 'soon'"),
        (
            "{variant: fast, metric: search.most}",
            "found 'search.most' in a scenario without a search",
        ),
        ("{variant: fast}", "found no 'metric', which is needed"),
    ],
)
def test_a_wrong_column_says_what_is_allowed(column: str, problem: str) -> None:
    found = problems(SWEEP, f"tables: {{t: {{c: {column}}}}}")
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_column_can_ask_for_what_only_its_variant_has() -> None:
    shares = "populations.device.shares: {brief: {part: 50%, lifetime: 1s}}"
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}, variants: {{plain: , brief: {{{shares}}}}}}}"
    asked = "tables: {t: {c: {variant: %s, metric: device/brief.lost}}}"
    assert load(sweep, asked % "brief").tables["t"]["c"].variant == "brief"
    (found,) = problems(sweep, asked % "plain")
    assert "s.yaml:7: tables.t.c.metric: found the unknown population 'device/brief'" in found
    load("null", asked % "brief")


def test_a_figure_can_be_asked_at_a_point_of_a_search() -> None:
    search = f"search: {{vary: {RATE}, from: 1/s, to: 9/s}}"
    more = (search, "thresholds: [device.lost == 0]")
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}}}"
    columns = "{a: 'search.most:device.lost', b: 'search.best:limited_by', c: search.best}"
    assert len(load(sweep, *more, f"tables: {{t: {columns}}}").tables["t"]) == 3
    (found,) = problems(sweep, *more, "tables: {t: {a: 'search.most:devise.lost'}}")
    assert "found the unknown population 'devise'" in found


def test_tables_need_steps_to_make_rows_of() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"{BASE}tables: {{t: {{lost: device.lost}}}}\n", "s.yaml")
    assert "found tables of a scenario without a sweep" in str(caught.value.problems[0])
    alone = parse_scenario(f"{BASE}sweep:\ntables: {{t: {{lost: device.lost}}}}\n", "s.yaml")
    assert alone.steps == ()


def test_a_table_needs_no_variants() -> None:
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}}}"
    columns = load(sweep, "tables: {t: {n: clients, lost: device.lost}}").tables["t"]
    assert columns["lost"].variant is None
    assert problems(sweep, "tables: {t: {}}") == [
        "s.yaml:7: tables.t: found a table without columns, needed is one [None]"
    ]

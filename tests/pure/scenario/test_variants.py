"""Variants of a sweep and tables over its steps: what is played."""

from __future__ import annotations

from pubstorm.scenario import Scenario, Sweep, parse_scenario
from tests.pure.scenario import varied
from tests.pure.scenario.bases import VARIED
from tests.pure.scenario.varied import CLIENTS, RATE, labels

SWEEP = f"{{vary: {{{CLIENTS}: [5, 9]}}, variants: {{slow: , fast: {{{RATE}: 9/s}}}}}}"


def load(sweep: str, *more: str, overrides: tuple[str, ...] = ()) -> Scenario:
    return varied.load(f"sweep: {sweep}", *more, overrides=overrides)


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


def test_a_table_takes_what_varies_and_the_metrics_of_variants() -> None:
    columns = f"{{n: clients, m: {CLIENTS}, s: step, lost: {{variant: fast, metric: device.lost}}}}"
    tables = load(SWEEP, f"tables: {{t: {columns}}}").tables
    assert {heading: column.metric for heading, column in tables["t"].items()} == {
        "n": "clients",
        "m": CLIENTS,
        "s": "step",
        "lost": "device.lost",
    }


def test_a_column_can_ask_for_what_only_its_variant_has() -> None:
    shares = "populations.device.shares: {brief: {part: 50%, lifetime: 1s}}"
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}, variants: {{plain: , brief: {{{shares}}}}}}}"
    asked = "tables: {t: {c: {variant: %s, metric: device/brief.lost}}}"
    assert load(sweep, asked % "brief").tables["t"]["c"].variant == "brief"
    load("null", asked % "brief")


def test_a_figure_can_be_asked_at_a_point_of_a_search() -> None:
    search = f"search: {{vary: {RATE}, from: 1/s, to: 9/s}}"
    more = (search, "thresholds: [device.lost == 0]")
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}}}"
    columns = "{a: 'search.most:device.lost', b: 'search.best:limited_by', c: search.best}"
    assert len(load(sweep, *more, f"tables: {{t: {columns}}}").tables["t"]) == 3


def test_tables_of_a_scenario_without_steps_are_empty() -> None:
    alone = parse_scenario(f"{VARIED}sweep:\ntables: {{t: {{lost: device.lost}}}}\n", "s.yaml")
    assert alone.steps == ()


def test_a_table_needs_no_variants() -> None:
    sweep = f"{{vary: {{{CLIENTS}: [5, 9]}}}}"
    columns = load(sweep, "tables: {t: {n: clients, lost: device.lost}}").tables["t"]
    assert columns["lost"].variant is None

"""Changes of populations: how they are written, checked, named, and what they offer."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.changes import ActiveClients, change_name, unique_name
from pubstorm.contract.plan import AddClients, ChangeRate, Plan, PublishAction, RemoveClients
from pubstorm.errors import ScenarioError, UsageError
from pubstorm.host.explain import offered_load
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.play.changes import AskedChange, parse_change
from pubstorm.quantities import PartOf
from pubstorm.scenario import parse_scenario

SECOND_NS = 10**9
SCENARIO = """\
target: mqtt://localhost
populations:
  all: {{clients: 1, subscriptions: ["#"]}}
  device: {{clients: 100, publications: [{{topic: "d/{{n}}", rate: 1/s}}]}}
  late: {{clients: 50, publications: [{{topic: "l/{{n}}", rate: 2/s}}]}}
stages:
  - connect: {{populations: [all, device]}}
  - publish: {{for: 60s, changes: [{changes}]}}
"""


def plan_with(changes: str) -> Plan:
    scenario = parse_scenario(SCENARIO.format(changes=changes), "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=0)


def problems(changes: str, old: str = "", new: str = "") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SCENARIO.format(changes=changes).replace(old, new), "s.yaml")
    return [f"{each.path}: {each.message}" for each in caught.value.problems]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("add 500 late", AskedChange("late", "add", 500)),
        ("add 1k late over 1min30s", AskedChange("late", "add", 1000, 90 * SECOND_NS)),
        ("add 50% late over 1s", AskedChange("late", "add", PartOf(0.5), SECOND_NS)),
        ("  remove 2  device over 0s ", AskedChange("device", "remove", 2)),
        ("remove 2% device/short", AskedChange("device/short", "remove", PartOf(0.02))),
        ("rate 2 device", AskedChange("device", "rate", 2.0)),
        ("rate 50% device", AskedChange("device", "rate", 0.5)),
        ("rate 0 device", AskedChange("device", "rate", 0.0)),
    ],
)
def test_a_change_is_read_from_words(words: str, asked: AskedChange) -> None:
    assert parse_change(words) == asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "found '', which is no change"),
        ("add 500", "found 'add 500', which is no change"),
        ("add 500 late in 5s", "found 'add 500 late in 5s', which is no change"),
        ("add 500 late over", "found 'add 500 late over', which is no change"),
        ("kill 5 late", "in 'kill 5 late': found 'kill', allowed is add, remove, or rate"),
        ("rate 2 late over 5s", "found 'rate', allowed is add, remove, or rate without over"),
        ("add 0 late", "found '0', allowed is 1 to"),
        ("add 1.5 late", "found '1.5', allowed is a count"),
        ("add many late", "found 'many', allowed is a count"),
        ("rate -1 late", "found '-1', allowed is 0 to 1000000"),
        ("rate 1e99 late", "found '1e99', allowed is"),
        ("add 5 late over 5", "found '5', allowed is a duration"),
    ],
)
def test_what_is_no_change_is_refused_with_what_is_allowed(words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_change(words)
    assert message in caught.value.message
    assert caught.value.hint is not None and "rate 2 POPULATION" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("{at: 1s, population: late}", ": found neither add nor remove nor rate, needed is one"),
        ("{at: 1s, population: late, add: 1, rate: 2}", ": found add and rate, needed is one of"),
        ("{at: 1s, population: late, rate: 2, over: 5s}", ".over: found over with rate, allowed"),
        ("{at: 1s, population: lat, add: 1}", ".population: found the unknown population 'lat'"),
        ("{at: 60s, population: late, add: 1}", ".at: found a change at 1min, allowed is before"),
        (
            "{at: 55s, population: late, add: 1, over: 6s}",
            ".over: found a change until 61s, allowed is until the end of the stage at 1min",
        ),
        (
            "{at: 1s, population: late, add: 51}",
            ".add: found 51, allowed is up to 50: 0 of 50 clients are active at 1s",
        ),
        (
            "{at: 1s, population: device, add: 1}",
            ".add: found 1, allowed is up to 0: 100 of 100 clients are active at 1s",
        ),
        (
            "{at: 1s, population: late, remove: 1}",
            ".remove: found 1, allowed is up to 0: no more clients are active at 1s",
        ),
        ("{at: 1s, population: late, add: 0}", ".add: found 0, allowed is 1 to"),
        ("{at: 1s, population: late, rate: -1}", ".rate: found -1, allowed is"),
    ],
)
def test_a_change_that_cannot_be_is_found_before_the_run(change: str, problem: str) -> None:
    (found,) = problems(change)
    assert found.startswith(f"stages.1.publish.changes.0{problem}")


def test_clients_are_followed_in_the_order_of_time() -> None:
    back = "{at: 30s, population: late, remove: 30}, {at: 20s, population: late, add: 30}"
    assert plan_with(back).stages[1].action.kind == "publish"
    (found,) = problems(back.replace("remove: 30", "remove: 31"))
    assert found.startswith("stages.1.publish.changes.0.remove: found 31, allowed is up to 30")


def test_a_population_that_is_not_in_the_stage_cannot_change_in_it() -> None:
    change = "{at: 1s, population: late, add: 1}"
    (found,) = problems(change, "{for:", "{populations: [device], for:")
    assert "found a change of population late, which is not in this stage" in found


def test_a_stage_may_begin_without_clients_where_clients_are_added() -> None:
    text = SCENARIO.format(changes="{at: 0s, population: late, add: 5}")
    text = text.replace("[all, device]", "[all]").replace("publish: {", "publish: {name: p, ")
    assert [stage.name for stage in parse_scenario(text, "s.yaml").stages] == ["connect", "p"]


def test_phases_have_names_of_their_own() -> None:
    changes = (
        "{at: 40s, population: device, rate: 2}, {at: 10s, population: late, add: 5, over: 1s},"
        "{at: 20s, population: late, remove: 5}, {at: 30s, population: late, add: 5},"
        "{at: 50s, population: device, rate: 0.5, name: publish}"
    )
    action = plan_with(changes).stages[1].action
    assert isinstance(action, PublishAction)
    names = ["+5 late", "-5 late", "+5 late (2)", "2 × device", "publish (2)"]
    assert [change.name for change in action.changes] == names
    assert action.changes[0].after_ns == 10 * SECOND_NS
    assert action.changes[0].action == AddClients(clients=5, over_ns=SECOND_NS)


def test_names_say_what_changes() -> None:
    assert change_name(ChangeRate(factor=0.5), "a") == "0.5 × a"
    assert unique_name("a", ["a", "a (2)"]) == "a (3)"


def test_active_follows_stages_and_changes() -> None:
    plan = plan_with("{at: 1s, population: late, add: 20}, {at: 2s, population: device, remove: 9}")
    active = ActiveClients(plan)
    active.change(2, AddClients(clients=70, over_ns=0))
    active.change(1, RemoveClients(clients=5, over_ns=0))
    assert active.counts == [0, 0, 50]
    other = active.copy()
    other.change(2, RemoveClients(clients=20, over_ns=0))
    assert (active.counts[2], other.counts[2]) == (50, 30)
    assert other.fits(2, AddClients(clients=20, over_ns=0))
    assert not other.fits(2, AddClients(clients=21, over_ns=0))
    assert not other.fits(2, RemoveClients(clients=31, over_ns=0))


CHANGING = (
    "{at: 20s, population: late, add: 50}, {at: 30s, population: device, rate: 3},"
    "{at: 50s, population: late, remove: 50}"
)


def test_the_offered_load_is_reported_phase_by_phase() -> None:
    plan = plan_with(CHANGING)
    load = offered_load(plan).stages[1]
    phases = [(p.name, p.seconds, p.clients, p.sent_per_s) for p in load.phases]
    assert phases == [
        ("publish", 20, (1, 100, 0), 100),
        ("+50 late", 10, (1, 100, 50), 200),
        ("3 × device", 20, (1, 100, 50), 400),
        ("-50 late", 10, (1, 100, 0), 300),
    ]
    assert (load.sent_total, load.delivered_total) == (15_000, 15_000)
    assert offered_load(plan).peak_per_s == 800


def test_a_check_says_changes_in_words() -> None:
    scenario = parse_scenario(SCENARIO.format(changes=CHANGING), "s.yaml")
    plan = compile_plan(scenario, planned_targets(scenario), run_tag=0)
    lines = [line.strip() for line in plan_in_words(scenario, plan)]
    start = lines.index("about 100 sent/s and 100 delivered/s")
    assert lines[start + 1 : start + 5] == [
        "at 20s: +50 late, about 200 sent/s and 200 delivered/s",
        "at 30s: 3 × device, about 400 sent/s and 400 delivered/s",
        "at 50s: -50 late, about 300 sent/s and 300 delivered/s",
        "15,000 sent and 15,000 delivered in all",
    ]

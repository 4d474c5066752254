"""Changes of populations: how they are written, checked, named, and what they offer."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.commands import ActiveClients, change_name, unique_name
from pubstorm.contract.plan import AddClients, ChangeRate, Plan, PublishAction, RemoveClients
from pubstorm.host.binaries import offered_load
from pubstorm.play.changes import AskedChange, parse_change
from pubstorm.quantities import PartOf
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import CHANGING, changed, plan_of

SECOND_NS = 10**9


def text_with(changes: str) -> str:
    return changed(CHANGING, f"stages.1.publish.changes: [{changes}]")


def plan_with(changes: str) -> Plan:
    return plan_of(text_with(changes))


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("add 500 late", AskedChange("late", "add", 500)),
        ("add 1k late over 1min30s", AskedChange("late", "add", 1000, 90 * SECOND_NS)),
        ("add 50% late over 1s", AskedChange("late", "add", PartOf(0.5), SECOND_NS)),
        ("  remove 2  device over 0s ", AskedChange("device", "remove", 2)),
        ("remove 2% device/short", AskedChange("device/short", "remove", PartOf(0.02))),
        (
            "migrate 50% device over 5s",
            AskedChange("device", "migrate", PartOf(0.5), 5 * SECOND_NS),
        ),
        ("rate 2 device", AskedChange("device", "rate", 2.0)),
        ("rate 50% device", AskedChange("device", "rate", 0.5)),
        ("rate 0 device", AskedChange("device", "rate", 0.0)),
    ],
)
def test_a_change_is_read_from_words(words: str, asked: AskedChange) -> None:
    assert parse_change(words) == asked


def test_clients_are_followed_in_the_order_of_time() -> None:
    back = "{at: 30s, population: late, remove: 30}, {at: 20s, population: late, add: 30}"
    assert plan_with(back).stages[1].action.kind == "publish"


def test_a_stage_may_begin_without_clients_where_clients_are_added() -> None:
    change = "stages.1.publish.changes: [{at: 0s, population: late, add: 5}]"
    connect = "stages.0.connect.populations: [all], stages.1.publish.name: p"
    text = changed(CHANGING, f"{change}, {connect}")
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
    assert change_name(ChangeRate(factor=0), "a") == "pause a"
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


PHASES = (
    "{at: 20s, population: late, add: 50}, {at: 30s, population: device, rate: 3},"
    "{at: 50s, population: late, remove: 50}"
)


def test_the_offered_load_is_reported_phase_by_phase() -> None:
    plan = plan_with(PHASES)
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
    scenario = parse_scenario(text_with(PHASES), "s.yaml")
    lines = [line.strip() for line in plan_in_words(scenario, plan_with(PHASES))]
    start = lines.index("about 100 sent/s and 100 delivered/s")
    assert lines[start + 1 : start + 5] == [
        "at 20s: +50 late, about 200 sent/s and 200 delivered/s",
        "at 30s: 3 × device, about 400 sent/s and 400 delivered/s",
        "at 50s: -50 late, about 300 sent/s and 300 delivered/s",
        "15,000 sent and 15,000 delivered in all",
    ]

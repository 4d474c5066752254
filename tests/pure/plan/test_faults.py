"""Faults: how they are written and named, which brokers and bridges they hit, and how
expressions ask what came of them."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import PublishAction
from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan
from pubstorm.plan.stages import Commands, PlannedFault, faulty_bridges, planned_faults
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.base import default_of
from pubstorm.scenario.faults import Fault, tcp_address
from pubstorm.scenario.load import find_scenario
from pubstorm.scenario.topology import Mosquitto
from tests.pure.scenario.bases import FAULTY, changed

SECOND_NS = 10**9


def scenario(faults: str, later: str = "", more: str = "seed: 1") -> Scenario:
    first = f"stages.1.publish.faults: [{faults}], stages.2.hold.faults: [{later}]"
    return parse_scenario(changed(FAULTY, f"{first}, {more}"), "s.yaml")


def planned(faults: str, later: str = "") -> tuple[PlannedFault, ...]:
    return planned_faults(scenario(faults, later))


def test_a_fault_hits_all_of_a_name_or_one_of_them() -> None:
    one, all_, single = planned(
        "{at: 1s, kill: boxes-7}, {at: 10s, freeze: boxes, for: 2s}, {at: 20s, kill: cloud}"
    )
    assert one.victims == ("boxes-7",)
    assert all_.victims == tuple(f"boxes-{n}" for n in range(20))
    assert single.victims == ("cloud-0",)
    assert (one.kind, one.after_ns, one.lasts_ns) == ("kill", SECOND_NS, SECOND_NS)
    assert [one.name, all_.name, single.name] == ["kill boxes-7", "freeze boxes", "kill cloud"]


def test_bridges_are_cut_and_delayed_by_their_names() -> None:
    cut, stalled, delay = planned(
        "{at: 1s, cut: up-3}, {at: 5s, cut: up, how: stall, for: 2s}",
        "{at: 1s, delay: up, by: 200ms, for: ever}",
    )
    assert (cut.victims, cut.how) == (("up-3",), "close")
    assert (len(stalled.victims), stalled.how) == (20, "stall")
    assert (delay.stage, delay.delay_ns, delay.lasts_ns) == (2, 200_000_000, None)


def test_a_command_breaks_what_the_run_does_not_know() -> None:
    restart, undone, lasting = planned(
        "{at: 1s, command: systemctl restart x, repaired_when: 'tcp :1883', timeout: 5s}, "
        "{at: 9s, command: a, repair: b, for: 3s, name: outage}",
        "{at: 1s, command: a, for: ever}",
    )
    assert restart.commands == Commands("systemctl restart x", None, "tcp :1883", 5 * SECOND_NS)
    assert (restart.name, restart.kind, restart.victims) == ("command", "command", ())
    assert (restart.lasts_ns, undone.lasts_ns, lasting.lasts_ns) == (0, 3 * SECOND_NS, None)
    assert undone.commands == Commands("a", "b", None, 60 * SECOND_NS)
    assert undone.name == "outage"


@pytest.mark.parametrize(
    ("condition", "address"),
    [
        ("tcp :1883", ("localhost", 1883)),
        ("tcp broker.example:8883", ("broker.example", 8883)),
        ("tcp [::1]:1883", ("::1", 1883)),
        ("tcpdump -c 1 port 1883", None),
        ("tcp-check.sh", None),
        ("ssh broker tcp :1", None),
    ],
)
def test_the_end_of_a_command_is_an_address_or_a_line(
    condition: str, address: tuple[str, int] | None
) -> None:
    (found,) = planned(f"{{at: 1s, command: a, repaired_when: '{condition}'}}")
    assert found.commands is not None
    assert tcp_address(found.commands.repaired_when or "") == address


def test_commands_may_overlap_with_each_other_and_with_faults_of_the_run() -> None:
    faults = "{at: 1s, command: a, for: ever}, {at: 2s, kill: cloud}, {at: 2s, command: b, "
    assert [f.name for f in planned(f"{faults}repaired_when: c}}")] == [
        "command",
        "kill cloud",
        "command (2)",
    ]


def test_bridges_that_faults_touch_are_known_beforehand() -> None:
    assert faulty_bridges(scenario("{at: 1s, cut: up-3}")) == {"up"}
    assert faulty_bridges(scenario("{at: 1s, kill: boxes}")) == set()
    assert faulty_bridges(scenario(""), scenario("", "{at: 1s, delay: up, by: 1s}")) == {"up"}


def test_chance_is_a_matter_of_the_seed() -> None:
    faults = "{at: 1s, kill: boxes, count: 5}"
    (first,), (again,) = planned(faults), planned(faults)
    assert first == again
    assert len(set(first.victims)) == 5
    assert first.numbers == tuple(sorted(first.numbers))
    others = {
        planned_faults(scenario(faults, more=f"seed: {seed}"))[0].numbers for seed in range(9)
    }
    assert len(others) > 1


def test_two_faults_of_a_stage_are_not_the_same_ones() -> None:
    faults = ", ".join(f"{{at: {at}s, kill: boxes, count: 5}}" for at in (1, 10, 20))
    found = planned(faults)
    assert [f.name for f in found] == ["kill 5 boxes", "kill 5 boxes (2)", "kill 5 boxes (3)"]
    assert len({fault.numbers for fault in found}) > 1


def test_faults_and_changes_share_the_names_of_phases_in_the_order_of_time() -> None:
    changes = "[{at: 9s, population: device, remove: 1, name: kill cloud}]"
    played = scenario(
        "{at: 30s, kill: cloud}, {at: 5s, freeze: boxes-1}",
        more=f"stages.1.publish.changes: {changes}",
    )
    assert played.stages[1].phases == ("freeze boxes-1", "kill cloud", "kill cloud (2)")
    action = provisional_plan(played).stages[1].action
    assert isinstance(action, PublishAction)
    assert [change.name for change in action.changes] == ["kill cloud"]


def test_a_fault_of_a_broker_that_a_target_stands_for_says_what_to_do() -> None:
    path = find_scenario("bridge-faults")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, [], "mqtt://127.0.0.1")
    (problem,) = caught.value.problems
    assert problem.path == "stages.1.publish.faults.3.kill"
    assert "--target" in (problem.hint or "")


def test_bridge_faults_allows_what_its_killed_brokers_lose_and_send_again() -> None:
    """A broker that was killed is as it was at its last save, which mosquitto looks after each
    second: so at most two intervals of what went through it are lost or come twice."""
    ready = load_scenario(find_scenario("bridge-faults"))
    plan = provisional_plan(ready)
    (load,) = (stage.action for stage in plan.stages if isinstance(stage.action, PublishAction))
    assert ready.topology is not None
    brokers = ready.topology.brokers
    share = 0.0
    for fault in (each for each in planned_faults(ready) if each.kind == "kill"):
        name = fault.victims[0].rpartition("-")[0]
        broker = brokers[name]
        assert isinstance(broker, Mosquitto) and isinstance(broker.count, int)
        saved_s = 2 * int(str(broker.settings["autosave_interval"]))
        share += saved_s * SECOND_NS / load.duration_ns * len(fault.victims) / broker.count
    assert share == pytest.approx(2 / 240 * (1 + 50 / 1000))
    allowed = {str(each.expression): each.value for each in ready.thresholds if each.op == "<"}
    for population in ("cloud-once", "cloud-least", "timebox"):
        assert allowed[f"{population}.loss"] > share
    published = 1000 * load.duration_ns / (5 * SECOND_NS)
    assert allowed["cloud-once.duplicate"] > share * published
    zero = {each.expression.metric for each in ready.thresholds if each.op != "<"}
    assert zero == {"connected"}


def test_check_hints_at_clients_that_will_not_come_back() -> None:
    never = "populations.device.reconnect: never"
    found = scenario("{at: 1s, kill: cloud}", "{at: 1s, kill: boxes}", never)
    plan = provisional_plan(found)
    hints = [line.strip() for line in plan_in_words(found, plan) if "hint" in line]
    assert hints == ["hint: clients of device do not come back: their reconnect is never"]


def test_check_shows_what_a_shell_will_run() -> None:
    found = scenario(
        "{at: 1s, command: a, repaired_when: 'tcp :1'}, {at: 2s, command: a, for: ever}, "
        "{at: 3s, command: a, repair: b}, {at: 9s, command: a, repair: b, repaired_when: c}"
    )
    plan = provisional_plan(found)
    shown = [line.strip() for line in plan_in_words(found, plan) if " run a" in line]
    assert shown == [
        "at 1s: run a, repaired when tcp :1 accepts a connection",
        "at 2s: run a, not repaired in this run",
        "at 3s: run a, after 1s b",
        "at 9s: run a, after 1s b, repaired when c exits with 0",
    ]


def test_the_default_time_of_a_fault_can_be_written_as_the_reference_shows_it() -> None:
    shown = default_of(Fault.model_fields["lasts"])
    assert shown == "1s"
    (by_default,) = planned("{at: 1s, kill: cloud}")
    (written,) = planned(f"{{at: 1s, kill: cloud, for: {shown}}}")
    assert written == by_default

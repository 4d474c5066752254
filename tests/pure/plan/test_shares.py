"""Shares of populations, lives, parts that stages bring up, scale: from the file to the plan."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.offered_load import clients_at, target_of
from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    Plan,
    PlannedLifetime,
    PublishAction,
    RemoveClients,
)
from pubstorm.host.binaries import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.quantities import PartOf
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.kinds import MqttClients, MqttDifference
from pubstorm.scenario.shares import PlannedClients, meant_by, shares_of
from pubstorm.scenario.stages import Change
from tests.pure.scenario.bases import SHARED, changed

SECOND_NS = 10**9


def scenario(changes: str = "", *overrides: str) -> Scenario:
    text = changed(SHARED, f"stages.3.publish.changes: [{changes}]")
    return parse_scenario(text, "s.yaml", overrides)


def plan(changes: str = "", *overrides: str) -> Plan:
    return provisional_plan(scenario(changes, *overrides))


def test_a_share_is_a_population_of_the_plan_with_the_last_numbers() -> None:
    found = [(p.name, p.whole, p.first, p.clients) for p in plan().populations]
    assert found == [
        ("backend", None, 0, 1),
        ("device/rest", "device", 5, 690),
        ("device/brief", "device", 695, 10),
        ("device/sure", "device", 705, 200),
        ("device/slow", "device", 905, 100),
    ]
    assert plan().wholes == {"device": (1, 2, 3, 4)}


def test_clients_of_a_share_are_called_as_those_of_the_whole() -> None:
    for population in plan().populations[1:]:
        assert (population.client_id, population.username) == ("device-{n}", "user{n}")
        assert population.of == "device"


def test_what_a_share_says_takes_the_place_of_what_the_population_says() -> None:
    _, rest, brief, sure, slow = plan().populations
    assert rest.lifetime is None and rest.reconnect is not None and rest.read_rate_per_s is None
    life = PlannedLifetime(min_ns=60 * SECOND_NS, max_ns=300 * SECOND_NS, offline_ns=30 * SECOND_NS)
    assert brief.lifetime == life
    assert [brief.subscriptions, brief.publications] == [rest.subscriptions, rest.publications]
    assert {sure.subscriptions[0].qos, sure.publications[0].qos} == {1}
    assert (sure.keep_alive_s, rest.keep_alive_s) == (300, 60)
    assert (slow.read_rate_per_s, slow.reconnect) == (2.0, None)
    assert (slow.delayed_acks, rest.delayed_acks) == (True, False)
    assert [each.filter for each in slow.subscriptions] == ["down/all"]


def test_a_population_of_shares_alone_has_no_rest() -> None:
    whole = plan("", "populations.device.shares.slow.part=79%")
    assert [p.name for p in whole.populations[1:]] == ["device/brief", "device/sure", "device/slow"]
    assert sum(p.clients for p in whole.populations[1:]) == 1000


def test_a_share_can_live_for_ever_in_a_population_that_does_not() -> None:
    lives = plan(
        "", "populations.device.lifetime=10s", "populations.device.shares.slow.lifetime=never"
    )
    found = [p.lifetime and p.lifetime.max_ns / SECOND_NS for p in lives.populations]
    assert found == [None, 10, 300, 10, None]


parts = st.lists(st.floats(0, 1), max_size=6).filter(lambda each: sum(each) <= 1)


@given(clients=st.integers(1, 10**6), shares=parts, first=st.integers(0, 10**6))
def test_shares_take_every_number_once(clients: int, shares: list[float], first: int) -> None:
    named = {f"s{n}": MqttDifference(part=part) for n, part in enumerate(shares)}
    population = MqttClients(clients=clients, first=first, shares=named)
    read = Scenario.model_validate({"populations": {"p": population}})
    found = list(shares_of(read).values())
    starts = [0, *accumulate(played.clients for played in found)]
    assert starts[-1] == clients
    assert [played.start for played in found] == starts[:-1]
    assert [d.population.first for d in found] == [first + start for start in starts[:-1]]
    for played in found:
        if played.share in named:
            assert abs(played.clients - named[played.share].part * clients) <= 1


def test_a_name_means_a_share_or_all_of_them() -> None:
    found = shares_of(scenario())
    shares = ("device/rest", "device/brief", "device/sure", "device/slow")
    assert meant_by(found, "device") == shares
    assert meant_by(found, "device/sure") == ("device/sure",)
    assert meant_by(found, "backend") == ("backend",)
    assert meant_by(found, "device/none") == ()


def test_a_stage_brings_up_a_part_of_each_share() -> None:
    actions = [stage.action for stage in plan().stages]
    assert [a.clients for a in actions if isinstance(a, ConnectAction)] == [
        None,
        (345, 5, 100, 50),
        None,
    ]


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ("10%", (69, 1, 20, 10)),
        ("{device: 10%}", (69, 1, 20, 10)),
        ("{device/sure: 7}", (690, 10, 7, 100)),
        ("{device: 50%, device/sure: 7}", (345, 5, 7, 50)),
        ("100%", (690, 10, 200, 100)),
    ],
)
def test_the_part_can_differ_by_population(clients: str, expected: tuple[int, ...]) -> None:
    action = plan("", f"stages.1.connect.clients={clients}").stages[1].action
    assert isinstance(action, ConnectAction) and action.clients == expected


def test_a_change_of_the_whole_is_one_of_each_share_with_one_name() -> None:
    changes = (
        "{at: 10s, population: device, remove: 50%, over: 5s}, "
        "{at: 20s, population: device, rate: 2}, {at: 30s, population: device/sure, add: 10}"
    )
    action = plan(changes).stages[3].action
    assert isinstance(action, PublishAction)
    found = [(c.name, c.population, c.action) for c in action.changes]
    removed = [RemoveClients(clients=n, over_ns=5 * SECOND_NS) for n in (345, 5, 100, 50)]
    assert found == [
        *(("-50% device", n, action) for n, action in enumerate(removed, 1)),
        *(("2 × device", n, ChangeRate(factor=2)) for n in range(1, 5)),
        ("+10 device/sure", 3, AddClients(clients=10, over_ns=0)),
    ]


def test_halves_of_an_odd_number_add_up() -> None:
    text = """
target: mqtt://localhost
populations: {p: {clients: 3, publications: [{topic: t, rate: 1/s}]}}
stages:
  - publish:
      for: 9s
      changes:
        - {at: 1s, population: p, add: 50%}
        - {at: 2s, population: p, add: 50%}
        - {at: 3s, population: p, remove: 50%}
        - {at: 4s, population: p, remove: 50%}
"""
    read = parse_scenario(text, "s.yaml")
    action = provisional_plan(read).stages[0].action
    assert isinstance(action, PublishAction)
    moved = [c.action.clients for c in action.changes if not isinstance(c.action, ChangeRate)]
    assert moved == [2, 1, 1, 2]


steps = st.lists(st.tuples(st.sampled_from(("add", "remove")), st.integers(1, 100)), max_size=8)


@given(clients=st.integers(100, 5000), changes=steps)
def test_changes_in_percent_leave_no_client_behind(
    clients: int, changes: list[tuple[str, int]]
) -> None:
    read = scenario("", f"populations.device.clients={clients}")
    planned, there = PlannedClients(read), 0
    for kind, percent in changes:
        amount = PartOf(percent / 100)
        change = Change.model_validate({"at": "1s", "population": "device", kind: str(amount)})
        moved = planned.change(change)
        there = min(max(there + (percent if kind == "add" else -percent), 0), 100)
        shares = of_device(planned)
        for name in shares:
            exact = planned.shares[name].clients * there / 100
            assert abs(planned.count([name]) - exact) <= 0.5
        assert set(moved) <= set(shares) and all(count > 0 for count in moved.values())
    if there in {0, 100}:
        assert planned.count(of_device(planned)) == clients * there // 100


def of_device(planned: PlannedClients) -> tuple[str, ...]:
    return meant_by(planned.shares, "device")


def test_a_change_of_all_shares_is_one_phase_of_the_load() -> None:
    found = plan("{at: 20s, population: device, remove: 50%}")
    load = offered_load(found).stages[3]
    assert [phase.name for phase in load.phases] == ["publish", "-50% device"]
    assert load.phases[0].clients == (1, 690, 10, 200, 100)
    assert load.phases[1].clients == (1, 345, 5, 100, 50)
    # Of ten clients that stay 180 s in the mean and are offline for 30 s, 8.57 are active.
    assert load.phases[0].sent_per_s == pytest.approx(990 + 10 * 180 / 210)


def test_the_share_of_a_life_that_is_spent_there_is_the_mean() -> None:
    assert PlannedLifetime(min_ns=10, max_ns=50, offline_ns=10).share_there == pytest.approx(0.75)
    assert PlannedLifetime(min_ns=10, max_ns=50, offline_ns=None).share_there == 1


def test_scale_multiplies_every_number_of_clients() -> None:
    changes = "{at: 9s, population: device/sure, remove: 30}"
    tenth = plan(changes, "scale=0.1", "stages.1.connect.clients={device/sure: 50, device: 20%}")
    assert [p.clients for p in tenth.populations] == [1, 69, 1, 20, 10]
    connect, publish = tenth.stages[1].action, tenth.stages[3].action
    assert isinstance(connect, ConnectAction) and connect.clients == (14, 0, 5, 2)
    assert isinstance(publish, PublishAction)
    assert publish.changes[0].action == RemoveClients(clients=3, over_ns=0)
    assert scenario(changes, "scale=1000%").populations["device"].clients == 10_000


def test_clients_of_all_shares_go_to_the_targets_in_one_turn() -> None:
    targets = "target: ['mqtt://a', 'mqtt://b', 'mqtt://c']"
    at = "populations.device.first: null, populations.device.at: {brokers: target, shift: 1}"
    read = parse_scenario(changed(SHARED, f"{targets}, {at}"), "s.yaml")
    compiled = provisional_plan(read)
    whole = [
        target_of(compiled, index, client)
        for index in compiled.wholes["device"]
        for client in range(compiled.populations[index].clients)
    ]
    assert whole == [(client + 1) % 3 for client in range(1000)]
    for index in compiled.wholes["device"]:
        every = sorted(c for target in range(3) for c in clients_at(compiled, index, target))
        assert every == list(range(compiled.populations[index].clients))
        for target in range(3):
            found = clients_at(compiled, index, target)
            assert all(target_of(compiled, index, client) == target for client in found)


def test_timers_wait_for_each_other_a_small_part_of_the_lateness_that_is_valid() -> None:
    assert plan().coalescing_ns == 1_000_000
    assert plan("", "validity.lateness_p99=1ms").coalescing_ns == 100_000
    assert plan("", "validity.lateness_p99=1s").coalescing_ns == 1_000_000
    assert plan("", "fleet.coalescing=0s").coalescing_ns == 0
    assert plan("", "fleet.coalescing=3ms").coalescing_ns == 3_000_000


def test_stalls_are_not_sought_over_bridges_or_unless_asked() -> None:
    assert plan().stall_ns == 10 * SECOND_NS
    assert plan("", "stall_after=never").stall_ns is None
    assert plan("", "stall_after=3s").stall_ns == 3 * SECOND_NS


def test_shares_and_lives_are_described_in_words() -> None:
    read = scenario("{at: 20s, population: device, remove: 50%}")
    words = list(plan_in_words(read, provisional_plan(read)))
    lines = [line.strip() for line in words]
    assert (
        "device/brief: 10 clients, numbers 695 to 704, clean session, keep-alive 60s, "
        "stays 1min to 5min, back after 30s"
    ) in lines
    assert any(
        line.startswith("2. connect (device): 500 of 1,000 clients, 100 at") for line in lines
    )
    change = "at 20s: -50% device: -345 device/rest, -5 device/brief, -100 device/sure, -50 device/"
    assert any(line.startswith(change) for line in lines)

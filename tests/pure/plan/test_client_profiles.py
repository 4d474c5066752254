"""Client profiles of publish and hold stages: the changes of a plan that follow them."""

from __future__ import annotations

from math import cos, tau
from pathlib import Path

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import AddClients, HoldAction, Plan, PublishAction, RemoveClients
from pubstorm.host.binaries import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import RATED, changed

SECOND_NS = 10**9
PROFILES = "stages.1.publish.client_profiles"


def plan(*overrides: str, text: str = RATED, file: str = "s.yaml") -> Plan:
    return provisional_plan(parse_scenario(text, file, overrides))


def steps(planned: Plan) -> list[tuple[str, float, int, float]]:
    """Population, second, clients more (or fewer), and the seconds that the change takes."""
    action = planned.stages[1].action
    assert isinstance(action, PublishAction | HoldAction)
    found = []
    for change in action.changes:
        assert isinstance(change.action, AddClients | RemoveClients)
        more = change.action.clients * (1 if change.action.kind == "add" else -1)
        name = planned.populations[change.population].name
        after_s, over_s = change.after_ns / SECOND_NS, change.action.over_ns / SECOND_NS
        found.append((name, after_s, more, over_s))
    return found


def of_device(profile: str, *overrides: str) -> list[tuple[float, int, float]]:
    return [step[1:] for step in steps(plan(f"{PROFILES}={{device: {profile}}}", *overrides))]


@pytest.mark.parametrize(
    ("points", "changes"),
    [
        ("{at: 0s, clients: 100}", []),
        ("{at: 0s, clients: 100}, {at: 10s, clients: 100}", []),
        ("{at: 4s, clients: 40}", [(0, -60, 0)]),
        ("{at: 0s, clients: 100}, {at: 5s, clients: 20}", [(0, -80, 5)]),
        ("{at: 0s, clients: 50}, {at: 5s, clients: 0}", [(0, -50, 0), (0, -50, 5)]),
        (
            "{at: 0s, clients: 50%}, {at: 2s, clients: 50%}, {at: 2s, clients: 10%}, "
            "{at: 10s, clients: 100%}",
            [(0, -50, 0), (2, -40, 0), (2, 90, 8)],
        ),
        ("{at: 0s, clients: 100}, {at: 10s, clients: 90}, {at: 10s, clients: 1}", [(0, -10, 10)]),
    ],
)
def test_the_clients_are_on_lines_between_points(
    points: str, changes: list[tuple[float, int, float]]
) -> None:
    assert of_device(f"{{points: [{points}]}}") == changes


def test_a_profile_of_a_hold_stage_moves_the_same_clients_and_the_next_stage_goes_on() -> None:
    points = "{points: [{at: 0s, clients: 100}, {at: 4s, clients: 20}, {at: 5s, clients: 80}]}"
    profiles = f"client_profiles: {{device: {points}}}"
    stages = f"[connect, {{hold: {{for: 10s, {profiles}}}}}, {{publish: 10s}}]"
    read = parse_scenario(RATED, "s.yaml", [f"stages={stages}"])
    planned = provisional_plan(read)
    assert isinstance(planned.stages[1].action, HoldAction)
    assert [step[1:] for step in steps(planned)] == of_device(points)
    load = offered_load(planned)
    index = next(i for i, p in enumerate(planned.populations) if p.name == "device")
    assert [phase.clients[index] for phase in load.stages[1].phases] == [100, 20, 80]
    assert [phase.sent_per_s for phase in load.stages[1].phases] == [0, 0, 0]
    assert load.stages[2].phases[0].clients[index] == 80
    words = "\n".join(plan_in_words(read, planned))
    counts = "device follows its profile: 20 to 100 clients, 2 changes"
    assert f"{counts}: joins at up to 60/s, leaves at up to 20/s" in words


def test_the_first_point_counts_from_the_clients_that_are_active() -> None:
    some = "stages.0.connect.clients={device: 10}"
    assert of_device("{points: [{at: 0s, clients: 10}, {at: 9s, clients: 60}]}", some) == [
        (0, 50, 9)
    ]
    less = of_device("{factor: 0.5, points: [{at: 0s, clients: 10}, {at: 9s, clients: 60}]}", some)
    assert less == [(0, -5, 0), (0, 25, 9)]


def test_a_scale_multiplies_the_clients_of_points_and_files(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("time,clients\n0,100\n10,0\n")
    numbers = "{points: [{at: 0s, clients: 100}, {at: 10s, clients: 0}]}"
    parts = "{points: [{at: 0s, clients: 100%}, {at: 10s, clients: 0%}]}"
    for profile in (numbers, parts, f"{{csv: {tmp_path}/day.csv}}"):
        assert of_device(profile, "scale=0.5") == [(0, -50, 10)]


def test_a_sweep_varies_the_factor() -> None:
    points = "{points: [{at: 0s, clients: 50}, {at: 10s, clients: 25}]}"
    sweep = f"sweep={{vary: {{{PROFILES}.device.factor: [1, 2]}}}}"
    scenario = parse_scenario(RATED, "s.yaml", [f"{PROFILES}={{device: {points}}}", sweep])
    found = [steps(provisional_plan(step.scenario)) for step in scenario.steps]
    assert found == [
        [("device", 0, -50, 0), ("device", 0, -25, 10)],
        [("device", 0, -50, 10)],
    ]


def test_a_sine_begins_at_its_lowest_and_comes_back_each_period() -> None:
    found = of_device("{sine: {period: 4s, low: 20%, high: 1}}")
    assert found[0] == (0, -80, 0)
    clients, at_s = 20, 0.0
    for after_s, more, over_s in found[1:]:
        clients, at_s = clients + more, after_s + over_s
        assert clients == pytest.approx(60 - 40 * cos(tau * at_s / 4), abs=0.51)
    assert at_s == 10


@pytest.mark.parametrize(
    ("column", "values"), [("clients", (10, 40, 20)), ("share", (0.1, 0.4, 0.2))]
)
def test_a_file_is_replayed_from_its_first_row(
    tmp_path: Path, column: str, values: tuple[float, ...]
) -> None:
    rows = "".join(f"{at_s},a,{v}\n" for at_s, v in zip((100, 102.5, 120), values, strict=True))
    (tmp_path / "day.csv").write_text(f"time,site,{column}\n{rows}")
    found = plan(f"{PROFILES}={{device: {{csv: day.csv}}}}", file=str(tmp_path / "s.yaml"))
    assert steps(found) == [
        ("device", 0, -90, 0),
        ("device", 0, 30, 2.5),
        # 20 clients fewer in 17.5 s, of which the stage has 7.5 s.
        ("device", 2.5, -9, 7.5),
    ]


def test_shares_change_together_by_percent() -> None:
    shares = "populations.device.shares: {slow: 25%, fast: 50%}"
    text = changed(RATED, f"{shares}, stages.1.publish.changes: []")
    points = "{points: [{at: 0s, clients: 100%}, {at: 5s, clients: 40%}]}"
    found = plan(f"{PROFILES}={{device: {points}}}", text=text)
    assert steps(found) == [
        ("device/rest", 0, -15, 5),
        ("device/slow", 0, -15, 5),
        ("device/fast", 0, -30, 5),
    ]
    action = found.stages[1].action
    assert isinstance(action, PublishAction)
    assert {change.name for change in action.changes} == {"device to 40%"}
    one = plan(f"{PROFILES}={{device/slow: {points}}}", text=text)
    assert steps(one) == [("device/slow", 0, -15, 5)]


def test_a_profile_is_among_other_changes_and_profiles() -> None:
    profiles = (
        f"{PROFILES}={{device: {{points: [{{at: 0s, clients: 100}}, {{at: 4s, clients: 50}}]}}, "
        "sensor: {points: [{at: 0s, clients: 50%}, {at: 2s, clients: 4%}]}}"
    )
    rate = "stages.1.publish.changes=[{at: 1s, population: device, rate: 2}]"
    action = plan(profiles, rate).stages[1].action
    assert isinstance(action, PublishAction)
    names = ["device to 50", "sensor to 2", "2 × device"]
    assert [change.name for change in action.changes] == names


def test_changes_that_move_no_client_are_left_out() -> None:
    rows = ", ".join(f"{{at: {n}ms, clients: {100 - n / 100:.2f}%}}" for n in range(0, 2000, 10))
    found = of_device(f"{{points: [{rows}]}}")
    assert sum(more for _, more, _ in found) == -20
    assert len(found) == 20


def test_the_words_and_the_load_of_a_profile() -> None:
    ramp = "{points: [{at: 0s, clients: 100}, {at: 4s, clients: 20}, {at: 5s, clients: 80}]}"
    read = parse_scenario(RATED, "s.yaml", [f"{PROFILES}={{device: {ramp}}}"])
    planned = provisional_plan(read)
    loads = offered_load(planned).stages[1].phases
    assert [phase.sent_per_s for phase in loads] == pytest.approx([300, 140, 260])
    words = "\n".join(plan_in_words(read, planned))
    counts = "device follows its profile: 20 to 100 clients, 2 changes"
    assert f"{counts}: joins at up to 60/s, leaves at up to 20/s" in words
    rows = ", ".join(f"{{at: {n}00ms, clients: {99 - n}}}" for n in range(60))
    read = parse_scenario(RATED, "s.yaml", [f"{PROFILES}={{device: {{points: [{rows}]}}}}"])
    words = "\n".join(plan_in_words(read, provisional_plan(read)))
    assert "60 changes: leaves at up to 10/s, leaves of 1 at once" in words
    assert "device follows its profile: 40 to 99 clients, 60 changes" in words
    assert "and 37 further changes, up to about 252 sent/s" in words

"""From scenario to plan: defaults filled in, names resolved, addresses chosen."""

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.offered_load import clients_at, most_at_one
from pubstorm.contract.plan import ConnectAction, DisconnectAction, Plan
from pubstorm.contract.protocol import ClosedPace, GaussianPayload, Mqtt, OpenPace, TextPayload
from pubstorm.contract.target import Target
from pubstorm.host.binaries import offered_load
from pubstorm.plan import compile_plan, placed_plan, provisional_plan
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import plan_of

SCENARIOS = Path(__file__).parents[3] / "scenarios"
TWO = """\
target: mqtt://localhost
populations:
  backend:
    clients: 2
    subscriptions: [device/+/up]
  device:
    clients: 1000
    subscriptions: ["device/{n}/down"]
    publications:
      - {topic: "device/{n}/up", rate: 2/s, size: {mean: 500B, spread: 5%}, qos: 1}
      - {topic: "device/{n}/log", rate: max, payload: "log of {n}"}
stages:
  - connect: {populations: [backend]}
  - connect: {populations: [device], rate: 100/s}
  - publish: 10s
"""


def test_every_default_is_filled_in() -> None:
    plan = plan_of(TWO)
    backend, device = plan.populations
    assert (plan.format, plan.run_tag, plan.name, plan.seed) == (2, 1, "s", 1)
    assert plan.targets == (Target(host="localhost", port=1883),)
    assert backend.protocol == Mqtt(client_id="backend-{n}", clean_session=True)
    assert backend.keep_alive_s == 60
    assert device.publications[0].payload == GaussianPayload(mean_bytes=500, sd_bytes=25)
    assert device.publications[1].payload == TextPayload(template="log of {n}")
    assert device.publications[1].pace == ClosedPace()
    pace = device.publications[0].pace
    assert isinstance(pace, OpenPace) and pace.period_ns == 500_000_000


def test_stages_refer_to_populations_by_index() -> None:
    stages = plan_of(TWO).stages
    assert [stage.populations for stage in stages] == [(0,), (1,), (0, 1)]
    first, second = stages[0].action, stages[1].action
    assert isinstance(first, ConnectAction) and isinstance(second, ConnectAction)
    assert (first.rate_per_s, first.parallelism) == (None, 100)
    assert (second.rate_per_s, second.parallelism) == (100.0, None)


def test_a_plan_survives_its_json() -> None:
    plan = plan_of(TWO)
    line = plan.to_line()
    assert line.count("\n") == 1
    assert Plan.model_validate_json(line) == plan


def test_a_plan_takes_no_unknown_key() -> None:
    line = plan_of(TWO).to_line().replace('"format":2', '"format":2,"more":1')
    with pytest.raises(ValidationError):
        Plan.model_validate_json(line)


def test_one_sixth_hertz_is_a_period_of_six_seconds() -> None:
    plan = plan_of(TWO, "populations.device.publications.0.rate=1/6 Hz")
    pace = plan.populations[1].publications[0].pace
    assert isinstance(pace, OpenPace) and pace.period_ns == 6_000_000_000


def test_poisson_arrivals_reach_the_plan_and_are_described_in_words() -> None:
    read = parse_scenario(TWO, "s.yaml", ["populations.device.publications.0.arrivals=poisson"])
    plan = provisional_plan(read)
    pace = plan.populations[1].publications[0].pace
    assert isinstance(pace, OpenPace) and pace.arrivals == "poisson"
    words = "\n".join(plan_in_words(read, plan))
    assert "every 500ms in the mean (Poisson arrivals) from each client" in words


@pytest.mark.parametrize(
    ("clients", "targets", "sources"),
    [(10_000, 1, 0), (10_001, 1, 2), (60_000, 1, 6), (40_000, 4, 0), (60_000, 4, 2)],
)
def test_loopback_targets_get_as_many_sources_as_their_clients_need(
    clients: int, targets: int, sources: int
) -> None:
    text = f"""\
topology: {{brokers: {{b: {{kind: embedded, count: {targets}}}}}}}
populations: {{c: {{clients: {clients}, publications: [{{topic: t, rate: 1/s}}]}}}}
"""
    plan = plan_of(text)
    assert len(plan.sources) == sources
    # As the engine does it: targets in turn, and sources in turn at each target.
    pairs = Counter((c % targets, c // targets % max(1, sources)) for c in range(clients))
    assert max(pairs.values()) <= 10_000


def test_no_number_of_clients_asks_for_more_sources_than_can_be_written() -> None:
    plan = plan_of("target: mqtt://127.0.0.1\npopulations: {c: {clients: 4G}}\nstages: [connect]\n")
    assert (len(plan.sources), plan.sources[-1]) == (4096, "127.0.16.32")


def test_far_targets_get_no_sources_by_themselves() -> None:
    text = "target: mqtt://192.0.2.1\npopulations: {c: {clients: 60k}}\nstages: [connect]\n"
    assert plan_of(text).sources == ()
    assert plan_of(text, "sources=10.0.0.1-10.0.0.3").sources == (
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
    )


def mean_receivers(plan: Plan, population: int = 0) -> float:
    return offered_load(plan).populations[population].publications[0].receivers


def test_separate_targets_divide_the_receivers() -> None:
    text = """\
target: [mqtt://a, mqtt://b]
populations:
  c: {clients: 100, subscriptions: ["#"], publications: [{topic: t, rate: 1/s}]}
"""
    separate = plan_of(text)
    joined = plan_of(text, "topology.joined=true")
    assert mean_receivers(separate) == 50
    assert mean_receivers(joined) == 100


BRIDGED = """\
topology:
  brokers: {cloud: mosquitto, boxes: {kind: mosquitto, count: 1000}}
  bridges:
    box:
      from: boxes
      to: cloud
      topics:
        - {topic: up/#, direction: out, remote_prefix: "box/{n}/"}
        - {topic: down/#, direction: in, remote_prefix: "box/{n}/"}
        - {topic: all/#, direction: both}
populations:
  backend:
    clients: 5
    at: cloud
    bridge: true
    subscriptions: [box/+/up/#, all/#]
    publications: [{topic: PUBLISHED, rate: 1/s}]
  device:
    clients: 3000
    at: {brokers: boxes, choice: CHOICE}
    subscriptions: [down/#, all/#]
    publications: [{topic: PUBLISHED, rate: 1/s}]
"""


@pytest.mark.parametrize(
    ("topic", "population", "in_turn", "at_random"),
    [
        ("up/x", "device", 5, 5),
        ("all/x", "device", 3005, 3005),
        ("all/x", "backend", 3004, 3004),
        # At random, a publisher shares its broker with three others in the mean.
        ("down/x", "device", 3, pytest.approx(4, rel=0.1)),
        ('"box/{0..999}/down/x"', "backend", 3, pytest.approx(3, rel=0.1)),
        ("up/x", "backend", 0, 0),
    ],
)
def test_deliveries_follow_over_bridges(
    topic: str, population: str, in_turn: float, at_random: float
) -> None:
    for choice, receivers in (("turn", in_turn), ("random", at_random)):
        plan = plan_of(BRIDGED.replace("PUBLISHED", topic).replace("CHOICE", choice))
        index = next(i for i, p in enumerate(plan.populations) if p.name == population)
        assert mean_receivers(plan, index) == receivers


def test_sources_follow_from_where_clients_are() -> None:
    text = """\
topology: {brokers: {main: embedded, more: {kind: embedded, count: 9}}}
populations:
  c: {clients: 20k, at: main}
  d: {clients: 45k, at: {brokers: more, choice: CHOICE}}
stages: [connect]
"""
    plan = plan_of(text.replace("CHOICE", "turn"))
    assert len(plan.sources) == 2
    assert most_at_one(plan.populations[1].at, 45_000) == 5000
    drawn = plan_of(text.replace("CHOICE", "random"))
    at_each = [len(clients_at(drawn, 1, target)) for target in range(10)]
    assert at_each[0] == 0 and sum(at_each) == 45_000
    assert 5000 < max(at_each) <= most_at_one(drawn.populations[1].at, 45_000) < 5300


def test_the_offered_load_follows_clients_to_where_they_are_shifted() -> None:
    text = """\
topology: {brokers: {b: {kind: embedded, count: 3}}}
populations:
  s: {clients: 6, at: b, subscriptions: ["t/{n}"]}
  p: {clients: 6, at: b, publications: [{topic: "t/{n}", rate: 1/s}]}
stages: [connect, publish: 10s]
"""
    plan = plan_of(text)
    subscribers, publishers = plan.populations
    for shift, delivered_per_s in ((0, 6), (1, 0), (3, 6)):
        at = publishers.at.model_copy(update={"shift": shift})
        shifted = publishers.model_copy(update={"at": at})
        apart = plan.model_copy(update={"populations": (subscribers, shifted)})
        assert offered_load(apart).stages[1].phases[0].delivered_per_s == delivered_per_s


def test_the_offered_load_is_rate_times_clients_times_receivers() -> None:
    plan = plan_of(TWO)
    found = offered_load(plan)
    load = found.stages[2]
    assert (load.phases[0].sent_per_s, load.phases[0].delivered_per_s) == (2000, 4000)
    assert (load.sent_total, load.delivered_total) == (20_000, 40_000)
    assert load.closed_loop and found.closed_loop
    assert found.peak_per_s == 6000


RAMPS = """\
target: mqtt://localhost
populations:
  backend: {clients: 10, subscriptions: ["up/#"]}
  device: {clients: 1000, publications: [{topic: "up/{n}", rate: 1/s}]}
stages:
  - connect: {populations: [device], clients: 40%, over: 20s}
  - connect: {over: 10s}
  - connect: {name: again, over: 10s}
  - publish: 1s
  - disconnect: {populations: [device], over: 2s}
"""


def test_a_ramp_over_a_time_takes_it_at_each_size() -> None:
    for scale, times in (("1", 1), ("10%", 0.1)):
        found = [
            stage.action.rate_per_s
            for stage in plan_of(RAMPS, f"scale={scale}").stages
            if isinstance(stage.action, ConnectAction | DisconnectAction)
        ]
        connecting, rest, repeated, leaving = found
        assert connecting == pytest.approx(20 * times)
        assert rest == pytest.approx(61 * times)
        assert repeated is None
        assert leaving == pytest.approx(500 * times)


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_plan_is_compiled_once_and_then_put_at_other_addresses(file: Path) -> None:
    scenario = parse_scenario(file.read_text(), str(file), lenient=True)
    provisional = provisional_plan(scenario)
    for host in ("127.0.0.1", "192.0.2.1"):
        moved = {"host": host, "port": 7}
        targets = tuple(each.model_copy(update=moved) for each in provisional.targets)
        expected = compile_plan(scenario, targets, run_tag=5)
        assert placed_plan(scenario, provisional, targets, run_tag=5) == expected

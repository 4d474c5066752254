"""Default thresholds: which a scenario gets, and what replaces them."""

from __future__ import annotations

import pytest

from pubstorm.scenario import parse_scenario
from pubstorm.scenario.defaults import conditions_of, default_thresholds
from pubstorm.scenario.load import searched

BASE = """
target: mqtt://localhost:1883
populations:
  fast: {clients: 2, subscriptions: ["a/#"]}
  slow: {clients: 4, subscriptions: ["a/#"]}
  device: {clients: 9, publications: [{topic: "a/{n}", rate: 1/s}]}
"""
ALL = ("never_ready == 0", "lost == 0", "skipped == 0")


def defaults(*lines: str, base: str = BASE, overrides: tuple[str, ...] = ()) -> tuple[str, ...]:
    scenario = parse_scenario("\n".join((base, *lines)), "some.yaml", overrides)
    found = default_thresholds(scenario)
    assert all(each.is_default and (each.op, each.value) == ("==", 0) for each in found)
    return tuple(each.source for each in found)


def test_a_scenario_without_thresholds_has_all_of_them() -> None:
    assert defaults() == ALL


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("never_ready == 0", ALL[1:]),
        ("connected == 15", ALL[1:]),
        ("lost_total < 5", (ALL[0], ALL[2])),
        ("loss < 1%", (ALL[0], ALL[2])),
        ("loss@publish < 1%", (ALL[0], ALL[2])),
        ("skipped == 0", ALL[:2]),
        ("device.skipped < 7", ALL[:2]),
        ("fast.lost == 0", (ALL[0], "slow.lost == 0", ALL[2])),
        ("slow.loss < 5%", (ALL[0], "fast.lost == 0", ALL[2])),
        ("device.connected_max == 9", ("fast.never_ready == 0", "slow.never_ready == 0", *ALL[1:])),
        ("device.ack_latency.p99 < 1s", ALL),
        ("received > 0", ALL),
    ],
)
def test_a_threshold_about_the_same_figure_replaces_a_default(
    line: str, left: tuple[str, ...]
) -> None:
    assert defaults(f"thresholds: ['{line}']") == left


def test_they_come_behind_the_thresholds_of_the_scenario() -> None:
    scenario = parse_scenario(f"{BASE}thresholds: [fast.lost == 0]", "some.yaml")
    assert [each.source for each in conditions_of(scenario)] == [
        "fast.lost == 0",
        "never_ready == 0",
        "slow.lost == 0",
        "skipped == 0",
    ]


def test_they_can_be_turned_off() -> None:
    assert defaults("defaults: off") == ()
    assert defaults("defaults: on") == ALL


@pytest.mark.parametrize(
    ("overrides", "left"),
    [
        # A broker drops what a slow reader does not take.
        (("populations.slow.read_rate=1/s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.slow.lifetime=5s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.slow.flapping=5s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.device.publications.0.late=skip",), ALL[:2]),
        (("populations.device.publications.0.rate=max",), ALL[:2]),
        # Without a publish stage there is nothing to lose or to send.
        (("stages=[{connect: {}}, {hold: 1s}]",), ALL[:1]),
        # Shares count one by one where they differ.
        (
            ("populations.slow.shares={lazy: {part: 50%, read_rate: 1/s}}",),
            (ALL[0], "fast.lost == 0", "slow/rest.lost == 0", ALL[2]),
        ),
        (
            ("populations.slow.shares={odd: 50%}", "thresholds=[slow/odd.lost == 0]"),
            (ALL[0], "fast.lost == 0", "slow/rest.lost == 0", ALL[2]),
        ),
        (
            ("populations.slow.shares={odd: 50%}", "thresholds=[fast.lost == 0]"),
            (ALL[0], "slow.lost == 0", ALL[2]),
        ),
        # A population that no stage connects has none of its own.
        (
            ("thresholds=[fast.lost == 0]", "stages=[{connect: {populations: [fast, device]}}, "
             "{publish: 1s}]"),
            ALL[::2],
        ),
    ],
)  # fmt: skip
def test_a_figure_that_is_not_zero_by_design_has_none(
    overrides: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert defaults(overrides=overrides) == left


def test_a_monitor_with_a_metric_of_the_same_name_replaces_nothing() -> None:
    bridged = """
topology:
  brokers: {main: mosquitto, boxes: {kind: mosquitto, count: 2}}
  bridges: {up: {from: boxes, to: main, topics: [{topic: "a/#", direction: out}]}}
populations:
  fast: {clients: 2, at: main, subscriptions: ["a/#"]}
  device: {clients: 9, at: boxes, publications: [{topic: "a/{n}", rate: 1/s}]}
thresholds: [up.connected.first == 2]
"""
    assert defaults(base=bridged) == ALL


def test_each_trial_of_a_search_has_them() -> None:
    search = "search: {vary: populations.device.publications.0.rate, from: 1/s, to: 9/s}"
    text = f"{BASE}{search}\nthresholds: [device.ack_latency.p99 < 1s]"
    scenario = parse_scenario(text, "some.yaml")
    assert tuple(each.source for each in default_thresholds(searched(scenario, 5.0))) == ALL


ACKNOWLEDGED = ("in_flight == 0", "abandoned == 0")
QOS_1 = "populations.device.publications.0.qos=1"


@pytest.mark.parametrize(
    ("overrides", "left"),
    [
        ((), ACKNOWLEDGED),
        (("populations.device.end=abort",), ()),
        (("populations.device.end=vanish",), ()),
        (("populations.device.read_rate=1/s",), ()),
        (("populations.device.lifetime=5s",), ()),
        (("populations.device.shares={odd: {part: 50%, end: abort}}",),
         ("device/rest.in_flight == 0", "device/rest.abandoned == 0")),
        (("populations.device.shares={odd: {part: 50%, qos: 0}}",), ACKNOWLEDGED),
        (("populations.fast.takes_over=device",), ()),
        (("stages=[connect, {publish: {for: 1s, changes: [{at: 0s, population: device, "
          "remove: 1}]}}]",), ()),
        (("stages=[connect, {publish: {for: 1s, changes: [{at: 0s, population: fast, "
          "remove: 1}]}}]",), ACKNOWLEDGED),
        (("stages=[connect, {hold: 1s}]",), ()),
        (("thresholds=[device.abandoned < 7]",), ACKNOWLEDGED[:1]),
        (("thresholds=[in_flight < 7]",), ACKNOWLEDGED[1:]),
    ],
)  # fmt: skip
def test_messages_of_clients_that_stay_are_to_be_acknowledged(
    overrides: tuple[str, ...], left: tuple[str, ...]
) -> None:
    found = defaults(overrides=(QOS_1, *overrides))
    assert tuple(each for each in found if "in_flight" in each or "abandoned" in each) == left


def test_messages_of_qos_0_are_not_to_be_acknowledged() -> None:
    assert not {*ACKNOWLEDGED} & {*defaults()}


DYING = """
target: mqtt://localhost:1883
populations:
  phone: {clients: 9, will: {topic: "gone/{n}"}, end: abort}
  watcher: {clients: 1, subscriptions: ["gone/#"]}
"""
DIES = "stages=[connect, {disconnect: {populations: [phone]}}]"


@pytest.mark.parametrize(
    ("overrides", "is_there"),
    [
        ((), True),
        (("populations.phone.end=vanish",), True),
        (("populations.phone.end=disconnect_with_will", "populations.phone.version='5'"), True),
        (("populations.phone.end=disconnect",), False),
        (("populations.phone.end=disconnect",
          "populations.phone.shares={odd: {part: 50%, end: abort}}"), True),
        (("populations.phone.will.topic=other",), False),
        (("populations.watcher.lifetime=5s",), False),
        (("populations.watcher.read_rate=5/s",), False),
        # Clients that are not there, or leave with the dying ones, are to receive no will.
        (("stages=[connect, disconnect]",), False),
        (("stages=[connect, {disconnect: {populations: [watcher]}}, "
          "{disconnect: {populations: [phone]}}]",), False),
        (("stages=[{connect: {populations: [phone]}}, {disconnect: {populations: [phone]}}, "
          "{connect: {populations: [watcher]}}]",), False),
        (("populations.phone.lifetime=1s", "stages=[connect, {hold: 5s}]"), True),
        (("stages=[connect, {hold: 5s}]",), False),
        (("thresholds=[watcher.wills_lost < 3]",), False),
        (("thresholds=[loss < 3%]",), False),
    ],
)  # fmt: skip
def test_no_will_is_to_be_lost_where_clients_die_by_the_plan(
    overrides: tuple[str, ...], is_there: bool
) -> None:
    found = defaults(base=DYING, overrides=(DIES, *overrides))
    assert ("wills_lost == 0" in found) == is_there


LATE = """
target: mqtt://localhost:1883
populations:
  late: {clients: 2, subscriptions: ["a/#"]}
  device: {clients: 9, publications: [{topic: "a/{n}", rate: 1/s, retain: true}]}
"""
BEFORE = "stages=[{connect: {populations: [device]}}, {publish: 1s}, connect]"


@pytest.mark.parametrize(
    ("overrides", "is_there"),
    [
        ((), False),
        (("populations.late.session=persistent",), False),
        (("stages=[connect, {publish: 1s}]",), True),
        # A session that the broker keeps receives messages while its client is away.
        (("populations.late.session=persistent",
          "stages=[connect, {disconnect: {populations: [late]}}, {publish: 1s}, connect]"), True),
        (("stages=[connect, {disconnect: {populations: [late]}}, {publish: 1s}, connect]",), False),
        # A typing error in a topic, or a population that no stage connects, is no late client.
        (("populations.late.subscriptions=[b/#]",), True),
        (("stages=[{connect: {populations: [device]}}, {publish: 1s}]",), True),
    ],
)  # fmt: skip
def test_clients_that_connect_after_the_load_have_nothing_to_lose(
    overrides: tuple[str, ...], is_there: bool
) -> None:
    found = defaults(base=LATE, overrides=(BEFORE, *overrides))
    assert ("lost == 0" in found) == is_there


STORM = "{{publish: {{name: storm, for: 9s, faults: [{{at: 1s, kill: broker{}}}]}}}}"
BROKEN = f"""
topology: {{brokers: {{broker: mosquitto}}}}
populations:
  reader: {{clients: 2, subscriptions: ["a/#"]}}
  device: {{clients: 9, publications: [{{topic: "a/{{n}}", rate: 1/s, qos: 1}}]}}
stages: [connect, {{publish: {{name: calm, for: 1s}}}}, {STORM.format("")}]
"""


@pytest.mark.parametrize(
    ("stages", "left"),
    [
        ((), ("lost@calm == 0", "abandoned@calm == 0", "skipped@calm == 0")),
        (("{publish: {name: after, for: 1s}}",),
         ("lost@calm == 0", "lost@after == 0", "in_flight == 0", "abandoned@calm == 0",
          "abandoned@after == 0", "skipped@calm == 0", "skipped@after == 0")),
        # A fault without an end lasts.
        ((STORM.format(", for: ever"), "{publish: {name: after, for: 1s}}"),
         ("lost@calm == 0", "abandoned@calm == 0", "skipped@calm == 0")),
    ],
)  # fmt: skip
def test_a_stage_with_a_fault_of_its_own_has_none(
    stages: tuple[str, ...], left: tuple[str, ...]
) -> None:
    overrides: tuple[str, ...] = ()
    if stages:
        first = "connect, {publish: {name: calm, for: 1s}}, " + STORM.format("")
        overrides = (f"stages=[{', '.join((first, *stages))}]",)
    assert defaults(base=BROKEN, overrides=overrides) == (ALL[0], *left)


TWO_PROTOCOLS = """
topology: {brokers: {broker: nats}}
populations:
  device: {clients: 9, publications: [{topic: "a/{n}/up", rate: 1/s}]}
  service:
    {protocol: nats, clients: 1, subscriptions: [a.*.up], publications: [{topic: b.c, rate: 1/s}]}
  other: {protocol: nats, clients: 1, subscriptions: [b.>]}
stages:
  - connect
  - publish: {name: up, for: 1s, populations: [device]}
  - publish: {name: down, for: 1s, populations: [service]}
  - publish: {name: broken, for: 2s, faults: [{at: 500ms, kill: broker}]}
"""


def test_subjects_have_their_own_separator_and_wildcards() -> None:
    """A threshold of its own takes `service` out, and `other` receives nothing of `device`."""
    found = defaults("thresholds: [service.lost == 0]", base=TWO_PROTOCOLS)
    assert [each for each in found if "lost" in each] == ["other.lost@down == 0"]

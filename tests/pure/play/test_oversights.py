"""Oversights of a scenario: what `check` warns of, with the key and its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.plan import provisional_plan
from pubstorm.play.oversights import oversights, oversights_in_words
from pubstorm.scenario import Scenario, parse_scenario
from tests.kit import golden

BASE = """
target: mqtt://localhost:1883
populations:
  backend:
    clients: 1
    subscriptions: ["data/#"]
    publications: [{topic: "command/{0..9}", rate: 1/s}]
  device:
    clients: 10
    subscriptions: ["command/{n}"]
    publications: [{topic: "data/{n}", rate: 1/s}]
"""
BRIDGED = """
topology:
  brokers: {cloud: mosquitto, boxes: {kind: mosquitto, count: 10}}
  bridges:
    up:
      from: boxes
      to: cloud
      topics: [{topic: "down/#", direction: in, remote_prefix: "box/{n}/"}]
populations:
  box: {clients: 10, at: boxes, subscriptions: ["down/#"]}
  app: {clients: 1, at: cloud, publications: [{topic: "box/{0..9}/down/x", rate: 1/s}]}
"""
PUBLISHER = """
populations:
  feed: {clients: 1, publisher: libzmq, publications: [{topic: "a", size: 32B, rate: 1/s}]}
  reader: {clients: 3, at: feed, subscriptions: ["a"]}
"""
SUBJECTS = """
topology: {brokers: {broker: nats}}
populations:
  device: {clients: 10, publications: [{topic: "data/{n}", rate: 1/s}]}
  backend:
    {protocol: nats, clients: 1, subscriptions: [data.*],
     publications: [{topic: "command.{0..9}.x", rate: 1/s}]}
  worker: {protocol: nats, clients: 2, subscriptions: [{topic: command.>, group: g}]}
"""


def found(text: str, *overrides: str) -> dict[str, str]:
    scenario = parse_scenario(text, "some.yaml", overrides)
    return {
        ".".join(map(str, each.path)): each.text
        for each in oversights(scenario, provisional_plan(scenario))
    }


CASES: tuple[tuple[str, str], ...] = (
    (BASE, "populations.backend.subscriptions.0=date/#"),
    (BASE, "populations.device.publications.0.topic=date/{n}"),
    # Ranges that name clients which do not exist, and too few.
    (BASE, "populations.backend.publications.0.topic=command/{0..39}"),
    (BASE, "populations.backend.publications.0.topic=command/{0..4}"),
    (BASE, "stages=[{connect: {populations: [device]}}, {publish: 1s}]"),
    (BASE, "populations.device.shares={odd: {part: 50%, subscriptions: [x]}}"),
    # A range that names brokers which do not exist.
    (BRIDGED, "populations.app.publications.0.topic=box/{0..99}/down/x"),
    (PUBLISHER, "populations.reader.subscriptions.0=b"),
    # Messages without a stamp, and filters that overlap.
    (BASE, "populations.device.publications.0.size=31B"),
    (BASE, "populations.device.publications.0.size={mean: 100B, spread: 18%}"),
    (BASE, "populations.device.publications.0.payload='on'"),
    (BASE, "populations.backend.subscriptions=[data/#, data/+]"),
    (SUBJECTS, "populations.backend.subscriptions=[data.*, data.>]"),
    (SUBJECTS, "populations.backend.publications.0.size=31B"),
    (SUBJECTS, "populations.device.publications.0.payload='on'"),
    (BASE, "populations.device.subscriptions=['command/+', $share/g/command/+, 'command/#']"),
)


def test_each_oversight_is_found_with_its_key() -> None:
    """The golden file has the oversights of each scenario."""
    lines = []
    for text, override in CASES:
        assert found(text) == {}
        lines.append(override)
        lines += [f"  {path}: {words}" for path, words in found(text, override).items()]
    golden.agree(Path(__file__).with_name("oversights.golden"), "\n".join([*lines, ""]))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        # Publications of brokers and dying clients.
        ("populations.backend.subscriptions.0=$SYS/#", "populations.device.publications=[]"),
        (
            "populations.backend.subscriptions=[data/#, gone/+]",
            "populations.device.will={topic: 'gone/{n}'}",
        ),
        ("populations.backend.subscriptions.0=+/{0..9}",),
        ("populations.backend.subscriptions.0=$share/group/data/+",),
        (
            "populations.backend.subscriptions.0=data/7",
            "populations.device.publications.0.topic=data/7",
        ),
        # Without subscriptions the messages have no receiver.
        ("populations.backend.subscriptions=[]", "populations.device.subscriptions=[]"),
        # Clients that join later receive too.
        (
            "stages=[{connect: {populations: [backend]}}, "
            "{publish: {for: 9s, changes: [{at: 1s, population: device, add: 10}]}}]",
        ),
        # Stamps in payloads and properties, and copies that identifiers distinguish.
        ("populations.device.publications.0.payload='{stamp}'",),
        (
            "populations.device.publications.0.payload='on'",
            "populations.device.version='5'",
            "populations.backend.version='5'",
        ),
        (
            "populations.backend.version='5'",
            "populations.backend.subscriptions=[{topic: data/#, identifier: 1}, "
            "{topic: data/+, identifier: 2}]",
        ),
        ("populations.backend.subscriptions=[data/#, $share/group/data/+]",),
        # Without a publish stage, none is to be received.
        ("stages=[{connect: {}}, {hold: 1s}]", "populations.backend.subscriptions.0=x"),
    ],
)
def test_a_scenario_without_oversights_has_no_warning(overrides: tuple[str, ...]) -> None:
    assert found(BASE, *overrides) == {}


@pytest.mark.parametrize(
    "override",
    [
        "populations.backend.subscriptions=[data.*, data.*.>]",
        "populations.worker.subscriptions=[command.>, {topic: command.>, group: g}]",
        "populations.worker.subscriptions=[{topic: 'command.*.x', group: 'g.h'}]",
    ],
)
def test_subjects_without_oversights_have_no_warning(override: str) -> None:
    unused = "no publication matches the filter 'data.*.>'"
    assert [text for text in found(SUBJECTS, override).values() if text != unused] == []


def words(scenario: Scenario) -> list[str]:
    steps = [step.scenario for step in scenario.steps] or [scenario]
    return list(oversights_in_words(scenario, steps, [*map(provisional_plan, steps)]))


def test_a_warning_has_file_line_key_and_hint() -> None:
    text = BASE.replace("data/#", "date/#")
    _, title, line, hint, *_ = words(parse_scenario(text, "some.yaml"))
    assert title == "warnings"
    assert line == (
        "  some.yaml:6: populations.backend.subscriptions.0: "
        "no publication matches the filter 'date/#'"
    )
    assert hint.startswith("    hint: correct the filter")


def test_a_warning_names_the_override_and_the_step_that_brought_it() -> None:
    override = "populations.backend.subscriptions.0=x"
    assert f"  --set {override}: " in words(parse_scenario(BASE, "some.yaml", (override,)))[2]
    sweep = f"{BASE}sweep: {{vary: {{populations.device.clients: [10, 5]}}}}"
    (line,) = (each for each in words(parse_scenario(sweep, "some.yaml")) if ".yaml" in each)
    assert "in step 'clients 5': no subscriber receives about 50 %" in line

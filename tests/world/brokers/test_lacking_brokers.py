"""`mqtt5-features` on a broker of the tests that lacks one feature at a time: the step of that
feature fails, and others pass. Without a lack all steps pass."""

from __future__ import annotations

import json

import pytest
import yaml

from pubstorm.scenario.load import find_scenario
from tests.kit.runs import RunMaker
from tests.world.brokers.lacking_broker import Lack, lacking

STEPS = {
    step["step"]: step
    for step in yaml.safe_load(find_scenario("mqtt5-features").read_text())["sweep"]["steps"]
}
PLAIN = "MQTT 5 without properties"
USER = "user properties"
CONTENT = "content type, response topic, correlation data"
ANSWERS = "requests and answers"
OF_CLIENTS, OF_BROKER = "topic aliases of clients", "topic aliases of the broker"
WINDOW, SIZE = "receive maximum of the client", "maximum packet size of the client"
IDENTIFIERS = "subscription identifiers of filters that overlap"
LOCAL, SHARED = "no local", "shared subscription"
SENT, NOT_WANTED = "retained messages, sent", "retained messages, not wanted"
AS_PUBLISHED = "retain as published"
KEPT, ASSIGNED = "session that is kept", "client identifier of the broker"
OVER, EXPIRED, REDUCED = (
    "session expiry",
    "message expiry",
    "message expiry, reduced by the time of the wait",
)
WILL, KEEP_ALIVE = "will with a delay", "keep-alive of the broker"
LOGIN = "enhanced authentication"
LACKS: dict[Lack, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Lack.USER_PROPERTIES: ((USER,), (CONTENT,)),
    Lack.CONTENT: ((CONTENT, ANSWERS), (USER,)),
    Lack.ALIASES_OF_CLIENTS: ((OF_CLIENTS,), (OF_BROKER,)),
    Lack.OWN_ALIASES: ((OF_BROKER,), (OF_CLIENTS,)),
    Lack.RECEIVE_MAXIMUM: ((WINDOW,), (SIZE,)),
    Lack.PACKET_SIZE: ((SIZE,), (WINDOW,)),
    Lack.IDENTIFIERS: ((IDENTIFIERS,), (USER,)),
    Lack.IDENTIFIERS_OF_COPIES: ((IDENTIFIERS,), (USER,)),
    Lack.IDENTIFIERS_AT_ALL: ((IDENTIFIERS,), (USER,)),
    Lack.NO_LOCAL: ((LOCAL,), (IDENTIFIERS,)),
    Lack.RETAINED: ((SENT,), (NOT_WANTED, AS_PUBLISHED)),
    Lack.RETAIN_HANDLING: ((NOT_WANTED,), (SENT, AS_PUBLISHED)),
    Lack.AS_PUBLISHED: ((AS_PUBLISHED,), (SENT, NOT_WANTED)),
    Lack.SHARED: ((SHARED,), (IDENTIFIERS,)),
    Lack.SESSION: ((KEPT, ASSIGNED, OVER, EXPIRED, REDUCED), ()),
    Lack.ASSIGNED_IDENTIFIER: ((ASSIGNED,), (KEPT,)),
    Lack.SESSION_EXPIRY: ((OVER,), (KEPT,)),
    Lack.MESSAGE_EXPIRY: ((EXPIRED,), (REDUCED,)),
    Lack.EXPIRY_REDUCED: ((REDUCED,), (EXPIRED,)),
    Lack.WILL: ((WILL,), ()),
    Lack.WILL_DELAY: ((WILL,), ()),
    Lack.KEEP_ALIVE: ((KEEP_ALIVE,), (WILL,)),
    Lack.AUTHENTICATION: ((LOGIN,), (KEEP_ALIVE,)),
}
"""For each lack the steps that fail, and steps near them that pass."""

pytestmark = pytest.mark.concerns(
    "crates/engine/src/seam",
    "crates/mqtt/",
    "scenarios/mqtt5-features.yaml",
    "tests/world/brokers/",
)


def played(start: RunMaker, lack: Lack, *steps: str) -> dict[str, str]:
    """Plays steps on a broker that lacks a feature; returns the verdict of each."""
    chosen = json.dumps([STEPS[step] for step in steps])
    with lacking(lack) as target:
        run = start(
            find_scenario("mqtt5-features"),
            *("--target", target, "--set", f"sweep.steps={chosen}", "--set", "clean_start=skip"),
        )
        run.finish()
    series = json.loads((run.directory / "series.json").read_text())
    return {step["label"]: step["status"] for step in series["steps"]}


@pytest.mark.slow("all 23 steps are played")
def test_all_steps_pass_on_a_broker_that_has_all_features(start: RunMaker) -> None:
    assert played(start, Lack.NOTHING, *STEPS) == dict.fromkeys(STEPS, "pass")


@pytest.mark.slow("steps wait for expiries and for messages that do not come")
@pytest.mark.parametrize("lack", LACKS)
def test_a_step_fails_on_a_broker_without_its_feature(start: RunMaker, lack: Lack) -> None:
    failing, passing = LACKS[lack]
    expected = dict.fromkeys(failing, "fail") | dict.fromkeys((*passing, PLAIN), "pass")
    assert played(start, lack, *expected) == expected


def test_each_step_has_a_lack() -> None:
    assert {step for failing, _ in LACKS.values() for step in failing} == {*STEPS} - {PLAIN}
    assert {*LACKS} == {*Lack} - {Lack.NOTHING}

"""Topics that the check for a clean start reads, and those that belong to the run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTErrorCode

from pubstorm.contract.plan import Plan
from pubstorm.play import clean_start
from pubstorm.play.clean_start import observer
from pubstorm.play.clean_start.observer import Deadline, sessions_on
from pubstorm.play.clean_start.topics import keeps_messages, looked_at, own_topics
from pubstorm.result import StaleState
from pubstorm.topology.observer import Login
from tests.kit import made

TAG = 0xDEADBEEF
WHERE = {"target": "b", "when": "after", "total": 1, "text": ""}
STAMP = TAG.to_bytes(4, "little") + bytes(96)


def plan_of(population: str, clients: int = 3) -> Plan:
    text = f"""\
target: mqtt://127.0.0.1
populations: {{c: {{clients: {clients}, first: 7, {population}}}}}
stages: [connect]
"""
    return made.compiled(text).model_copy(update={"run_tag": TAG})


@pytest.mark.parametrize(
    ("population", "filters"),
    [
        ('publications: [{topic: "device/{n}/telemetry", rate: 1/s}]', ["device/+/telemetry"]),
        ('publications: [{topic: "a/t_{1..20}/x", rate: 1/s}]', ["a/+/x"]),
        ('publications: [{topic: "g{n%4}/{n/4}", rate: 1/s}]', ["+/+"]),
        ('subscriptions: ["$share/g/up/#"]', ["up/#"]),
        ('subscriptions: ["up/#", "up/{n}/x", "up/+"]', ["up/#"]),
        ('subscriptions: ["#", "$SYS/broker/x"]', ["#"]),
        ('subscriptions: ["$SYS/#", "$SYS", "$share/g/$SYS/+/{n}"]', []),
        ('subscriptions: ["$SYSTEM/x", "a/$SYS/#"]', ["$SYSTEM/x", "a/$SYS/#"]),
        ('will: {topic: "gone/{n}"}', ["gone/+"]),
        ('subscriptions: ["a/+/c", "a/b/c"]', ["a/+/c"]),
        ('subscriptions: ["a/{n}"], will: {topic: a}', ["a", "a/+"]),
        (
            'publications: [{topic: "x/{a/1|a/2|b|c/d/e}_{n}", rate: 1/s}]',
            ["x/+", "x/a/+", "x/c/+/+"],
        ),
        ('publications: [{topic: "{a|b}/x", rate: 1/s}]', ["+/x"]),
    ],
)
def test_filters_hold_all_topics_of_the_plan(population: str, filters: list[str]) -> None:
    assert list(looked_at(plan_of(population))) == filters


def test_only_what_this_run_stamped_is_its_own() -> None:
    own = own_topics(plan_of('publications: [{topic: "t/{n}", rate: 1/s, retain: true}]'))
    assert set(own.publishers) == {"t/7", "t/8", "t/9"}
    assert own.publishers["t/9"].client == 2
    assert own.has("t/7", STAMP, {})
    assert not own.has("t/6", STAMP, {})
    assert not own.has("t/7", bytes(100), {})
    assert not own.has("t/7", b"short", {})


def test_without_a_stamp_what_was_there_before_is_not_its_own() -> None:
    own = own_topics(
        plan_of('publications: [{topic: "t/{n}", rate: 1/s, retain: true, payload: "on"}]')
    )
    assert own.has("t/7", b"on", {})
    assert own.has("t/7", b"on", {"t/7": b"off"})
    assert not own.has("t/7", b"on", {"t/7": b"on"})


def test_without_what_was_there_before_only_a_stamp_shows_whose_a_message_is() -> None:
    stamped = own_topics(plan_of('publications: [{topic: "t/{n}", rate: 1/s, retain: true}]'))
    assert stamped.has("t/7", STAMP, None)
    plain = 'publications: [{topic: "t/{n}", rate: 1/s, retain: true, payload: "on"}]'
    assert not own_topics(plan_of(plain)).has("t/7", b"on", None)


def test_many_messages_have_the_time_to_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    left_s: list[float] = []

    def remove(*words: Any) -> list[StaleState]:
        left_s.append(words[-1].left_s)
        text = "9 retained messages of this run could not be removed"
        return [StaleState.model_validate(WHERE | {"what": "unknown", "text": text})]

    monkeypatch.setattr(clean_start, "remove_retained", remove)
    publication = '{topic: "t/{n}/{1..300}", rate: 1/s, retain: true}'
    for clients in (1, 300):
        plan = plan_of(f"publications: [{publication}]", clients)
        one = clean_start.CleanStart(plan, "report", [0])
        (found,) = asyncio.run(one.after(Path("engine"), Path("log")))
        assert found.text.endswith("; pubstorm down RUN_DIR --retained removes what it still finds")
    assert left_s[0] < 20
    assert left_s[1] > 90_000 / 1_000


@pytest.mark.parametrize(
    ("population", "keeps"),
    [
        ("subscriptions: [a]", False),
        ("publications: [{topic: a, rate: 1/s}]", False),
        ("publications: [{topic: a, rate: 1/s, retain: true}]", True),
        ("will: {topic: a, retain: true}", True),
    ],
)
def test_a_plan_knows_whether_it_keeps_messages(population: str, keeps: bool) -> None:
    assert keeps_messages(plan_of(population)) == keeps


@pytest.mark.parametrize(("left", "found"), [(1, ["sessions"]), (2, ["unknown"])])
def test_sessions_that_are_left_are_ended_once_more(
    monkeypatch: pytest.MonkeyPatch, left: int, found: list[str]
) -> None:
    """A broker that has not handled a DISCONNECT says that its client has a session."""
    ended: list[Path] = []

    async def end(_plan: Plan, _engine: Path, log: Path) -> None:
        ended.append(log)

    def verify(_plan: Plan, _problem: None, _target: int, _deadline: object) -> list[StaleState]:
        what = "unknown" if len(ended) <= left else "sessions"
        return [StaleState.model_validate({"what": what, **WHERE})]

    monkeypatch.setattr(clean_start, "end_sessions", end)
    monkeypatch.setattr(clean_start, "verify_sessions", verify)
    clean = clean_start.CleanStart(
        plan_of("session: persistent, subscriptions: [a]"), "report", (0,)
    )
    removed = asyncio.run(clean.after(Path("engine"), Path("log")))
    assert [each.what for each in removed] == found
    assert len(ended) == 2


def test_sessions_of_identifiers_that_the_broker_chooses_are_not_looked_for() -> None:
    plan = plan_of('version: 5, session: persistent, client_id: ""', clients=1)
    assert list(sessions_on(plan, 0, Deadline(1.0))) == []


def test_a_look_counts_no_time_in_which_its_thread_had_no_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, steps = 100.0, list[float]()
    monkeypatch.setattr("pubstorm.play.clean_start.observer.time.monotonic", lambda: now_s)

    class Observed(observer.TargetObserver):
        def step(self, wait_s: float) -> MQTTErrorCode:
            nonlocal now_s
            steps.append(wait_s)
            now_s += wait_s + (5.0 if len(steps) == 3 else 0.0)
            return MQTTErrorCode.MQTT_ERR_SUCCESS

    target = plan_of("subscriptions: [a]").targets[0]
    observed = Observed(target, Login(), "looks", Deadline(2.0), clean=True)
    observed._wait_for(lambda: len(steps) == 50, 2.0)
    assert len(steps) == 50
    observed._wait_for(lambda: False, 2.0)
    assert now_s == pytest.approx(100.0 + 5.0 + 50 * observer.STEP_S + 2.0, abs=0.1)

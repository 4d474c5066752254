"""Clean start: what others left is found, what a run leaves is removed, and nothing else is."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.contract.plan import Plan
from pubstorm.play.clean_start.observer import (
    QUIET_S,
    Deadline,
    Observation,
    TargetObserver,
    retained_on,
)
from pubstorm.play.clean_start.remove import remove_retained
from pubstorm.play.clean_start.topics import own_topics
from pubstorm.topology.observer import ANONYMOUS, MqttObserver
from tests.kit import made, program
from tests.kit.runs import READY_TIMEOUT_S
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage, wait_for

Play = Callable[..., tuple[int, dict[str, Any]]]
RunMaker = Callable[..., Any]
MosquittoMaker = Callable[..., Any]

SYS_TIMEOUT_S = 60.0
"""Time limit until the counts of the broker are fresh."""
SESSION = ("-c", "-i", "device-3", "-q", "1", "-t", "old/topic")
LOAD = """
target: {target}
populations:
  device:
    clients: 10
    {device}
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: 1, retain: {retain}}}]
  backend:
    clients: 1
    {backend}
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 200ms]
drain: 1s
"""


def load(broker: Any, *, retain: str = "false", device: str = "", backend: str = "") -> str:
    return LOAD.format(target=broker.url, retain=retain, device=device, backend=backend)


def client(program: str, broker: Any, *arguments: str) -> str:
    """Output of an independent client."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (apt-get install mosquitto-clients)")
    command = [path, "-p", str(broker.port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=15, check=False).stdout


def kept(broker: Any, username: str | None = None) -> set[str]:
    """Topics with retained messages: the broker sends those before a later message."""
    found, is_over, end = set[str](), threading.Event(), "end-of-kept"
    subscriber = Client(CallbackAPIVersion.VERSION2)
    subscriber.username_pw_set(username)

    def took(_client: Client, _data: Any, message: MQTTMessage) -> None:
        found.add(message.topic)
        if message.topic == end:
            is_over.set()

    subscriber.on_message = took
    subscriber.connect("127.0.0.1", broker.port)
    subscriber.subscribe("#")
    subscriber.publish(end)
    subscriber.loop_start()
    assert is_over.wait(READY_TIMEOUT_S)
    subscriber.disconnect()
    subscriber.loop_stop()
    return found - {end}


def stale_state(result: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(r["when"], r["what"], r["total"]) for r in result["stale_state"]]


@pytest.fixture
def stale(mosquitto: MosquittoMaker) -> Any:
    """A broker with retained messages, and a session for which a message is queued."""
    broker = mosquitto()
    for topic in ("up/x", "up/11", "elsewhere"):
        client("mosquitto_pub", broker, "-t", topic, "-r", "-m", "old")
    client("mosquitto_sub", broker, *SESSION, "-E")
    client("mosquitto_pub", broker, "-q", "1", "-t", "old/topic", "-m", "queued")
    return broker


@pytest.mark.parametrize("version", ["", "version: 5\n    session_expiry: 1h"])
def test_what_others_left_is_found_and_what_the_run_left_is_removed(
    run: Play, stale: Any, version: str
) -> None:
    code, result = run(load(stale, retain="true", device=f"session: persistent\n    {version}"))
    assert passes(code, result), result["verdict"]
    found = {(when, what): total for when, what, total in stale_state(result)}
    assert found.pop(("before", "queued"), 1) == 1
    assert found == {
        ("before", "retained"): 2,
        ("before", "sessions"): 1,
        ("after", "retained"): 10,
        ("after", "sessions"): 10,
    }
    assert kept(stale) == {"up/x", "up/11", "elsewhere"}
    deadline_s = time.monotonic() + SYS_TIMEOUT_S
    while stale.sys_topic("clients/total") > 1:
        assert time.monotonic() < deadline_s, "sessions are left"


def test_require_plays_nothing_where_it_is_not_clean_and_takes_nothing_away(
    run: Play, stale: Any
) -> None:
    text = load(stale, device="session: persistent")
    code, result = run(text, "--set", "clean_start=require")
    assert code == 3
    assert (result["verdict"]["status"], result["verdict"]["limited_by"]) == ("invalid", "target")
    assert result["ended_early"]
    assert result["fleet"]["agents"] == result["stages"] == []
    assert kept(stale) == {"up/x", "up/11", "elsewhere"}
    assert client("mosquitto_sub", stale, *SESSION, "-C", "1", "-W", "5") == "queued\n"


def test_a_clean_broker_is_played_on_and_one_that_is_gone_afterwards_is_unknown(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    stages = ("--set", "stages=[connect, publish: 10min]", "--set", "clean_start=require")
    run = start(load(broker, retain="true"), *stages)
    there_s = wait_for(run, "device", "connected", lambda count: count == 10)
    broker.kill()
    wait_for(run, "device", "connected", lambda count: count == 0, there_s)
    end_stage(run.directory)
    run.finish()
    assert stale_state(run.result()) == [("after", "unknown", 0)]


def test_skip_neither_looks_nor_removes(run: Play, stale: Any) -> None:
    code, result = run(load(stale, retain="true"), "--set", "clean_start=skip")
    assert passes(code, result), result["verdict"]
    assert result["stale_state"] == []
    assert kept(stale) == {"up/x", "up/11", "elsewhere", *(f"up/{n}" for n in range(10))}


def test_what_a_run_left_is_taken_down_by_its_stamp(
    start: RunMaker, stale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "secret")
    login = "username: u\n    password: ${env:WORD}"
    played = start(load(stale, retain="true", device=login), "--set", "clean_start=skip")
    played.finish()
    assert len(kept(stale)) == 13
    words = ("down", str(played.directory), "--retained")
    done = program.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "removed 10 retained messages of this run\nnothing is left" in done.stdout
    assert kept(stale) == {"up/x", "up/11", "elsewhere"}


def test_each_client_clears_its_own_where_others_may_not(
    run: Play, mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("pattern write up/%u\nuser boss\ntopic readwrite #\n")
    rules.chmod(0o644)
    broker = mosquitto(acl_file=rules)
    client("mosquitto_pub", broker, "-t", "up/x", "-r", "-m", "old", "-u", "boss")
    text = load(broker, retain="true", device="username: '{n}'", backend="username: boss")
    code, result = run(text)
    assert passes(code, result), result["verdict"]
    assert stale_state(result) == [("before", "retained", 1), ("after", "retained", 10)]
    assert kept(broker, "boss") == {"up/x"}


@pytest.mark.parametrize("hangs", [False, True])
def test_a_broker_that_shows_nothing_leaves_it_unknown(
    hangs: bool, run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto(allow_anonymous="false")
    if hangs:
        broker.signal(signal.SIGSTOP)
    code, result = run(load(broker), "--set", "stages=[{connect: {timeout: 1s}}]")
    assert code == 3
    assert (result["verdict"]["status"], result["verdict"]["limited_by"]) == ("invalid", "target")
    assert stale_state(result) == [("before", "unknown", 0)]
    device = result["populations"]["device"]
    assert device["connected_max"] == 0
    assert device["outcomes"].keys() == (set() if hangs else {"not_authorized"})


MANY = """
target: {target}
populations:
  device:
    clients: 30
    publications: [{{topic: "up/{{n}}/{{1..400}}", rate: 1/s, retain: true}}]
stages: [connect]
"""
TAG = 0xDEADBEEF


@pytest.fixture
def many(mosquitto: MosquittoMaker) -> tuple[Any, Plan]:
    """A broker with 12,000 retained messages of a plan, and 300 of others on its topics."""
    broker = mosquitto()
    plan = made.compiled(MANY.format(target=broker.url)).model_copy(update={"run_tag": TAG})
    publisher = MqttObserver(plan.targets[0], ANONYMOUS)
    publisher.connect(60)
    for stamp, topics in (
        (TAG, sorted(own_topics(plan).publishers)),
        (TAG + 1, [f"up/{n}/more" for n in range(300)]),
    ):
        for topic in topics:
            payload = stamp.to_bytes(4, "little") + bytes(96)
            publisher.client.publish(topic, payload, retain=True)
            while publisher.client.want_write():
                publisher.step(0.01)
    # The broker has taken all once it acknowledges the last one.
    last = publisher.client.publish("up/0/more", payload, qos=1, retain=True)
    while not last.is_published():
        publisher.step(0.01)
    publisher.client.disconnect()
    return broker, plan


def test_what_a_broker_sends_after_a_pause_is_found_too(
    many: tuple[Any, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, plan = many
    take, waking = TargetObserver.on_message, list[threading.Timer]()

    def taken(observer: TargetObserver, *words: Any) -> None:
        take(observer, *words)
        if not waking:
            broker.signal(signal.SIGSTOP)
            waking.append(threading.Timer(3 * QUIET_S, broker.signal, [signal.SIGCONT]))
            waking[0].start()

    monkeypatch.setattr(TargetObserver, "on_message", taken)
    look, _ = retained_on(plan, 0, Deadline(60), own=lambda *_: True)
    assert (len(look.retained), look.truncated) == (12_300, False)
    assert waking


def test_as_many_messages_as_a_run_may_leave_are_removed_after_one_look(
    many: tuple[Any, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, plan = many
    look, looks = TargetObserver.look, []

    def looked(observer: TargetObserver, *words: Any) -> Observation:
        looks.append(words)
        return look(observer, *words)

    monkeypatch.setattr(TargetObserver, "look", looked)
    found = remove_retained(plan, 0, {}, Deadline(60))
    assert len(looks) == 2
    assert [(each.what, each.total) for each in found] == [("retained", 12_000)]
    assert kept(broker) == {f"up/{n}/more" for n in range(300)}


def test_the_number_that_is_left_is_the_number_that_is_said(
    many: tuple[Any, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for a whole look, and to clear a part of it."""
    broker, plan = many
    clear = TargetObserver.clear
    spent: list[None] = []

    def cleared(observer: TargetObserver, topics: Sequence[str]) -> Sequence[str]:
        observer._deadline.give_up() if spent else None
        spent.append(None)
        return clear(observer, topics[:500])

    monkeypatch.setattr(TargetObserver, "clear", cleared)
    removed, left = remove_retained(plan, 0, {}, Deadline(60))
    there = len(kept(broker)) - 300
    assert (removed.total, left.total) == (12_000 - there, there)
    assert left.text.startswith(f"{there:,} retained messages of".replace(",", "\u202f")), left.text

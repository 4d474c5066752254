"""Clean start: what others left is found, what a run leaves is removed, and nothing else is."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]
RunMaker = Callable[..., Any]
MosquittoMaker = Callable[..., Any]

SYS_TIMEOUT_S = 15.0
"""Time limit until the counts of the broker are fresh."""
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
stages: [connect, publish: 500ms]
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


def keep(broker: Any, topic: str, *arguments: str) -> None:
    client("mosquitto_pub", broker, "-t", topic, "-r", "-m", "old", *arguments)


def kept(broker: Any, *arguments: str) -> set[str]:
    """Topics with retained messages."""
    said = client("mosquitto_sub", broker, "-t", "#", "-F", "%t", "-W", "1", *arguments)
    return set(said.split())


def stale_state(result: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(r["when"], r["what"], r["total"]) for r in result["stale_state"]]


def evidence(result: dict[str, Any]) -> str:
    return "\n".join(result["verdict"]["evidence"])


def test_a_clean_broker_stays_clean(run: Play, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    code, result = run(load(broker))
    assert (code, result["stale_state"]) == (0, [])
    assert "clean start" not in evidence(result)


def test_retained_messages_of_others_are_found_and_left(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    for topic in ("up/x", "up/3", "elsewhere"):
        keep(broker, topic)
    code, result = run(load(broker))
    assert code == 0
    assert stale_state(result) == [("before", "retained", 2)]
    assert "it was not a clean start: " in evidence(result)
    assert "2 retained messages under up/#, such as up/3" in evidence(result)
    assert kept(broker) == {"up/x", "up/3", "elsewhere"}


def test_a_run_clears_the_messages_that_it_kept_and_no_others(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    for topic in ("up/x", "up/11", "elsewhere"):
        keep(broker, topic)
    code, result = run(load(broker, retain="true"))
    assert code == 0
    assert stale_state(result) == [("before", "retained", 2), ("after", "retained", 10)]
    assert kept(broker) == {"up/x", "up/11", "elsewhere"}


@pytest.mark.parametrize("version", ["", "version: 5", "version: 5\n    session_expiry: 1h"])
def test_persistent_sessions_are_found_and_those_of_the_run_are_ended(
    run: Play, mosquitto: MosquittoMaker, version: str
) -> None:
    broker = mosquitto()
    own = ("-c", "-i", "device-3", "-q", "1", "-E")
    client("mosquitto_sub", broker, *own, "-t", "old/topic")
    client("mosquitto_pub", broker, "-q", "1", "-t", "old/topic", "-m", "queued")
    code, result = run(load(broker, device=f"session: persistent\n    {version}"))
    assert code == 0
    assert ("before", "sessions", 1) in stale_state(result)
    assert ("after", "sessions", 10) in stale_state(result)
    assert "1 of 10 clients asked of device have a session from before" in evidence(result)
    deadline_s = time.monotonic() + SYS_TIMEOUT_S
    while broker.sys_topic("clients/total") > 1:
        assert time.monotonic() < deadline_s, "sessions are left"


def test_a_look_takes_no_queued_message_out_of_a_session(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    own = ("-c", "-i", "device-3", "-q", "1", "-t", "old/topic")
    client("mosquitto_sub", broker, *own, "-E")
    client("mosquitto_pub", broker, "-q", "1", "-t", "old/topic", "-m", "queued")
    run = start(load(broker, device="session: persistent"), "--set", "clean_start=require")
    assert run.finish() == 3
    assert client("mosquitto_sub", broker, *own, "-C", "1", "-W", "5") == "queued\n"


def test_require_plays_nothing_where_it_is_not_clean(run: Play, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    keep(broker, "up/3")
    code, result = run(load(broker), "--set", "clean_start=require")
    assert code == 3
    assert (result["verdict"]["status"], result["verdict"]["limited_by"]) == ("invalid", "target")
    assert "nothing was played: clean_start is require" in evidence(result)
    assert result["ended_early"]
    assert result["fleet"]["agents"] == result["stages"] == []


def test_require_plays_where_it_is_clean(run: Play, mosquitto: MosquittoMaker) -> None:
    code, result = run(load(mosquitto()), "--set", "clean_start=require")
    assert (code, result["stale_state"]) == (0, [])


def test_skip_neither_looks_nor_removes(run: Play, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    keep(broker, "up/x")
    code, result = run(load(broker, retain="true"), "--set", "clean_start=skip")
    assert (code, result["stale_state"]) == (0, [])
    assert kept(broker) == {"up/x", *(f"up/{n}" for n in range(10))}


def test_each_client_clears_its_own_where_others_may_not(
    run: Play, mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("pattern write up/%u\nuser boss\ntopic readwrite #\n")
    rules.chmod(0o644)
    broker = mosquitto(acl_file=rules)
    keep(broker, "up/x", "-u", "boss")
    text = load(broker, retain="true", device="username: '{n}'", backend="username: boss")
    code, result = run(text)
    assert code == 0
    assert stale_state(result) == [("before", "retained", 1), ("after", "retained", 10)]
    assert kept(broker, "-u", "boss") == {"up/x"}


def test_a_broker_that_forbids_the_look_leaves_it_unknown(
    run: Play, mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    rules = tmp_path / "passwords"
    rules.write_text("")
    rules.chmod(0o644)
    broker = mosquitto(allow_anonymous="false", password_file=rules)
    code, result = run(load(broker))
    assert code == 3
    assert stale_state(result) == [("before", "unknown", 0)]
    assert "whether it was a clean start is not known" in evidence(result)
    assert "refused the connection" in evidence(result)


def test_a_broker_that_hangs_holds_nothing_up(run: Play, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    broker.signal(signal.SIGSTOP)
    code, result = run(load(broker), "--set", "stages=[{connect: {timeout: 1s}}]")
    assert code == 3
    assert stale_state(result) == [("before", "unknown", 0)]
    assert "did not answer" in evidence(result)


def test_brokers_of_the_run_need_no_look(run: Play) -> None:
    text = LOAD.format(target="", retain="true", device="", backend="").replace(
        "target: ", "topology: {brokers: {b: {kind: mosquitto}}}"
    )
    code, result = run(text)
    assert (code, result["stale_state"]) == (0, [])


def test_an_interrupted_run_removes_its_own_too(start: RunMaker, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    run = start(load(broker, retain="true"), "--set", "stages=[connect, publish: 60s]")
    run.wait_for_stage("publish")
    run.process.send_signal(signal.SIGINT)
    run.wait_for("removing what this run left on the broker")
    assert run.finish() == 130
    assert ("after", "retained", 10) in stale_state(run.result())
    assert kept(broker) == set()


def test_a_broker_that_is_gone_afterwards_leaves_it_unknown(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    run = start(load(broker, retain="true"), "--set", "stages=[connect, publish: 3s]")
    run.wait_for_stage("publish", 3)
    broker.kill()
    run.finish()
    assert stale_state(run.result()) == [("after", "unknown", 0)]

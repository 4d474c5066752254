"""The embedded broker with users in a real Redis, under whole runs: what is refused is an outcome
with a count of its own, a Redis that goes away and comes back ends nothing, and its password is in
no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pubstorm.host.children import find
from tests.kit.ports import free_port
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage
from tests.system.topology.identities.conftest import OwnRedis

RunMaker = Callable[..., Any]
Play = Callable[..., tuple[int, dict[str, Any]]]
PASSWORD = "hidden-word"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that asks for a password; it is gone after the test."""
    binary = find("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    server = OwnRedis(binary, tmp_path, free_port(), {"requirepass": PASSWORD})
    server.start()
    yield server
    server.kill()


def url_of(redis: OwnRedis) -> str:
    return redis.url.replace("redis://", f"redis://:{PASSWORD}@")


def add_user(redis: OwnRedis, name: str, password: str, **rights: str) -> None:
    """Adds a user, and what it may do: topic filters by access. The Redis has them again at its
    next start."""
    client = Redis(port=redis.port, password=PASSWORD)
    client.hset(f"mqtt_user:{name}", "password", password)
    accesses = {"subscribe": "1", "publish": "2", "both": "3"}
    for access, topic in rights.items():
        client.hset(f"mqtt_acl:{name}", topic, accesses[access])
    client.save()
    client.close()


def counter(result: dict[str, Any], name: str) -> float:
    """The last reading of a count of the broker."""
    metric = f"pubstorm_broker_{name}"
    found = (each for each in result["monitors"] if each["metric"] == metric)
    last: float = next(found)["whole"]["last"]
    return last


def population(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = result["populations"][name]
    return found


REFUSALS = """
topology: {{brokers: {{main: {{kind: embedded, auth: "{url}"}}}}}}
monitors: {{interval: 100ms}}
populations:
  device:
    clients: 3
    username: device
    password: right
    publications: [{{topic: up/a, rate: 20/s, qos: 1}}]
  wrong: {{clients: 2, username: device, password: guess, reconnect: never}}
  stranger: {{clients: 1, reconnect: never}}
  curious: {{clients: 4, username: device, password: right, subscriptions: [down/#]}}
  forger:
    clients: 3
    username: device
    password: right
    publications: [{{topic: down/a, rate: 20/s, qos: 1}}]
  backend: {{clients: 1, username: backend, password: all, subscriptions: ["#"]}}
stages: [connect, {{publish: 1s}}, {{hold: 500ms}}]
# Messages that the broker refuses never arrive.
thresholds: [wrong.never_ready == 2, stranger.never_ready == 1, curious.lost > 0, backend.lost > 0]
"""


def test_each_refusal_has_a_count_of_its_own(redis: OwnRedis, run: Play) -> None:
    add_user(redis, "device", "right", publish="up/#", subscribe="other")
    add_user(redis, "backend", "all", subscribe="#")
    code, result = run(REFUSALS.format(url=url_of(redis)))
    assert passes(code, result), result["verdict"]
    reasons = {name: each["outcomes"] for name, each in result["populations"].items()}
    assert reasons == {
        "device": {},
        "wrong": {"bad_credentials": 2},
        "stranger": {"bad_credentials": 1},
        "curious": {"subscribe_refused": 4},
        "forger": {},
        "backend": {},
    }
    forged = population(result, "forger")["sent_total"]
    assert forged > 0 and counter(result, "publish_denied_total") == forged
    assert counter(result, "auth_refused_total") == 3
    assert counter(result, "subscribe_denied_total") == 4
    backend = population(result, "backend")
    assert backend["received_total"] == population(result, "device")["sent_total"]
    assert backend["lost_total"] == forged


AWAY = """
topology: {{brokers: {{main: {{kind: embedded, auth: "{url}"}}}}}}
populations:
  early: {{clients: 2, username: u, password: p, publications: [{{topic: a, rate: 20/s, qos: 1}}]}}
  late: {{clients: 3, username: u, password: p, reconnect: {{after: 50ms, up_to: 200ms}}}}
stages:
  - connect: {{name: first, populations: [early]}}
  - hold: {{name: calm, for: 10min}}
  - connect: {{name: then, populations: [late], timeout: 2min}}
  - publish: 500ms
"""


def test_no_client_gets_in_while_redis_is_away_and_all_do_later(
    redis: OwnRedis, start: RunMaker
) -> None:
    add_user(redis, "u", "p", both="a")
    run = start(AWAY.format(url=url_of(redis)))
    run.wait_for("calm")
    redis.kill()
    end_stage(run.directory)
    run.wait_for("server_unavailable")
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in run.children()]
    assert commands and not [command for command in commands if PASSWORD in command]
    redis.start()
    code, result = run.finish(), run.result()
    assert passes(code, result), result["verdict"]
    late, early = population(result, "late"), population(result, "early")
    assert late["outcomes"].keys() == {"server_unavailable"}
    assert late["connected_max"] == 3
    assert early["outcomes"] == {} and early["acked_total"] > 0
    folder = run.directory / "topology"
    log = (folder / "main-0" / "broker.log").read_text()
    assert [log.count(words) for words in ("does not answer", "answers again")] == [1, 1]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if PASSWORD in path.read_text()]

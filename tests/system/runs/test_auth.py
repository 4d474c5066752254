"""The embedded broker with users in a real Redis, under whole runs: what is refused is an outcome
with a count of its own, a Redis that goes away and comes back ends nothing, and its password is in
no file."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RunMaker = Callable[..., Any]
Play = Callable[..., tuple[int, dict[str, Any]]]
READY = "Ready to accept connections"
PASSWORD = "hidden-word"


class Redis:
    """A Redis of the test's own, which keeps in a folder what it is asked to save."""

    def __init__(self, binary: str, port: int, folder: Path) -> None:
        self.port = port
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        self._words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        self._words += ["--dir", str(folder), "--requirepass", PASSWORD]
        self.start()

    def start(self) -> None:
        """Returns when it answers."""
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if READY in line:
                return
        pytest.fail(f"redis-server does not start: {''.join(said)}")

    def save(self) -> None:
        """Keeps its data for its next start."""
        self._send("SAVE", answer=b"+OK")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def add_user(self, name: str, password: str, **rights: str) -> None:
        """A user, and what it may do: topic filters by access."""
        self._send("HSET", f"mqtt_user:{name}", "password", password)
        accesses = {"subscribe": "1", "publish": "2", "both": "3"}
        for access, topic in rights.items():
            self._send("HSET", f"mqtt_acl:{name}", topic, accesses[access])

    def _send(self, *words: str, answer: bytes = b":") -> None:
        with (
            socket.create_connection(("127.0.0.1", self.port)) as connection,
            connection.makefile("rb") as answers,
        ):
            for each in (("AUTH", PASSWORD), words):
                command = "".join(f"${len(word)}\r\n{word}\r\n" for word in each)
                connection.sendall(f"*{len(each)}\r\n{command}".encode())
                found = answers.readline()
        assert found.startswith(answer), found


@pytest.fixture
def redis(unused_port: int, tmp_path: Path) -> Iterator[Redis]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    server = Redis(binary, unused_port, tmp_path)
    yield server
    server.kill()


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
# What the broker refuses never arrives.
thresholds: [wrong.never_ready == 2, stranger.never_ready == 1, curious.lost > 0, backend.lost > 0]
"""


def test_each_refusal_has_a_count_of_its_own(redis: Redis, run: Play) -> None:
    redis.add_user("device", "right", publish="up/#", subscribe="other")
    redis.add_user("backend", "all", subscribe="#")
    code, result = run(REFUSALS.format(url=redis.url))
    assert code == 0
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
  - hold: {{name: calm, for: 1500ms}}
  - connect: {{name: then, populations: [late], timeout: 2min}}
  - publish: 500ms
"""


def test_no_client_gets_in_while_redis_is_away_and_all_do_later(
    redis: Redis, start: RunMaker
) -> None:
    redis.add_user("u", "p", both="a")
    run = start(AWAY.format(url=redis.url))
    run.wait_for("calm")
    # A Redis that answers before it has the user would have the broker refuse the password.
    redis.save()
    redis.kill()
    run.wait_for("server_unavailable")
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in run.children()]
    assert commands and not [command for command in commands if PASSWORD in command]
    redis.start()
    assert run.finish() == 0
    result = run.result()
    late, early = population(result, "late"), population(result, "early")
    assert late["outcomes"].keys() == {"server_unavailable"}
    assert late["connected_max"] == 3
    assert early["outcomes"] == {} and early["acked_total"] > 0
    folder = run.directory / "topology"
    log = (folder / "main-0" / "broker.log").read_text()
    assert [log.count(words) for words in ("does not answer", "answers again")] == [1, 1]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if PASSWORD in path.read_text()]

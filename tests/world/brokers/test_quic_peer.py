"""QUIC against a second implementation: Mochi with a listener of quic-go, in Go. The ready scenario
ends with exact counts, and so do clients that leave in every way and that resume sessions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import program
from tests.kit.runs import RunMaker

pytestmark = pytest.mark.concerns(
    "crates/engine/src/transport/quic.rs",
    "crates/engine/src/transport/quic/",
    "scenarios/quic.yaml",
    "scripts/brokers/mochi-quic/",
    "scripts/install-brokers",
    "tests/world/brokers/test_quic_peer.py",
)

BROKERS = Path(os.environ.get("PUBSTORM_BROKERS") or Path.home() / ".cache/pubstorm/brokers")
PROGRAM = BROKERS / "mochi-quic" / "mochi-quic"
READY_S = 60
WAYS = """\
target: %(target)s
populations:
  idle: {clients: 3, keep_alive: 60s, reconnect: never, tls: {ca: %(ca)s}}
  stranger: {clients: 3, reconnect: never, tls: {ca: %(ca)s, server_name: other.test}}
  pairs:
    clients: 3
    keep_alive: 1s
    tls: {ca: %(ca)s}
    subscriptions: [{topic: "pairs/{n}", qos: 2}]
    publications: [{topic: "pairs/{n}", rate: 20/s, qos: 2, size: 5kB}]
  resuming: {clients: 3, keep_alive: 2s, tls: {ca: %(ca)s, resume: 100%%}}
  early: {clients: 3, keep_alive: 2s, tls: {ca: %(ca)s, resume: 100%%, early_data: true}}
stages:
  - connect: {timeout: 5s}
  - publish:
      for: 6s
      changes:
        - {at: 1s, population: pairs, migrate: 2, over: 500ms}
        - {at: 3s, population: pairs, migrate: 100%%}
  - disconnect: {populations: [resuming, early]}
  - connect: {name: return, populations: [resuming, early]}
  - disconnect: {}
defaults: off
"""


@dataclass(frozen=True)
class Peer:
    """The broker, and the authority of its certificate."""

    target: str
    ca: Path
    process: subprocess.Popen[str]

    def migrated(self) -> list[tuple[str, str]]:
        """Ends the broker. Returns the old and the new address of each migration that it saw."""
        lines, _ = self.process.communicate(timeout=READY_S)
        words = (line.split() for line in lines.splitlines())
        return [(old, new) for word, old, new in words if word == "migrated"]


@pytest.fixture
def peer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Peer]:
    """Starts the broker; the parameter is its idle timeout."""
    if not PROGRAM.exists():
        pytest.skip("Mochi with QUIC is not installed (scripts/install-brokers mochi-quic)")
    keys = tmp_path / "keys"
    made = program.run(["keys", "ca", str(keys), "--name", "127.0.0.1"])
    assert made.returncode == 0, made.stderr
    files = ("--certificate", str(keys / "server.crt"), "--key", str(keys / "server.key"))
    broker = subprocess.Popen(
        [str(PROGRAM), *files, "--idle-timeout", request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    port = int(broker.stdout.readline())
    try:
        yield Peer(f"quic://127.0.0.1:{port}", keys / "ca.crt", broker)
    finally:
        # The end of standard input ends the broker.
        if broker.poll() is None:
            broker.communicate(timeout=READY_S)


@pytest.mark.slow("the ready scenario publishes for 20 s")
@pytest.mark.parametrize("peer", ["1h"], indirect=True)
def test_the_ready_scenario_ends_with_exact_counts_at_a_second_implementation(
    start: RunMaker, peer: Peer
) -> None:
    files = [f"populations.{name}.tls.ca={peer.ca}" for name in ("backend", "device")]
    sets = [word for file in files for word in ("--set", file)]
    run = start(Path("scenarios/quic.yaml").resolve(), "--target", peer.target, *sets)
    run.finish()
    populations = run.result()["populations"]
    device, backend = populations["device"], populations["backend"]
    assert (device["connected_max"], device["disconnected_total"]) == (1000, 0)
    assert backend["received_total"] == backend["expected_total"] == device["sent_total"] > 0
    assert device["received_total"] == device["expected_total"] == backend["sent_total"] > 0
    assert device["acked_total"] == device["sent_total"]


@pytest.mark.slow("a publish stage of 6 s and an idle timeout within it")
@pytest.mark.parametrize("peer", ["4s"], indirect=True)
def test_outcomes_have_the_same_names_at_a_second_implementation(
    start: RunMaker, peer: Peer
) -> None:
    run = start(WAYS % {"target": peer.target, "ca": peer.ca})
    run.finish()
    populations = run.result()["populations"]
    outcomes = {name: each["outcomes"] for name, each in populations.items()}
    assert outcomes == {
        "idle": {"quic_idle_timeout": 3},
        "stranger": {"certificate_name": 3},
        "pairs": {},
        "resuming": {},
        "early": {},
    }
    pairs = populations["pairs"]
    assert pairs["sent_total"] == pairs["acked_total"] == pairs["received_total"] > 0
    assert (pairs["lost_total"], pairs["duplicate_total"]) == (0, 0)
    migrations = ("migrated_total", "migrations_followed_total", "migrations_lost_total")
    assert [pairs[each] for each in migrations] == [5, 5, 0]
    seen = peer.migrated()
    assert len(seen) == 5 and all(old != new for old, new in seen)
    handshakes = ("tls_full_total", "tls_resumed_total", "tls_resume_refused_total")
    early = ("tls_early_accepted_total", "tls_early_rejected_total")
    for name, accepted in (("resuming", 0), ("early", 3)):
        found = populations[name]
        assert [found[each] for each in (*handshakes, *early)] == [3, 3, 0, accepted, 0]
        assert found["connect_time_tls_early_us"]["count"] == accepted

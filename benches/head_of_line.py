"""Compares the same messages on one connection and on many over a lossy path, over QUIC and TCP:
`python -m benches.head_of_line`. Needs root and /dev/net/tun (see `benches.lossy_path`).

Clients publish to topics of their own at the embedded broker, and receive their own messages. The
latency of a message thus has the path twice. All cases have the same messages a second, in one
connection or in many.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benches import machine
from benches.lossy_path import ADDRESSES, LossyPath, lossy_path
from pubstorm.host.binaries import broker_path

DELAY_MS = 50
LOSSES = (0.0, 0.02)
MESSAGES_PER_S = 500
CONNECTIONS = (1, 50)
SECONDS = 30
RUN_TIMEOUT_S = 300
PORT, QUIC_PORT = 1883, 14567
TARGETS = {
    "QUIC": f"quic://{ADDRESSES[1]}:{QUIC_PORT}",
    "TCP": f"mqtt://{ADDRESSES[1]}:{PORT}",
}


def main() -> int:
    """Prints a line for each case; returns the exit code."""
    print(machine.describe())
    other_work = machine.OtherWork()
    print(f"{MESSAGES_PER_S} messages/s, {DELAY_MS} ms in each direction, {SECONDS} s")
    print("\n| lost packets | connections | transport | p50 | p99 | largest |")
    print("| -: | -: | - | -: | -: | -: |")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        keys = ["keys", "ca", str(folder / "keys"), "--name", ADDRESSES[1]]
        subprocess.run([sys.executable, "-m", "pubstorm", *keys], check=True, capture_output=True)
        for loss in LOSSES:
            with lossy_path(loss, DELAY_MS) as path:
                _rows(folder, path, loss)
    print(f"\nother work took {other_work.share():.0%} of the machine meanwhile")
    return 0


def _rows(folder: Path, path: LossyPath, loss: float) -> None:
    listen = ("--listen", ADDRESSES[1], "--port", str(PORT), "--quic-port", str(QUIC_PORT))
    keys = folder / "keys"
    files = ("--quic-certificate", str(keys / "server.crt"), "--quic-key", str(keys / "server.key"))
    command = [*path.broker, str(broker_path()), *listen, *files, "--follow-stdin"]
    broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        broker.stdout.readline()
        for connections in CONNECTIONS:
            for transport, target in TARGETS.items():
                latency = _latency(folder, path, target, connections)
                cells = (f"{latency[part] / 1000:,.0f} ms" for part in ("p50", "p99", "max"))
                case = f"{loss:.0%} | {connections} | {transport}"
                print(f"| {case} | {' | '.join(cells)} |", flush=True)
    finally:
        broker.communicate()


def _latency(folder: Path, path: LossyPath, target: str, connections: int) -> dict[str, Any]:
    """Returns the latency of a run from the scheduled send to the delivery, in microseconds."""
    flow = {"topic": "own/{n}", "rate": f"{MESSAGES_PER_S / connections:g}/s", "size": "100B"}
    client = {
        "clients": connections,
        "subscriptions": ["own/{n}"],
        "publications": [flow],
        **({"tls": {"ca": str(folder / "keys" / "ca.crt")}} if target.startswith("quic") else {}),
    }
    scenario = {
        "target": target,
        "populations": {"client": client},
        "stages": ["connect", {"publish": f"{SECONDS}s"}, "disconnect"],
        "fleet": {"agents": 1},
        "clean_start": "skip",
        "defaults": "off",
    }
    with tempfile.TemporaryDirectory() as text:
        file, out = Path(text) / "scenario.json", Path(text) / "run"
        file.write_text(json.dumps(scenario))
        command = [sys.executable, "-m", "pubstorm", "run", str(file), "--out", str(out)]
        played = subprocess.run(
            [*path.clients, *command, "--no-report"],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        if not (out / "result.json").exists():
            raise SystemExit(played.stderr)
        client = json.loads((out / "result.json").read_text())["populations"]["client"]
    if client["lost_total"] or not client["received_total"]:
        raise SystemExit(f"{client['lost_total']} of {client['expected_total']} messages were lost")
    latency: dict[str, Any] = client["latency_us"]["intended"]
    return latency


if __name__ == "__main__":
    sys.exit(main())

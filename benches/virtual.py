"""Counts the engine's instructions by callgrind in virtual time, whatever else the machine does.

`python -m benches.virtual [SCENE...] [--programs FOLDER]` plays each scene once and prints the
instructions of the loop for each message, connection or ping. The engine runs as it is released;
`virtual_kernel.c` gives it a clock without work, and a peer. Two runs of one build differ by less
than a thousandth, so two builds can be compared on a busy machine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches import plans
from benches.bench import BUILT
from benches.plans import SECOND_NS, Json, connect, hold, population, publication, publish
from benches.programs import EngineRun, ProgramError, Programs

SOURCE = Path(__file__).with_name("virtual_kernel.c")
BEGIN_NS = 1_000 * SECOND_NS
"""The virtual clock at its start."""
COMMAND_NS = SECOND_NS // 100
"""A command comes so much before its stage."""
PAUSE_NS = 3 * SECOND_NS
"""Between two stages: the drain has ended."""
SNAPSHOTS_NS = 10 * SECOND_NS
TOPIC = plans.TOPIC.replace("{n}", str(plans.FIRST_CLIENT))
BLOCKS, BLOCK_MESSAGES = 4, 120
"""Of the publisher of ZeroMQ: half of a write of libzmq each."""


@dataclass(frozen=True)
class Scene:
    """A load, one stage of which is counted."""

    name: str
    populations: Sequence[Json]
    stages: Sequence[Json]
    counted: int
    """Index of the stage."""
    units: int
    """Messages, connections or pings of that stage."""
    reached: Callable[[EngineRun], int]
    """The same, as the engine says."""
    is_zmtp: bool = False

    def lines(self) -> str:
        """Lines that the engine and its virtual kernel read."""
        plan = plans.plan(self.populations, self.stages, 1883)
        plan["snapshot_interval_ns"] = SNAPSHOTS_NS
        at_ns = BEGIN_NS
        lines = [(at_ns, json.dumps(plan))]
        for index, stage in enumerate(self.stages):
            at_ns += PAUSE_NS
            if index in (self.counted, self.counted + 1):
                lines.append((at_ns - 2 * COMMAND_NS, f"count {index - 1}"))
            command = {"command": "stage", "index": index, "at_ns": at_ns}
            lines.append((at_ns - COMMAND_NS, json.dumps(command)))
            if self.is_zmtp and stage["action"]["kind"] == "publish":
                lines.append((at_ns + COMMAND_NS, f"feed {BLOCKS} {BLOCK_MESSAGES}"))
                sent = {"population": 0, "client": 0, "total": BLOCKS * BLOCK_MESSAGES}
                close = {"command": "close", "sent": [sent]}
                lines.append((at_ns + 10 * COMMAND_NS, json.dumps(close)))
            at_ns += stage["action"].get("duration_ns", 0)
        at_ns += PAUSE_NS
        lines += [(at_ns, f"count {len(self.stages) - 1}")]
        lines += [(at_ns + 1, json.dumps({"command": "stop"}))]
        return "".join(f"{instant_ns} {text}\n" for instant_ns, text in lines)


def sending(name: str, clients: int, rate_per_s: float, qos: int, seconds: float = 1.0) -> Scene:
    """Clients that publish."""
    load = [population(clients, publications=[publication(rate_per_s, qos=qos)])]
    return Scene(
        name,
        load,
        [connect(1), publish(1, seconds)],
        counted=1,
        units=round(clients * rate_per_s * seconds),
        reached=lambda run: run.counters["acked_total" if qos else "sent_total"],
    )


def receiving(name: str, subscribers: int, rate_per_s: float, qos: int = 0) -> Scene:
    """One publisher and its subscribers."""
    load = [
        population(1, publications=[publication(rate_per_s, qos=qos)]),
        population(subscribers, first=plans.FIRST_CLIENT + 1, filters=[TOPIC], qos=qos),
    ]
    return Scene(
        name,
        load,
        [connect(2), publish(2, 1.0)],
        counted=1,
        units=round(subscribers * rate_per_s),
        reached=lambda run: run.flows["received_total"],
    )


def scenes() -> list[Scene]:
    """All of them."""
    idle = [{**population(1000), "keep_alive_s": 1}]
    retained = [
        population(1, publications=[{**publication(1), "retain": True}]),
        population(2000, first=plans.FIRST_CLIENT + 1, filters=[TOPIC]),
    ]
    deliveries = BLOCKS * BLOCK_MESSAGES
    return [
        sending("send", 200, 20, qos=0, seconds=5.0),
        sending("send-20-a-write", 10, 20_000, qos=0, seconds=0.1),
        receiving("receive", 200, 100),
        receiving("receive-20-a-read", 5, 20_000),
        sending("qos1", 100, 100, qos=1),
        receiving("qos1-receive", 100, 100, qos=1),
        sending("qos2", 100, 100, qos=2),
        receiving("qos2-receive", 100, 100, qos=2),
        Scene(
            "connect",
            [population(10_000)],
            [connect(1)],
            counted=0,
            units=10_000,
            reached=lambda run: run.counters["connected_total"],
        ),
        Scene(
            "subscribe-960",
            plans.sockets(960),
            [_connect_second(connect(2)), publish(2, 1.0)],
            counted=1,
            units=960 * deliveries,
            reached=lambda run: run.flows["received_total"],
            is_zmtp=True,
        ),
        Scene(
            "retained",
            retained,
            [connect(1), publish(1, 1.0), _connect_second(connect(2))],
            counted=2,
            units=2000,
            reached=lambda run: run.counters["retained_total"],
        ),
        Scene(
            "keep-alive",
            idle,
            [connect(1), hold(1, 20.0)],
            counted=1,
            units=23_000,
            # Without the CONNACKs, and the pings before the stage.
            reached=lambda run: run.counters["packets_received_total"] - 2000,
        ),
    ]


def _connect_second(stage: Json) -> Json:
    return {**stage, "populations": [1]}


def count(scene: Scene, engine: Path, kernel: Path, folder: Path) -> int:
    """Plays a scene; returns the instructions of the loop in its counted stage."""
    out = folder / f"{scene.name}.out"
    valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--quiet"]
    environment = {**os.environ, "LD_PRELOAD": str(kernel)}
    if scene.is_zmtp:
        environment["VIRTUAL_ZMTP"] = "yes"
    played = subprocess.run(
        [*valgrind, f"--callgrind-out-file={out}", engine],
        input=scene.lines(),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    run = EngineRun()
    for line in played.stdout.splitlines():
        if (value := json.loads(line))["kind"] == "snapshot":
            run.add(value)
    if played.returncode or scene.reached(run) != scene.units or run.outcomes:
        raise ProgramError(
            f"{scene.name}: found {scene.reached(run)} units, {dict(run.outcomes)}, "
            f"expected {scene.units}: {played.stderr[-2000:]}"
        )
    for part in folder.glob(f"{out.name}.*"):
        text = part.read_text()
        if f"desc: Trigger: Client Request: {scene.counted}\n" in text:
            found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            assert found
            return int(found[1])
    raise ProgramError(f"{scene.name}: callgrind wrote no counts")


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each scene; returns the exit code."""
    known = {scene.name: scene for scene in scenes()}
    parser = argparse.ArgumentParser(prog="virtual", description=__doc__.splitlines()[0])
    parser.add_argument("scene", nargs="*", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--programs", type=Path, default=BUILT, help="where they were built")
    parser.add_argument("--keep", type=Path, help="folder that keeps callgrind's files")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        kernel = Path(temporary) / "virtual_kernel.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", kernel, SOURCE], check=True)
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in options.scene or known:
            scene = known[name]
            counted = count(scene, Programs(options.programs).engine, kernel, folder)
            print(f"{name}: {counted / scene.units:,.1f} ({counted:,})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An agent that speaks the contract without a broker: `--behaviour` or the plan's name says how it
behaves. A thread of its own answers beats, as that of an engine does."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

EMPTY = {
    "count": 0,
    "sum_ns": 0,
    "min_ns": 0,
    "max_ns": 0,
    "negative_total": 0,
    "negative_min_ns": 0,
    "buckets": [],
}


PROGRAM = ("agent", "agents", "population")


class Commands(threading.Thread):
    """The lines of stdin, but for beats. The last one is empty: stdin was closed."""

    def __init__(self, answer: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.lines: queue.Queue[str] = queue.Queue()
        self.answer = answer

    def run(self) -> None:
        rest = b""
        while data := os.read(0, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if json.loads(line).get("command") == "beat":
                    self.answer()
                else:
                    self.lines.put(line.decode() + "\n")
        self.lines.put("")


class Agent:
    def __init__(self, place: tuple[int, int, int | None], options: dict[str, str]) -> None:
        self.index, self.count, self.population = place
        self.incarnation = int(options.get("--incarnation", 0))
        self.speaking = threading.Lock()
        self.commands = Commands(self.answer)
        self.commands.start()
        self.plan: dict[str, Any] = json.loads(self.commands.lines.get())
        self.behaviour = options.get("--behaviour", self.plan["name"])
        self.sequence = 0
        self.stage: int | None = None

    def say(self, **line: object) -> None:
        """Writes a line, without a buffer: the interpreter aborts if a thread holds that of stdout
        while it ends."""
        rest = (json.dumps(line) + "\n").encode()
        with self.speaking:
            while rest:
                rest = rest[os.write(1, rest) :]

    def answer(self) -> None:
        self.say(kind="beat")

    def hello(self) -> None:
        self.say(
            kind="hello",
            agent=self.index,
            agents=self.count,
            version=f"fake {self.incarnation}",
            pid=os.getpid(),
            descriptors=20000,
            clients=self.shares(),
            clock_ns=time.monotonic_ns(),
        )

    def shares(self) -> list[int]:
        if self.population is not None:
            return [int(p == self.population) for p in range(len(self.plan["populations"]))]
        players = [p["protocol"].get("player", "engine") for p in self.plan["populations"]]
        populations = zip(self.plan["populations"], players, strict=True)
        clients = [p["clients"] * (player == "engine") for p, player in populations]
        return [max(0, (n - self.index - 1) // self.count + 1) for n in clients]

    def snapshot(self, settled: bool = True, sent: int = 0) -> None:
        now_ns = time.monotonic_ns()
        populations = [
            {
                "gauges": {
                    "connected": n,
                    "ready": n,
                    "in_flight": 0,
                    "backlog": 0,
                },
                "counters": {
                    "sent_total": sent,
                    "connect_attempts_total": n,
                    "connected_total": n,
                },
                "outcomes": {},
                "connect_time": EMPTY,
                "ack_intended": EMPTY,
                "ack_actual": EMPTY,
            }
            for n in self.shares()
        ]
        if self.population is not None:
            for index, population in enumerate(populations):
                population["counters"] = {"sent_total": sent * (index == self.population)}
        self.say(
            kind="snapshot",
            agent=self.index,
            sequence=self.sequence,
            stage=self.stage,
            from_ns=now_ns - 10**6,
            to_ns=now_ns,
            settled=settled,
            populations=populations,
            flows=[],
            engine={
                "busy_ns": 1,
                "cpu_ns": 1,
                "rss_bytes": 1,
                "lateness": EMPTY,
                "blocked": EMPTY,
                "ledger_pairs": 0,
                "unfollowed_total": 0,
            },
        )
        self.sequence += 1

    def serve(self) -> None:
        """Settles every stage at once, until the stop command."""
        while line := self.commands.lines.get():
            command = json.loads(line)
            sys.stderr.write(line)
            sys.stderr.flush()
            if command["command"] == "stage":
                self.stage = command["index"]
                self.play_stage()
            elif command["command"] == "close" and self.behaviour != "publishers-deaf":
                self.snapshot(sent=5)
            elif command["command"] == "stop":
                self.say(kind="bye", snapshots=self.sequence)
                return

    def play_stage(self) -> None:
        if self.behaviour.startswith("publishers-"):
            if self.plan["stages"][self.stage]["action"]["kind"] != "publish":
                self.snapshot()
            elif self.population is None:
                self.await_close()
            else:
                self.publish()
            return
        self.snapshot(sent=10)
        if self.behaviour == "crashes" and self.incarnation == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def await_close(self) -> None:
        """Sends unsettled snapshots until the command with the sums of the publishers arrives."""
        self.snapshot(settled=False)
        while self.commands.lines.empty():
            time.sleep(0.1)
            self.snapshot(settled=False)

    def publish(self) -> None:
        match self.behaviour:
            case "publishers-die":
                self.snapshot(settled=False, sent=3)
                os.kill(os.getpid(), signal.SIGKILL)
            case "publishers-fall-silent":
                sleep_for_ever()
            case "publishers-talk-nonsense":
                self.say(kind="weather", sky="blue")
            case "publishers-dawdle" | "publishers-deaf":
                self.snapshot(settled=False, sent=10)
            case _:
                self.snapshot(sent=10)


def live(agent: Agent) -> None:
    """Plays, or misbehaves instead."""
    if agent.behaviour == "crashes" and agent.incarnation > 1:
        sys.stderr.write("cannot think of a greeting\n")
        leave(7)
    agent.hello()
    if agent.behaviour == "falls-silent":
        sleep_for_ever()
    agent.serve()


def leave(code: int) -> NoReturn:
    """Ends this process, with no step of the interpreter in which another thread can abort it."""
    sys.stderr.flush()
    os._exit(code)


def sleep_for_ever() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


if __name__ == "__main__":
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if "--population" in given:
        index, count, population = (int(given[f"--{key}"]) for key in PROGRAM)
        live(Agent((index, count, population), given))
    else:
        index, count = map(int, given["--shard"].split("/"))
        live(Agent((index, count, None), given))
    leave(0)

"""An agent that speaks the contract without a broker: the plan's name says how it behaves."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
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


class Agent:
    def __init__(self, index: int, count: int, population: int | None = None) -> None:
        self.index, self.count, self.population = index, count, population
        self.plan: dict[str, Any] = json.loads(sys.stdin.readline())
        self.sequence = 0
        self.stage: int | None = None

    def say(self, **line: object) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def hello(self, index: int | None = None) -> None:
        self.say(
            kind="hello",
            agent=self.index if index is None else index,
            agents=self.count,
            version="fake",
            pid=os.getpid(),
            descriptors=20000,
            clients=self.shares(),
            clock_ns=time.monotonic_ns(),
        )

    def shares(self) -> list[int]:
        if self.population is not None:
            return [int(p == self.population) for p in range(len(self.plan["populations"]))]
        clients = [p["clients"] * (p["player"] == "engine") for p in self.plan["populations"]]
        return [max(0, (n - self.index - 1) // self.count + 1) for n in clients]

    def snapshot(self, settled: bool = True, sent: int = 0, failed: int = 0) -> None:
        now_ns = time.monotonic_ns()
        populations = [
            {
                "gauges": {"connected": n, "ready": n, "in_flight": 0, "backlog": 0},
                "counters": {
                    "sent_total": sent,
                    "connect_attempts_total": failed or n,
                    "connect_failed_total": failed,
                    "connected_total": 0 if failed else n,
                },
                "outcomes": {"connect_refused": failed} if failed else {},
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
        """Settles every stage at once, until told to stop."""
        for line in sys.stdin:
            command = json.loads(line)
            sys.stderr.write(line)
            sys.stderr.flush()
            if command["command"] == "stage":
                self.stage = command["index"]
                self.play_stage()
            elif command["command"] == "change":
                self.snapshot(sent=command["action"]["clients"])
            elif command["command"] == "close" and self.plan["name"] != "publishers-deaf":
                self.snapshot(sent=5)
            elif command["command"] == "stop":
                if self.plan["name"] == "leaves-slowly":
                    sys.stdin.readline()
                self.say(kind="bye", snapshots=self.sequence)
                return

    def play_stage(self) -> None:
        if self.plan["name"].startswith("publishers-"):
            if self.plan["stages"][self.stage]["action"]["kind"] != "publish":
                self.snapshot()
            elif self.population is None:
                self.await_close()
            else:
                self.publish()
            return
        match self.plan["name"]:
            case "crashes":
                self.snapshot()
                os.kill(os.getpid(), signal.SIGKILL)
            case "crashes-alone" if self.index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            case "refused":
                self.snapshot(settled=False, failed=5)
            case "never-settles":
                self.snapshot(settled=False)
            case _:
                self.snapshot(sent=10)

    def await_close(self) -> None:
        """What an engine does that is to be told what publishers have sent."""
        self.snapshot(settled=False)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            self.snapshot(settled=False)

    def publish(self) -> None:
        match self.plan["name"]:
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


def misbehave(agent: Agent) -> None:
    """What happens instead of a run, by the plan's name."""
    match agent.plan["name"]:
        case "never-says-hello":
            sys.stderr.write("cannot think of a greeting\n")
            sys.exit(7)
        case "fails":
            agent.say(kind="failure", message="no such seed", hint="choose another")
            sys.exit(1)
        case "is-another-shard":
            agent.hello(index=agent.index + 1)
        case "talks-nonsense":
            agent.hello()
            agent.say(kind="weather", sky="blue")
        case "leaves-a-gap":
            agent.hello()
            agent.snapshot()
            agent.sequence += 1
            agent.snapshot()
        case "falls-silent":
            agent.hello()
            sleep_for_ever()
        case _:
            agent.hello()
            agent.serve()
            return
    sys.stdin.read()


def sleep_for_ever() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


if __name__ == "__main__":
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if "--population" in options:
        place = [int(options[key]) for key in ("--agent", "--agents", "--population")]
        misbehave(Agent(*place))
    else:
        index, count = options["--shard"].split("/")
        misbehave(Agent(int(index), int(count)))

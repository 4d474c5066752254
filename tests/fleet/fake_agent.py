"""An agent that speaks the contract without a broker: the plan's name says how it behaves."""

from __future__ import annotations

import json
import os
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
    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count
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
        clients = [population["clients"] for population in self.plan["populations"]]
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
            if command["command"] == "stage":
                self.stage = command["index"]
                self.play_stage()
            elif command["command"] == "change":
                self.snapshot(sent=command["action"]["clients"])
            elif command["command"] == "stop":
                if self.plan["name"] == "leaves-slowly":
                    sys.stdin.readline()
                self.say(kind="bye", snapshots=self.sequence)
                return

    def play_stage(self) -> None:
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
    index, count = sys.argv[sys.argv.index("--shard") + 1].split("/")
    misbehave(Agent(int(index), int(count)))

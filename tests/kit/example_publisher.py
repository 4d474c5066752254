"""Makes the run directory of a publisher of ZeroMQ by hand: it sends a message more than every
hundredth subscriber's queue has room for, and a tenth of the subscribers read slowly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pubstorm.contract import Sample, Source
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.result import Latency, Measured, Rates, RunResult, Sampler, ValidityLimits
from pubstorm.result.samples import HEADER, csv_lines
from pubstorm.result.verdict import evaluate_run
from tests.kit import made
from tests.kit.example_zeromq import constant, drops, feed, publisher, subscriber
from tests.kit.measured import ENVIRONMENT, fleet, stages

DURATION_S = 60
SLOW = "subscriber/slow"
REST = "subscriber/rest"
OF_PROCESS = {"cpu", "thread_cpu_max", "rss_bytes"}
"""Metrics of the publisher as a process."""


def write_publisher_run(folder: Path, **changes: object) -> RunResult:
    """Makes the folder; `changes` are fields of what was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "samples.csv").open("w", encoding="utf-8") as stream:
        stream.write(",".join(HEADER) + "\n")
        stream.writelines(csv_lines(_samples()))
    measured = _measured(folder).model_copy(update=changes)
    result = RunResult.of(
        measured, evaluate_run(measured, [parse_threshold(f"{REST}.loss < 0.5%")])
    )
    (folder / "result.json").write_text(result.to_json())
    (folder / SNAPSHOTS_FILE).write_text(f"{_snapshot(result).model_dump_json()}\n")
    return result


def _snapshot(result: RunResult) -> Snapshot:
    """All latencies of the result, in one interval."""
    places = {name: place for place, name in enumerate(result.populations)}
    flows = (
        made.flow(places[each.source], places[each.to], *dict(each.histogram_ns).values())
        for each in result.flows
    )
    populations = [made.population() for _ in places]
    return made.snapshot(*populations, from_ns=result.started_monotonic_ns, flows=tuple(flows))


def _measured(folder: Path) -> Measured:
    rest = subscriber(lost_total=900, received_total=99_100, clients=90, ready_max=90)
    slow = subscriber(lost_total=48_000, received_total=52_000, read_rate_per_s=500.0)
    whole = subscriber(
        clients=100,
        ready_max=100,
        expected_total=200_000,
        lost_total=48_900,
        received_total=151_100,
        rates=Rates(received_per_s=94_200, bytes_received_per_s=3_240_000),
        read_rate_per_s=500.0,
    )
    return Measured(
        name="1 publisher, 100 subscribers",
        run_directory=str(folder),
        targets=("zmq://127.0.0.1:40001",),
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:01:00+00:00",
        duration_s=DURATION_S,
        populations={
            "feed": feed(),
            REST: rest.model_copy(
                update={"rates": Rates(received_per_s=89_200, bytes_received_per_s=3_070_000)}
            ),
            SLOW: slow.model_copy(
                update={"rates": Rates(received_per_s=5000, bytes_received_per_s=170_000)}
            ),
        },
        wholes={"subscriber": whole},
        flows=(drops(900, REST), drops(48_000, SLOW)),
        stages=stages()[1:],
        samplers=(Sampler(subject=REST, kind="sub", count=99_100, of=100_000, mean_us=210.0),),
        fleet=fleet(lateness_us=Latency()),
        publishers=(publisher(),),
        monitors=(
            constant("feed", "cpu", 0.94),
            constant("feed", "thread_cpu_max", 0.71),
            constant("feed", "rss_bytes", 12.4e6),
            constant("host", "cpu", 0.62),
            constant("agent-0", "cpu", 0.3),
        ),
        validity=ValidityLimits(lateness_p99_us=10_000, busy=0.9),
        environment=ENVIRONMENT,
    )


def _samples() -> Iterator[Sample]:
    chance = random.Random(1)
    for second in range(DURATION_S):
        load = 1.0 if 5 <= second < 55 else 0.0
        noise = 1 + 0.02 * (chance.random() - 0.5)
        found = {
            "feed": {
                "connected": 1,
                "ready": 1,
                "sent_per_s": 1000 * load,
                "due_per_s": 1000 * load,
                "cpu": 0.94 * load * noise,
                "thread_cpu_max": 0.71 * load * noise,
                "rss_bytes": 9e6 + 3.4e6 * load,
            },
            "subscriber": {"ready": 100, "received_per_s": 94_200 * load * noise},
            REST: {"ready": 90, "received_per_s": 89_200 * load * noise},
            SLOW: {"ready": 10, "received_per_s": 5000 * load},
            "host": {"cpu": 0.1 + 0.52 * load * noise},
            "agent-0": {"cpu": 0.3 * load * noise, "busy": 0.28 * load * noise},
        }
        for source, figures in found.items():
            for metric, value in figures.items():
                made_by = made.source(source)
                if metric in OF_PROCESS and source == "feed":
                    made_by = Source.single("publisher", source)
                yield Sample(made_by, metric, float(second + 1), value)

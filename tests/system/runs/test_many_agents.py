"""A run that is split over agents comes to the same as with one: the numbers of a published test
that was split over machines, scaled down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.starved import passes

Play = Callable[..., tuple[int, dict[str, Any]]]
SCENARIOS = Path(__file__).parents[3] / "scenarios"


POPULATION = "connection"
SETTINGS = (
    "sweep=null",
    "populations.connection.clients=45",
    "populations.connection.publications.0.rate=5/s",
    "populations.connection.publications.0.arrivals=poisson",
    "stages.1.publish=1s",
)
COUNTS = (
    "connect_attempts_total",
    "connected_total",
    "connect_failed_total",
    "disconnected_total",
    "sent_total",
    "acked_total",
    "skipped_total",
    "expected_total",
    "received_total",
    "lost_total",
    "duplicate_total",
)


def test_agents_add_up_to_what_one_plays(run: Play, tmp_path: Path) -> None:
    words = [word for each in SETTINGS for word in ("--set", each)]
    totals, clients = [], []
    for number, count in enumerate((1, 3)):
        scenario = SCENARIOS / "connection-ladder.yaml"
        code, result = run(scenario, *words, "--set", f"fleet.agents={count}")
        assert passes(code, result), result["verdict"]
        shares = [agent["clients"] for agent in result["fleet"]["agents"]]
        assert len(shares) == count
        assert max(shares) - min(shares) <= len(result["populations"])
        populations = result["populations"].items()
        totals.append({name: {key: each[key] for key in COUNTS} for name, each in populations})
        clients.append(came(tmp_path / f"run-{number}"))
        for counter in ("sent_total", "acked_total", "expected_total", "received_total"):
            by_agent = [agent[counter] for agent in result["fleet"]["agents"]]
            assert sum(by_agent) == sum(each[counter] for _, each in populations)
    assert totals[0] == totals[1]
    of_one = totals[0][POPULATION]
    assert of_one["sent_total"] == of_one["acked_total"] > 0
    expected = {f"{POPULATION}-{n}": 1 for n in range(of_one["connected_total"])}
    assert clients == [expected, expected]


def came(directory: Path) -> Counter[str]:
    """Number of connects of each client of the population, as the broker logged it."""
    (log,) = directory.glob("**/broker.log")
    words = re.compile(rf"New client connected from \S+ as ({POPULATION}-\d+) ")
    return Counter(words.findall(log.read_text()))

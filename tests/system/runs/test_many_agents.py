"""A run that is split over agents comes to the same as with one: the numbers of two published tests
that were split over machines and processes, scaled down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]
SCENARIOS = Path(__file__).parents[3] / "scenarios"


class Case(NamedTuple):
    """A ready scenario scaled down, and over how many agents its original was split."""

    name: str
    population: str
    agents: int
    settings: tuple[str, ...]


BEES = (
    "sweep=null",
    "profile=null",
    "populations.device.clients=50",
    "populations.device.publications.0.rate=2/s",
    "stages.2.publish=2s",
)
PARTS = (
    "sweep=null",
    "populations.connection.clients=45",
    "populations.connection.publications.0.rate=5/s",
    "stages.1.publish=2s",
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


CASES = (
    Case("mosquitto-fixed-rate", "device", 20, BEES),
    Case("connection-ladder", "connection", 2, PARTS),
    Case(
        "connection-ladder",
        "connection",
        3,
        (*PARTS, "populations.connection.publications.0.arrivals=poisson"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_agents_add_up_to_what_one_plays(run: Play, tmp_path: Path, case: Case) -> None:
    words = [word for each in case.settings for word in ("--set", each)]
    totals, clients = [], []
    for number, count in enumerate((1, case.agents)):
        scenario = SCENARIOS / f"{case.name}.yaml"
        code, result = run(scenario, *words, "--set", f"fleet.agents={count}")
        assert code == 0, result["verdict"]
        shares = [agent["clients"] for agent in result["fleet"]["agents"]]
        assert len(shares) == count
        assert max(shares) - min(shares) <= len(result["populations"])
        totals.append(
            {
                each: {key: found[key] for key in COUNTS}
                for each, found in result["populations"].items()
            }
        )
        clients.append(came(tmp_path / f"run-{number}", case.population))
        for counter in ("sent_total", "acked_total", "expected_total", "received_total"):
            by_agent = [agent[counter] for agent in result["fleet"]["agents"]]
            whole = sum(found[counter] for found in result["populations"].values())
            assert sum(by_agent) == whole
    assert totals[0] == totals[1]
    of_one = totals[0][case.population]
    assert of_one["sent_total"] == of_one["acked_total"] > 0
    expected = {f"{case.population}-{n}": 1 for n in range(of_one["connected_total"])}
    assert clients == [expected, expected]


def came(directory: Path, population: str) -> Counter[str]:
    """Number of connects of each client of a population, as the broker logged it."""
    (log,) = directory.glob("**/broker.log")
    words = re.compile(rf"New client connected from \S+ as ({population}-\d+) ")
    return Counter(words.findall(log.read_text()))

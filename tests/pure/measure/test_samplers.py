"""Samplers of deliveries, where receivers join or leave in some stages."""

from __future__ import annotations

import pytest

from pubstorm.measure.summary import SampledResults, samplers
from pubstorm.result import Sampler, StageFlow, StageResult
from tests.kit.made import compiled
from tests.kit.measured import backend, device, flow, stages

PLAN = """
target: mqtt://broker:1883
populations:
  device: {clients: 100, publications: [{topic: "up/{n}", rate: 1/s}]}
  backend: {clients: 1, subscriptions: ["up/#"]}
stages: [connect, publish: 10s]
"""


def publishing(received: int, *excluded: str) -> StageResult:
    """A publish stage in which 600 deliveries were expected."""
    own = StageFlow(
        source="device",
        to="backend",
        qos=(0,),
        expected_total=600,
        received_total=received,
        lost_total=600 - received,
    )
    return stages()[1].model_copy(update={"flows": (own,), "excluded": excluded})


def deliveries(*played: StageResult) -> Sampler:
    populations = {"device": device(), "backend": backend()}
    whole = flow(expected_total=1000, received_total=990)
    found = samplers(SampledResults(compiled(PLAN), populations, (whole,), played))
    return next(sampler for sampler in found if sampler.kind == "sub")


@pytest.mark.parametrize(
    ("played", "count", "of", "is_partial"),
    [
        ((publishing(400), publishing(590)), 990, 1000, False),
        ((publishing(400, "backend"), publishing(590)), 590, 600, True),
        ((publishing(400, "device"), publishing(590)), 990, 1000, False),
        ((publishing(400, "backend"), publishing(590, "backend")), 990, None, False),
    ],
)
def test_deliveries_are_counted_in_stages_whose_receivers_stay(
    played: tuple[StageResult, ...], count: int, of: int | None, *, is_partial: bool
) -> None:
    found = deliveries(*played)
    assert (found.count, found.of, found.is_partial) == (count, of, is_partial)

"""Stamps of messages, as far as a receiver can read them."""

from __future__ import annotations

import pytest

from pubstorm.contract.offered_load import carries_stamp
from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.protocol import (
    FixedPayload,
    GaussianPayload,
    HistogramPayload,
    Payload,
    RecordsPayload,
    SizeBin,
    TextPayload,
)
from tests.kit import made


def speaking(version: str) -> PlannedPopulation:
    """A population that speaks a version of MQTT."""
    population = made.golden_plan().populations[0]
    protocol = population.protocol.model_copy(update={"version": version})
    return population.model_copy(update={"protocol": protocol})


@pytest.mark.parametrize(
    ("payload", "publisher", "receiver", "is_stamped"),
    [
        (FixedPayload(bytes=32), "3.1.1", "3.1.1", True),
        (FixedPayload(bytes=31), "5", "5", False),
        (GaussianPayload(mean_bytes=100, sd_bytes=17), "5", "5", True),
        (GaussianPayload(mean_bytes=100, sd_bytes=18), "5", "5", False),
        (TextPayload(template="on"), "5", "5", True),
        # Only clients of MQTT 5 receive the property that has the stamp.
        (TextPayload(template="on"), "5", "3.1.1", False),
        (TextPayload(template="on"), "3.1.1", "5", False),
        (TextPayload(template="{stamp}"), "3.1.1", "3.1.1", True),
        (RecordsPayload(records=("",)), "5", "5", True),
        (RecordsPayload(records=("",)), "5", "3.1.1", False),
        (RecordsPayload(records=("",), stamped=True), "3.1.1", "3.1.1", True),
        (HistogramPayload(bins=(SizeBin(bytes=32, end=1),)), "3.1.1", "3.1.1", True),
        (HistogramPayload(bins=(SizeBin(bytes=31, end=1),)), "5", "5", False),
    ],
)
def test_a_stamp_is_in_the_payload_or_in_a_property(
    payload: Payload, publisher: str, receiver: str, *, is_stamped: bool
) -> None:
    publication = made.golden_plan().populations[0].publications[0]
    publication = publication.model_copy(update={"payload": payload})
    found = carries_stamp(publication, speaking(publisher), speaking(receiver))
    assert found == is_stamped

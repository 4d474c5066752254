"""Outages of short stages, and those in which a program under test had no processor."""

from __future__ import annotations

import pytest

from pubstorm.contract import Source
from pubstorm.measure.phases import outage_events
from pubstorm.metrics.monitors import RUN_DELAY
from pubstorm.result.samples import Track, Tracks
from tests.pure.measure.test_phases import GOOD, assembly, silence


def test_a_stage_that_is_no_phase_has_outages_too() -> None:
    (event,) = outage_events(assembly([GOOD] * 2 + silence(3)[:6]), {})
    assert (event.at_s, event.kind) == (2, "outage")


@pytest.mark.parametrize(("share", "kind"), [(0.4, "outage"), (0.9, "host")])
def test_an_outage_in_which_a_program_had_no_processor_is_that_of_the_host(
    share: float, kind: str
) -> None:
    waited = Track((9.0, 10.0, 11.0, 12.0), (0.0, 0.0, share, share))
    tracks: Tracks = {(Source.single("broker", "main-0"), RUN_DELAY): waited}
    (event,) = outage_events(assembly([GOOD] * 10 + silence(2)), tracks)
    assert event.kind == kind
    assert "nothing was received for 2.0 s" in event.text
    assert ("had no processor for 1.8 s of it" in event.text) == (kind == "host")

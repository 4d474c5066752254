"""Enhanced authentication of MQTT 5, as a scenario writes it."""

from __future__ import annotations

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import ClientText, SomeText


class Authentication(Part):
    """Enhanced authentication of MQTT 5."""

    method: SomeText
    """Name of the method. `SCRAM-SHA-256` uses `username` and `password` of the population, which
    are then not sent. Other methods need `data`."""
    data: ClientText | None = None
    """Data in CONNECT, sent once; `${env:NAME}` or `${file:PATH}` keep it out of the scenario. A
    client does not answer AUTH of such a method."""

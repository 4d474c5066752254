"""`pubstorm scenarios`: lists the ready scenarios."""

from __future__ import annotations

import click

from pubstorm.output import say
from pubstorm.scenario.shipped import shipped_scenarios


@click.command()
def scenarios() -> None:
    """List the ready scenarios."""
    ready = shipped_scenarios()
    width = max((len(scenario.name) for scenario in ready), default=0)
    for scenario in ready:
        say(f"{scenario.name:{width}}  {scenario.description}")

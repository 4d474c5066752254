"""`pubstorm scenarios`: lists the ready scenarios."""

from __future__ import annotations

import click

from pubstorm.shipped import shipped_scenarios


@click.command()
def scenarios() -> None:
    """List the ready scenarios."""
    ready = shipped_scenarios()
    width = max((len(scenario.name) for scenario in ready), default=0)
    for scenario in ready:
        click.echo(f"{scenario.name:{width}}  {scenario.description}")

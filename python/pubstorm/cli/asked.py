"""The options --target, --on and --set, and the scenario that they change."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from pubstorm.errors import UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.quantities import UnfitError
from pubstorm.scenario.fleet import place


def _targets(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> str | None:
    return " ".join(values) or None


TARGET = click.option(
    "--target",
    metavar="URL",
    multiple=True,
    callback=_targets,
    help="Use this broker: mqtt[s]://HOST[:PORT] or ws[s]://HOST[:PORT][/PATH]. Can be repeated: "
    "clients connect to the brokers in turn.",
)
SET = click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a value of the scenario, for example populations.device.clients=10k.",
)


def _fleet_on(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """The override that an --on stands for."""
    if value is None:
        return ()
    try:
        return (f"fleet.on={place(value)}",)
    except UnfitError as error:
        message = f"--on {value}: {error}"
        raise UsageError(
            message, "ray is the cluster that this host is in; an address is that of its head"
        ) from error


ON = click.option(
    "--on",
    metavar="PLACE",
    callback=_fleet_on,
    help="Where the engines run: local, ray, or ray://HOST:PORT. Short for --set fleet.on=PLACE.",
)


def asked_for(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command its scenario with --target, --on and --set as one value."""

    @TARGET
    @ON
    @SET
    @functools.wraps(command)
    def with_invocation(
        scenario: str | None,
        target: str | None,
        on: tuple[str, ...],
        overrides: tuple[str, ...],
        **others: object,
    ) -> int:
        return command(asked=Invocation(scenario or "", (*overrides, *on), target), **others)

    return with_invocation

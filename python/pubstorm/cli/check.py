"""`pubstorm check`: the plan of a scenario in words, and what it needs from a host or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from pubstorm.cli.describe import (
    answer_of_cluster,
    answer_of_host,
    broker_needs_in_words,
    needs_in_words,
    search_in_words,
    servers_in_words,
    sizes_in_words,
    sweep_in_words,
    trials_of,
    tuning_in_words,
)
from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.cli.init import scenario_names
from pubstorm.cli.options import asked_for
from pubstorm.contract.plan import Plan
from pubstorm.errors import UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.host.binaries import offered_load
from pubstorm.host.keys.clients import check_host_files
from pubstorm.host.preflight import (
    HostLimits,
    agents_here,
    broker_host_needs,
    needs,
)
from pubstorm.host.preflight.host import network_needs_here
from pubstorm.host.preflight.need import script
from pubstorm.host.preflight.tuning import TUNED, tuning, tuning_in_need
from pubstorm.host.sizing import PlannedRuns, sizes_of
from pubstorm.host.sizing.servers import server_hosts
from pubstorm.output import say
from pubstorm.plan import provisional_plan
from pubstorm.play.oversights import oversights_in_words
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import largest, smallest
from pubstorm.topology.adapters import appetite_of, broker_kinds
from pubstorm.topology.broker import check_ports, fixed_ports
from pubstorm.topology.shares import check_processors


@click.command()
@click.argument("scenario", shell_complete=scenario_names)
@asked_for
@click.option(
    "--fixes",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the fixes of what is short to this file, as a shell script; nothing is applied.",
)
@click.option(
    "--tuning",
    "every_setting",
    is_flag=True,
    help="List all 18 settings of the kernel for many connections, also those that suit the plan.",
)
def check(asked: Invocation, fixes: Path | None, every_setting: bool) -> int:
    """Check SCENARIO: print its plan in words, and what it needs from this host.

    With - as SCENARIO, it is read from stdin. The printed plan is that of the first step of a
    sweep, or of the first value of a search; the needs are those of the largest. The exit code is 3
    if this host has too little. With agents on a cluster, it prints the number of hosts that they
    need, such as fleet.host, and the exit code is 0.
    """
    loaded = asked.load()
    steps = [step.scenario for step in loaded.steps] or [loaded]
    played_times = len(steps) * (loaded.sweep.repeat if loaded.sweep is not None else 1)
    played = [largest(each) for each in steps]
    first = smallest(steps[0])
    plans = [provisional_plan(each) for each in played]
    for each, plan in zip(played, plans, strict=True):
        check_host_files(each, plan)
        check_ports(fixed_ports(each.topology, placed=each.fleet.on == "local"))
        check_processors(each.topology, placed=each.fleet.on == "local")
    heaviest, plan = max(
        zip(played, plans, strict=True),
        key=lambda pair: (pair[1].clients, offered_load(pair[1]).peak_per_s),
    )
    for line in (
        *plan_in_words(first, plans[0] if first is played[0] else provisional_plan(first)),
        *sweep_in_words(loaded),
        *search_in_words(steps[0], played_times),
        *oversights_in_words(loaded, played, plans),
    ):
        say(line)
    if heaviest.fleet.on != "local":
        trials = trials_of(steps[0]) * (loaded.sweep.repeat if loaded.sweep is not None else 1)
        return _checked_cluster(heaviest, plan, [(each, trials) for each in plans], fixes)
    return _checked_host(heaviest, plan, fixes, every_setting)


def _checked_host(scenario: Scenario, plan: Plan, fixes: Path | None, every_setting: bool) -> int:
    """Prints what the plan needs from this host, and what would suit it."""
    host, brokers = HostLimits.here(each.name for each in TUNED), broker_kinds(scenario.topology)
    agents = agents_here(plan, scenario.fleet, host)
    needed = needs(plan, host, agents=agents, brokers=brokers)
    needed += network_needs_here(scenario.topology.networks)
    settings = tuning(plan, host, needed)
    for line in (
        *needs_in_words(needed, agents),
        *tuning_in_words(settings, every=every_setting),
        *_broker_lines(scenario, plan),
        *answer_of_host(needed, plan.clients, agents),
    ):
        say(line)
    if fixes is not None:
        _write(fixes, script(plan.name, [*needed, *tuning_in_need(settings)]))
    return 0 if all(need.is_met for need in needed) else HOST_SHORT


def _checked_cluster(
    scenario: Scenario, plan: Plan, plans: Sequence[tuple[Plan, int]], fixes: Path | None
) -> int:
    """Prints the sizes of the cluster that the plan needs, and time and price of all plans with
    their number of runs; this host is not in question."""
    if fixes is not None:
        raise UsageError(
            "--fixes is for agents on this host, and fleet.on names a cluster",
            'leave it out; the page "clusters" of the guide has the settings of its hosts',
        )
    host = HostLimits.here()
    ports = host.ports
    memory = scenario.fleet.host.memory
    servers = list(server_hosts(scenario, plan, host.costs, memory, appetite_of))
    planned = PlannedRuns(plans, servers=sum(each.hosts for each in servers if each.label))
    sizes = sizes_of(plan, scenario.fleet, host.costs, ports, planned)
    for line in (
        *sizes_in_words(sizes, ports),
        *servers_in_words(servers, scenario.fleet.host.descriptors),
        *_broker_lines(scenario, plan),
        *answer_of_cluster(sizes),
    ):
        say(line)
    return 0


def _broker_lines(scenario: Scenario, plan: Plan) -> Iterable[str]:
    """Returns the needs of a broker on another host, in words."""
    if not scenario.target or scenario.topology.brokers or scenario.targets_publish:
        return ()
    return broker_needs_in_words(broker_host_needs(plan))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from error


HOST_SHORT = 3

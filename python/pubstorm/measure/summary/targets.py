"""The balance of connections over the targets of each name, beside the planned one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pubstorm.contract.attachment import target_of
from pubstorm.contract.plan import Plan, PlannedAttachment
from pubstorm.measure.assemble import Assembly
from pubstorm.result import BrokerResult, TargetResult


def target_results(
    assembly: Assembly, groups: Mapping[str, Sequence[int]], brokers: Sequence[BrokerResult]
) -> tuple[TargetResult, ...]:
    """Returns every target of the names that have several, by name; nothing if agents report no
    targets. `groups` has the indices of the targets of each name."""
    sums, peaks = assembly.sums, assembly.timeline.peaks()
    planned = planned_clients(assembly.plan)
    names = target_names(assembly.plan, brokers)
    found: list[TargetResult] = []
    for group, members in groups.items():
        most = sum(peaks.connected_to(target) for target in members)
        due = sum(planned[target] for target in members)
        if len(members) < 2 or not any(target in sums.targets for target in members):
            continue
        for target in members:
            found.append(
                TargetResult(
                    name=names[target],
                    group=group,
                    connected_max=peaks.connected_to(target),
                    connected_total=sums.target(target).connected_total,
                    connect_failed_total=sums.target(target).connect_failed_total,
                    share=peaks.connected_to(target) / most if most else 0.0,
                    planned_share=planned[target] / due if due else 0.0,
                )
            )
    return tuple(found)


def target_names(plan: Plan, brokers: Sequence[BrokerResult]) -> dict[int, str]:
    """Returns the names of targets by index: those of the brokers at their ends, or addresses."""
    started = {(broker.host, broker.port): broker.name for broker in brokers}
    return {
        index: started.get((target.host, target.port), str(target))
        for index, target in enumerate(plan.targets)
    }


def planned_clients(plan: Plan) -> Counter[int]:
    """Returns the planned clients of each target."""
    planned = Counter[int]()
    for index, population in enumerate(plan.populations):
        if population.is_publisher:
            continue
        at, clients = population.at, population.clients
        if at.choice == "random" and at.count > 1:
            planned.update(target_of(plan, index, client) for client in range(clients))
        else:
            planned.update(dict(_in_turn(at, clients)))
    return planned


def _in_turn(at: PlannedAttachment, clients: int) -> Iterator[tuple[int, int]]:
    each, more = divmod(clients, at.count)
    for place in range(at.count):
        yield at.first + (place + at.shift) % at.count, each + (place < more)

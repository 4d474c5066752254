"""Cells of a data sheet in the words of protocols other than MQTT: the same load, or the reason why
there is no such cell."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.contract.offered_load import OfferedLoad
from pubstorm.host.binaries import offered_load
from pubstorm.plan.compile import provisional_plan
from pubstorm.scenario import Scenario, load_scenario
from pubstorm.scenario.load import find_scenario, largest, populations_of
from pubstorm.scenario.series import written
from pubstorm.scenario.sheets import DIALECTS, PlannedCell, find_plan, load_plan

PLAN = load_plan(find_plan("default"))
CELLS = [cell for cell in PLAN.cells if "mqtt" not in cell.needs and not cell.anchors]
KINDS = {"AMQP": "rabbitmq", "NATS": "nats"}
NOT_THERE = {
    "pairs-qos2-256B": "has no QoS 2",
    "fan-out-qos2-256B": "has no QoS 2",
    "memory-retained": "has no retained messages",
    "memory-session-persistent": "has no session without a subscription",
}


def overrides(values: dict[str, Any]) -> list[str]:
    return [f"{path}={written(value)}" for path, value in values.items()]


def load(scenario: Scenario) -> OfferedLoad:
    return offered_load(provisional_plan(largest(scenario)))


@pytest.mark.parametrize("title", DIALECTS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.cell)
def test_a_cell_is_the_same_load_in_another_protocol(cell: PlannedCell, title: str) -> None:
    path, dialect, given = find_scenario(cell.scenario), DIALECTS[title], PLAN.overrides(cell)
    in_mqtt = load_scenario(path, overrides(given))
    lacking = dialect.without(populations_of(in_mqtt))
    needed = {why for name, why in lacking.items() if name not in cell.optional}
    assert needed == ({f"{title} {NOT_THERE[cell.cell]}"} if cell.cell in NOT_THERE else set())
    if needed:
        return
    spoken = dialect.spoken(populations_of(in_mqtt), persistent=False)
    kept = {path: value for path, value in given.items() if not path.startswith("populations.")}
    kind = {"topology.brokers.broker": {"kind": KINDS[title]}}
    found = load_scenario(path, overrides(spoken | kept | kind))
    assert {each.SPEAKS for each in found.populations.values()} == {dialect.protocol}
    without = [f"populations.{name}.{key}=[]" for name in lacking for key in FLOWS]
    expected = load(load_scenario(path, [*overrides(given), *without]))
    totals = [(stage.sent_total, stage.delivered_total) for stage in load(found).stages]
    assert totals == [(stage.sent_total, stage.delivered_total) for stage in expected.stages]
    publications = {
        (name, place): each
        for name, population in found.populations.items()
        for place, each in enumerate(getattr(population, "publications", ()))
    }
    for name, population in in_mqtt.populations.items():
        for place, each in enumerate(getattr(population, "publications", ())):
            if name not in lacking:
                assert publications[name, place].level == each.level


FLOWS = ("publications", "subscriptions")

"""The plans of the benches are plans that the contract allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import plans, protocols
from pubstorm.contract.plan import Plan
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

DEVICES = plans.population(3, publications=[plans.publication(10.0, qos=1)])
READERS = plans.population(2, first=20_000, filters=["bench/+/up"], qos=1)
STAGES = [plans.connect(2), plans.publish(2, 1.5), plans.hold(2, 0.5)]


def check(plan: plans.Json) -> None:
    assert Plan.model_validate(plan, strict=False).model_dump(mode="json")["name"] == "bench"


def test_a_load_of_mqtt_is_a_plan() -> None:
    check(plans.plan([DEVICES, READERS], STAGES, 1883))


def test_a_publisher_of_zeromq_and_its_subscribers_are_a_plan() -> None:
    check(plans.plan(plans.sockets(5), STAGES, 5555))


@pytest.mark.parametrize("protocol", protocols.FLOWS)
def test_clients_of_each_protocol_are_a_plan_that_only_differs_in_it(protocol: str) -> None:
    kind = {own: kind for own, kind, _ in protocols.BROKERS}.get(protocol, "rabbitmq")
    text = protocols.Spoken(protocol, kind).text(7, "[connect, {publish: 2s}]")
    (client,) = provisional_plan(parse_scenario(text, "bench.yaml")).populations
    assert (client.protocol.kind, client.clients, client.publications[0].qos) == (protocol, 7, 1)


@pytest.mark.parametrize("json", [False, True])
def test_templates_and_rows_are_a_plan(tmp_path: Path, json: bool) -> None:
    changed = plans.with_text([DEVICES, READERS], plans.Text(json), tmp_path / "rows.csv")
    check(plans.plan(changed, STAGES, 1883))
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + 3 + 2


@pytest.mark.parametrize("word", ["certificate", "psk-1.2", "psk-1.3"])
def test_a_load_under_tls_is_a_plan(tmp_path: Path, word: str) -> None:
    plain = plans.plan([DEVICES, READERS], STAGES, 8883)
    check(plans.under_tls(plain, word, tmp_path / "ca.pem", tmp_path / "keys"))

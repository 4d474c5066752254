"""Files of a plan that each agent receives, and their paths there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.contract.plan import Plan, PlannedPsk, PlannedRows, PlannedTls
from pubstorm.errors import FleetError
from pubstorm.fleet import site
from pubstorm.fleet.site import PlanFiles
from tests.kit.agents import planned


def with_tls(plan: Plan, tls: PlannedTls, rows: PlannedRows | None = None) -> Plan:
    population = plan.populations[0].model_copy(update={"tls": tls, "rows": rows})
    return plan.model_copy(update={"populations": (population,)})


def test_each_agent_gets_the_keys_of_its_own_clients() -> None:
    tls = PlannedTls(ca="/keys/ca.pem", certificate="/keys/d-{n}.pem", key="/keys/d-{n}.key")
    found = PlanFiles(with_tls(planned("x"), tls))
    mine = found.of(1, 4)
    assert sorted(mine) == [
        "files/keys/ca.pem",
        *(f"files/keys/d-{n}.{end}" for n in (1, 5, 9) for end in ("key", "pem")),
    ]
    assert mine["files/keys/d-5.key"] == Path("/keys/d-5.key")
    assert found.read_early == ("files/keys/ca.pem",)


def test_the_plan_names_them_where_they_are_there() -> None:
    psk = PlannedPsk(file="/keys/psk.txt", identity="{n}")
    tls = PlannedTls(
        ca="/a/../keys/ca.pem", certificate="/keys/all.pem", key="/keys/{{x}}.key", psk=psk
    )
    rows = PlannedRows(file="/data/rows.csv", first=0, repeat=True)
    found = PlanFiles(with_tls(planned("x"), tls, rows))
    moved = found.plan.populations[0]
    assert moved.tls is not None and moved.tls.psk is not None and moved.rows is not None
    paths = (moved.tls.ca, moved.tls.certificate, moved.tls.key, moved.tls.psk.file)
    assert paths == (
        "files/keys/ca.pem",
        "files/keys/all.pem",
        "files/keys/{{x}}.key",
        "files/keys/psk.txt",
    )
    assert moved.rows.file == "files/data/rows.csv"
    assert set(found.of(0, 2)) == set(found.read_early)
    assert "files/keys/{x}.key" in found.read_early


def test_what_is_on_every_host_stays_where_it_is() -> None:
    tls = PlannedTls(certificate="/srv/pubstorm/d-{n}.pem", key="/srv/pubstorm/d-{n}.key")
    plan = with_tls(planned("x"), tls)
    found = PlanFiles(plan)
    assert found.plan == plan
    assert not found.of(0, 1)


def test_too_many_are_refused_with_two_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "FILES_MAX", 19)
    tls = PlannedTls(certificate="/keys/d-{n}.pem", key="/keys/d-{n}.key")
    with pytest.raises(FleetError, match="found 20 files of keys") as caught:
        PlanFiles(with_tls(planned("x"), tls))
    assert "/srv/pubstorm/" in (caught.value.hint or "")
    assert "pre-shared keys" in (caught.value.hint or "")

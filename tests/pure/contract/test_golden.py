"""Python's side of `contract/golden`; Rust's is `crates/plan/tests/golden.rs`,
and that of the proxy `crates/proxy/src/command.rs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pubstorm.contract.commands import AGENT_LINE, COMMAND, ReferenceHello
from pubstorm.contract.histogram import Histogram, bucket_index, bucket_upper_ns, parts_ns
from pubstorm.contract.offered_load import OfferedLoad, clients_at, target_of
from pubstorm.contract.plan import Plan, PlannedAttachment
from pubstorm.contract.protocol import RecordedPayload
from pubstorm.contract.recorded import (
    RecordedMessage,
    kept_templates,
    read_recorded,
    recorded_messages,
    write_recorded,
)
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.template import MessageFacts, RowFile, RowTable, Template, TemplateError
from pubstorm.host.binaries import offered_load
from pubstorm.host.preflight import largest_share
from pubstorm.topology.bridges.links import LINKS_ANSWER, LINKS_COMMAND
from tests.kit import made
from tests.kit.made import GOLDEN


def golden(file: str) -> Any:
    return json.loads((GOLDEN / file).read_text())


def test_durations_lie_in_the_agreed_buckets() -> None:
    for case in golden("histogram.json")["buckets"]:
        assert bucket_index(case["ns"]) == case["index"], case
        assert bucket_upper_ns(case["index"]) == case["upper_ns"], case


def test_histograms_are_stored_summed_and_read_as_agreed() -> None:
    agreed, total = golden("histogram.json"), Histogram()
    for case in agreed["histograms"]:
        histogram = Histogram.of(case["durations_ns"])
        assert histogram.model_dump(mode="json") == case["stored"]
        assert Histogram.model_validate_json(json.dumps(case["stored"])) == histogram
        for quantile, ns in case["quantiles"]:
            assert histogram.quantile_ns(quantile) == ns, (quantile, case)
        total = total.plus(histogram)
    assert total.model_dump(mode="json") == agreed["sum"]


def test_delays_are_read_as_agreed() -> None:
    for case in golden("histogram.json")["delays"]:
        histogram = Histogram.of(each["latency_ns"] for each in case["messages"])
        delays = tuple(map(tuple, case["stored"]))
        for agreed in case["parts"]:
            found = parts_ns(delays, histogram, agreed["quantile"])
            # A cell has the middles of its buckets in place of the latencies.
            assert found == pytest.approx(agreed["ns"], rel=0.005), agreed
            assert sum(found.values()) == pytest.approx(histogram.quantile_ns(agreed["quantile"]))


def test_recorded_messages_have_the_agreed_facts(tmp_path: Path) -> None:
    agreed = golden("recorded.json")
    payload = RecordedPayload.model_validate(agreed["payload"])
    path = tmp_path / payload.file
    rows = [RecordedMessage(**row) for row in agreed["rows"]]
    with path.open("w") as file:
        write_recorded(file, rows)
    assert [*recorded_messages(str(path))] == rows
    found = read_recorded(str(path))
    kind = found.kind(agreed["qos"], agreed["retain"])
    assert found.clients == payload.clients
    assert kind.sizes("sizes") == (payload.mean_bytes, payload.max_bytes)
    offset = agreed["first"] - payload.first
    kept = {
        (client, Template.parse(topic).text(agreed["first"] + client))
        for topic, client in kept_templates(str(path), agreed["clients"], offset)
    }
    played = [(each["client"], m["topic"]) for each in agreed["played"] for m in each["messages"]]
    assert kept == set(played)


def test_the_largest_share_is_that_of_the_first_shard() -> None:
    plan = made.golden_plan()
    for case in golden("shard.json")["cases"]:
        population = plan.populations[0].model_copy(update={"clients": case["total"]})
        alone = plan.model_copy(update={"populations": (population,)})
        assert largest_share(alone, case["count"]) == len(case["clients"][0]), case


def test_the_load_of_the_agreed_plan_is_the_agreed_load() -> None:
    plan = made.golden_plan()
    # Its file of rows is on no machine, and no template needs a value of it.
    rowless = tuple(each.model_copy(update={"rows": None}) for each in plan.populations)
    plan = plan.model_copy(update={"populations": rowless})
    load = OfferedLoad.model_validate(golden("offered_load.json"))
    assert offered_load(plan) == load
    assert load.model_dump(mode="json") == golden("offered_load.json")


def test_clients_are_at_the_agreed_targets() -> None:
    plan = made.golden_plan()
    for case in golden("attachment.json")["cases"]:
        at, clients = PlannedAttachment.model_validate(case["at"]), len(case["targets"])
        like = plan.populations[0].model_copy(update={"at": at, "clients": clients})
        populations = (like,) * (case["population"] + 1)
        some = plan.model_copy(update={"seed": case["seed"], "populations": populations})
        index = case["population"]
        assert [target_of(some, index, c) for c in range(clients)] == case["targets"], case
        for target in range(at.first + at.count + 1):
            expected = [c for c, where in enumerate(case["targets"]) if where == target]
            assert list(clients_at(some, index, target)) == expected, case


def test_templates_are_rendered_and_refused_as_agreed() -> None:
    agreed = golden("template.json")
    for case in agreed["rendered"]:
        assert Template.parse(case["template"]).text(case["n"], case["variant"]) == case["text"]
    for source in agreed["refused"]:
        with pytest.raises(TemplateError):
            Template.parse(source)
    checks = {
        "client_texts_refused": Template.check_client,
        "topics_refused": Template.check_topic,
        "filters_refused": Template.levels,
    }
    for key, check in checks.items():
        for source in agreed[key]:
            template = Template.parse(source)
            with pytest.raises(TemplateError):
                check(template)


def test_a_range_counts_both_ends() -> None:
    assert Template.parse("t_{1..20}").variants == 20
    assert Template.parse("t").variants == 1


def test_a_filter_level_holds_one_variable() -> None:
    assert len(Template.parse("a/{n}/x{1..3}y/#").levels()) == 4
    with pytest.raises(TemplateError, match=r"'\{n\}-\{n%2\}'"):
        Template.parse("a/{n}-{n%2}").levels()


@given(st.text(alphabet="{}n%/.0123a é"))
def test_any_text_is_a_template_or_refused(source: str) -> None:
    try:
        template = Template.parse(source)
    except TemplateError:
        return
    assert template.source == source
    assert isinstance(template.text(3), str)


def test_rows_are_rendered_as_agreed() -> None:
    for file in golden("template.json")["rows"]:
        values = tuple((value,) for value in file["values"])
        table = RowTable(RowFile((file["column"],), values), file["rows"]["first"])
        for case in file["rendered"]:
            assert Template.parse(case["template"], table).text(case["n"]) == case["text"], case


def test_payloads_are_rendered_as_agreed() -> None:
    for case in golden("template.json")["messages"]:
        stream = MessageFacts.stream(case["seed"], case["publication"])
        facts = MessageFacts(
            number=case["number"],
            topic_variants=case["topic_variants"],
            chance=stream.of(case["client"]).of(case["number"]),
            time_ms=case["time_ms"],
            stamp=bytes.fromhex(case["stamp"]),
        )
        text = Template.parse(case["template"]).message_text(case["n"], case["variant"], facts)
        assert text == case["text"], case


@pytest.mark.parametrize(
    ("file", "key", "reader"),
    [
        ("plan.json", None, TypeAdapter(Plan)),
        ("snapshot.json", None, TypeAdapter(Snapshot)),
        ("control.json", "commands", COMMAND),
        ("control.json", "agent_lines", AGENT_LINE),
        ("control.json", "reference_lines", TypeAdapter(ReferenceHello)),
        ("proxy.json", "commands", LINKS_COMMAND),
        ("proxy.json", "answers", LINKS_ANSWER),
    ],
)
def test_lines_are_read_and_written_unchanged(
    file: str, key: str | None, reader: TypeAdapter[Any]
) -> None:
    for line in [golden(file)] if key is None else golden(file)[key]:
        read = reader.validate_json(json.dumps(line))
        assert json.loads(read.model_dump_json()) == line


@pytest.mark.parametrize(
    ("file", "reader"), [("control.json", COMMAND), ("proxy.json", LINKS_COMMAND)]
)
def test_wrong_commands_are_refused(file: str, reader: TypeAdapter[Any]) -> None:
    for line in golden(file)["commands_refused"]:
        with pytest.raises(ValidationError):
            reader.validate_json(json.dumps(line))

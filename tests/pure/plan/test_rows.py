"""Rows of a file: values of templates."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.offered_load import template_of
from pubstorm.contract.plan import Plan, PlannedRows
from pubstorm.contract.protocol import TextPayload
from pubstorm.contract.template import MessageFacts, Template
from pubstorm.errors import ScenarioError, ScenarioProblem
from pubstorm.host.binaries import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.plan.compile import json_template
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import ROWS, SMALL, TABLE, changed


def planned(folder: Path, text: str = ROWS) -> Plan:
    (folder / "data.csv").write_text(TABLE)
    return provisional_plan(parse_scenario(text, str(folder / "s.yaml")))


def test_rows_are_compiled_with_the_first_number(tmp_path: Path) -> None:
    device = planned(tmp_path).populations[0]
    file = str(tmp_path / "data.csv")
    assert device.rows == PlannedRows(file=file, first=10, repeat=False)
    assert [template_of(device, device.client_id).text(n) for n in (10, 11, 12)] == [
        "s-1",
        "s-2",
        "s-3",
    ]
    payload = device.publications[0].payload
    assert payload == TextPayload(
        template='{{"id":"{row.serial}","t":{random 20.0..30.0},"note":"{row.note}"}}', is_json=True
    )


def test_deliveries_follow_from_rows(tmp_path: Path) -> None:
    scenario = ROWS.replace('"up/{row.serial}"', '"down/{row.site}/x"')
    plan = planned(tmp_path, scenario)
    assert offered_load(plan).populations[0].publications[0].receivers == pytest.approx(
        (2 + 1 + 2) / 3
    )
    serial = planned(tmp_path, scenario.replace("{row.site}", "{row.serial}"))
    assert offered_load(serial).populations[0].publications[0].receivers == 1


def test_a_population_with_repeat_begins_again(tmp_path: Path) -> None:
    scenario = ROWS.replace("clients: 3", "clients: 7").replace(
        "rows: data.csv", "rows: {file: data.csv, repeat: true}"
    )
    scenario = scenario.replace('client_id: "{row.serial}"', 'client_id: "{row.serial}-{n}"')
    device = planned(tmp_path, scenario).populations[0]
    texts = [template_of(device, device.client_id).text(n) for n in (12, 13, 16)]
    assert texts == ["s-3-12", "s-1-13", "s-1-16"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ('populations.device.client_id: "{row.site}{n}"', "client_id"),
        ('populations.device.username: "{row.site}"', "username"),
        ('populations.device.subscriptions.0: "a/{row.site}"', "subscriptions.0"),
        ('populations.device.publications.0.topic: "a/{row.site}"', "publications.0.topic"),
        ('populations.device.will: {topic: w, payload: "{row.site}"}', "will.payload"),
        ('populations.device.shares: {a: {part: 50%, subscriptions: ["{row.site}"]}}', "shares"),
        ('populations.device.publications.0.payload: "{row.site}"', None),
    ],
)
@pytest.mark.parametrize(("value_bytes", "fits"), [(65_500, True), (65_536, False)])
def test_values_of_rows_are_as_long_as_texts_may_be(
    tmp_path: Path, changes: str, path: str | None, value_bytes: int, fits: bool
) -> None:
    scenario = changed(changed(ROWS, "populations.device.subscriptions: [a]"), changes)
    long = "é" * (value_bytes // 2) + "x" * (value_bytes % 2)
    (tmp_path / "data.csv").write_text(TABLE.replace("south", long))
    file = str(tmp_path / "s.yaml")
    if fits or path is None:
        parse_scenario(scenario, file)
        return
    with pytest.raises(ScenarioError) as failed:
        parse_scenario(scenario, file)
    (problem,) = failed.value.problems
    assert problem.path.startswith(f"populations.device.{path}")
    assert "allowed are 65535 bytes" in problem.message


@pytest.mark.parametrize(("text_bytes", "fits"), [(65_535, True), (65_536, False)])
@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ("client_id: LONG, populations.device.clients: 1", "client_id"),
        ("username: LONG", "username"),
        ("username: u, populations.device.password: LONG", "password"),
        ("subscriptions.0: LONG", "subscriptions.0"),
        ("publications.0.topic: LONG", "publications.0.topic"),
        ("will: {topic: LONG, payload: LONG}", "will.topic"),
        ("user_properties: {key: LONG}", "user_properties"),
        ("publications.0.user_properties: {key: LONG}", "publications.0.user_properties"),
        ("publications.0.correlation_data: LONG", "publications.0.correlation_data"),
    ],
)
def test_texts_are_as_long_as_mqtt_allows(
    changes: str, path: str, text_bytes: int, fits: bool
) -> None:
    written = f"populations.device.version: 5, populations.device.{changes}"
    text = changed(SMALL, written).replace("LONG", "x" * text_bytes)
    found: tuple[ScenarioProblem, ...] = ()
    try:
        provisional_plan(parse_scenario(text, "s.yaml"))
    except ScenarioError as error:
        found = error.problems
    assert fits == (not found)
    assert fits or found[0].path.startswith(f"populations.device.{path}")


@pytest.mark.parametrize(("password", "fits"), [("x" * 255, True), ("x" * 256, False)])
def test_credentials_of_zeromq_are_as_long_as_a_field_of_its_handshake(
    password: str, fits: bool
) -> None:
    credentials = f"populations.device.username: u, populations.device.password: {password}"
    others = 'target: "zmq://broker:5555", populations.device.publications: null'
    changes = f"{others}, stages: [connect, {{hold: 9s}}], {credentials}"
    scenario = changed(SMALL, changes)
    found: tuple[ScenarioProblem, ...] = ()
    try:
        parse_scenario(scenario, "s.yaml")
    except ScenarioError as error:
        found = error.problems
    assert [problem.path for problem in found] == ([] if fits else ["populations.device.password"])


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="{}")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_plain_values_become_their_json(value: object) -> None:
    if isinstance(value, (dict, list)):
        assert json.loads(Template.parse(json_template(value)).text(0)) == value


def test_variables_in_json_are_numbers_or_strings() -> None:
    value = {
        "n": "{n%7}",
        "range": "{1..20}",
        "t": "{random -1.00..1.00}",
        "seq": "{seq}",
        "time": "{time}",
        "hex": "{hex 4}",
        "colour": '{a"b|c\\d}',
        "stamp": "{stamp}",
        'q"{}': ["no {n}", "{{n}}", 1.5, None, True],
    }
    chance = MessageFacts.stream(1, 0).of(0).of(3)
    facts = MessageFacts(3, 1, chance, 1_700_000_000_123, bytes(32))
    said = json.loads(Template.parse(json_template(value)).message_text(9, 0, facts))
    assert (said["n"], said["range"], said["seq"], said["time"]) == (2, 4, 3, 1_700_000_000_123)
    assert -1 <= said["t"] <= 1
    assert len(said["hex"]) == 4
    assert said["colour"] in {'a"b', "c\\d"}
    assert said["stamp"].startswith("~pst~")
    assert said['q"{}'] == ["no 9", "{n}", 1.5, None, True]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{true|false}", [True, False]),
        ("{ok|null}", ["ok", None]),
        ("{1|-2.5|1e3}", [1, -2.5, 1000.0]),
        ('{"true"|"1"|2}', ["true", "1", 2]),
        ('{"a|b"}', ['"a', 'b"']),
        ("{NaN|-Infinity|01|True}", ["NaN", "-Infinity", "01", "True"]),
        ("{ 1|[1]|+1}", [" 1", "[1]", "+1"]),
        ("is {true|false}", ["is true", "is false"]),
        ("{true|false}{1|2}", ["true1", "true2", "false1", "false2"]),
    ],
)
def test_options_that_are_values_of_json_stay_as_they_are(text: str, values: list[object]) -> None:
    template = Template.parse(json_template([text]))
    said = [
        json.loads(template.message_text(1, 0, MessageFacts(n, 1, stream.of(n), 0, bytes(32))))[0]
        for stream in [MessageFacts.stream(1, 0)]
        for n in range(100)
    ]
    drawn = {(type(value), value) for value in said}
    assert drawn == {(type(value), value) for value in values}

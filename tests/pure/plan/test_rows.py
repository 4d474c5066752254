"""Rows of a file: values of templates, and everything that can be wrong with the file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.flows import TextPayload
from pubstorm.contract.plan import Plan, Rows
from pubstorm.contract.template import MessageFacts, Template
from pubstorm.contract.texts import template_of
from pubstorm.errors import Problem, ScenarioError
from pubstorm.host.explain import offered_load
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.plan.compile import json_template
from pubstorm.scenario import load_scenario

DEVICES = 'serial,site,note\ns-1,north,"a ""b"", c"\ns-2,south,plain\ns-3,north,x/y\n'
SCENARIO = """\
target: mqtt://localhost
populations:
  device:
    clients: 3
    first: 10
    rows: devices.csv
    client_id: "{row.serial}"
    subscriptions: ["down/{row.site}/#"]
    publications:
      - topic: "up/{row.serial}"
        rate: 1/s
        payload: {id: "{row.serial}", t: "{random 20.0..30.0}", note: "{row.note}"}
"""


def plan_of(tmp_path: Path, scenario: str = SCENARIO, devices: str = DEVICES) -> Plan:
    (tmp_path / "devices.csv").write_text(devices)
    path = tmp_path / "s.yaml"
    path.write_text(scenario)
    loaded = load_scenario(path)
    return compile_plan(loaded, planned_targets(loaded), run_tag=7)


def problem(tmp_path: Path, scenario: str, devices: str = DEVICES) -> Problem:
    with pytest.raises(ScenarioError) as caught:
        plan_of(tmp_path, scenario, devices)
    (found,) = caught.value.problems
    return found


def test_rows_are_compiled_with_the_first_number(tmp_path: Path) -> None:
    device = plan_of(tmp_path).populations[0]
    file = str(tmp_path / "devices.csv")
    assert device.rows == Rows(file=file, first=10, repeat=False)
    assert [template_of(device, device.client_id).text(n) for n in (10, 11, 12)] == [
        "s-1",
        "s-2",
        "s-3",
    ]
    payload = device.publications[0].payload
    assert payload == TextPayload(
        template='{{"id":"{row.serial}","t":{random 20.0..30.0},"note":"{row.note}"}}',
        is_json=True,
    )


def test_deliveries_follow_from_rows(tmp_path: Path) -> None:
    scenario = SCENARIO.replace('"up/{row.serial}"', '"down/{row.site}/x"')
    plan = plan_of(tmp_path, scenario)
    assert offered_load(plan).populations[0].publications[0].receivers == pytest.approx(
        (2 + 1 + 2) / 3
    )
    serial = plan_of(tmp_path, scenario.replace("{row.site}", "{row.serial}"))
    assert offered_load(serial).populations[0].publications[0].receivers == 1


@pytest.mark.parametrize(
    ("change", "place", "message", "hint"),
    [
        (
            ("clients: 3", "clients: 5000"),
            "6: populations.device.rows",
            "found 5000 clients and 3 rows, allowed are as many rows or more",
            "repeat: true",
        ),
        (
            ("{row.site}", "{row.place}"),
            "8: populations.device.subscriptions.0",
            "found {row.place}, allowed are {row.serial}, {row.site}, {row.note}",
            None,
        ),
        (
            ("{row.site}", "{row.note}"),
            "8: populations.device.subscriptions.0",
            "found 'x/y' in the column note of the rows, allowed in a topic are values without /",
            None,
        ),
        (
            ("    rows: devices.csv\n", ""),
            "6: populations.device.client_id",
            "found {row.serial} without rows, needed is a file of them",
            "rows: FILE.csv",
        ),
        (
            ("devices.csv", "nowhere.csv"),
            "6: populations.device.rows",
            "nowhere.csv, which cannot be read: No such file",
            "folder of the scenario",
        ),
        (
            ('"{row.serial}"\n    sub', '"{row.site}"\n    sub'),
            "7: populations.device.client_id",
            "found the client id 'north' more than once, allowed is one each",
            "use {n}",
        ),
        (
            ("{random 20.0..30.0}", "{random 30..20}"),
            "12: populations.device.publications.0.payload.t",
            "found '{random 30..20}', allowed is a template: found '{random 30..20}', allowed",
            None,
        ),
        (
            ('"up/{row.serial}"', '"up/{seq}"'),
            "10: populations.device.publications.0.topic",
            "found 'up/{seq}', allowed is a template for its place: found '{seq}', allowed in a",
            "belong into a payload",
        ),
    ],
)
def test_what_is_wrong_with_rows_is_said_with_line_and_hint(
    tmp_path: Path, change: tuple[str, str], place: str, message: str, hint: str | None
) -> None:
    found = problem(tmp_path, SCENARIO.replace(*change))
    assert str(found).startswith(f"{tmp_path / 's.yaml'}:{place}: ")
    assert message in found.message
    assert (found.hint is None) == (hint is None)
    assert hint is None or hint in str(found.hint)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("", "found no rows in"),
        ("serial,site,note\n\n", "found no rows in"),
        ("serial,site,note\na,b\n", "found 2 values in line 2 of"),
        ("serial,site,note\na,b,c,d\n", "found 4 values in line 2 of"),
        ("serial,serial,note\na,b,c\n", "found the heading 'serial' more than once in"),
        ('serial,site,note\na,"b,c\n', "found no comma-separated values in line"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, devices: str, message: str) -> None:
    found = problem(tmp_path, SCENARIO, devices)
    assert message in found.message
    assert found.path == "populations.device.rows"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_bytes(b"serial\n\xff\n")
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    with pytest.raises(ScenarioError, match="that are not UTF-8"):
        load_scenario(path)


def test_a_population_with_repeat_begins_again(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("clients: 3", "clients: 7").replace(
        "rows: devices.csv", "rows: {file: devices.csv, repeat: true}"
    )
    scenario = scenario.replace('client_id: "{row.serial}"', 'client_id: "{row.serial}-{n}"')
    device = plan_of(tmp_path, scenario).populations[0]
    texts = [template_of(device, device.client_id).text(n) for n in (12, 13, 16)]
    assert texts == ["s-3-12", "s-1-13", "s-1-16"]


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

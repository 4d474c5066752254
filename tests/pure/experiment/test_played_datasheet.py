"""Data sheets that are played from the command line to their stored files, with runs that take no
time: cells that fit, cells that are left out, figures, drift, interruptions and resumption."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pubstorm.scenario import Scenario
from tests.pure.experiment.conftest import CLIENTS, LOAD, Killed, Player, end, refuse

SEARCH = f"search: {{vary: {CLIENTS}, from: 4, to: 20, precision: 20%, repeat: 1, broker: same}}\n"
LIMIT = "thresholds: [device.connected <= 11, lost == 0]\n"
SERIES = "sweep: {steps: [{step: load}], repeat: 3, broker: same, pause: 0s}\n"
PLAN = """\
anchor: most
cells:
  - {cell: most, section: throughput, title: clients, scenario: search.yaml,
     figures: [{name: clients, of: search.best, better: more},
               {name: sent, of: device.sent}]}
  - {cell: few, section: latency, title: four clients, scenario: series.yaml,
     figures: [{name: sent, of: device.sent}, {name: CPU, of: broker.cpu},
               {name: messages of a client, of: device.sent, per: device.connected, unit: ""}]}
  - {cell: more, section: throughput, title: clients again, scenario: search.yaml,
     start: {of: most, part: 50%}, figures: [{of: search.best}], anchors: true}
  - {cell: secret, section: connections, title: under TLS, scenario: series.yaml,
     needs: [tls], figures: [{of: device.sent}]}
  - {cell: last, section: throughput, title: at the end, scenario: search.yaml, is_last: true,
     start: {of: most, part: 50%}, figures: [{of: search.best}], anchors: true}
"""
RECIPE = """\
name: A broker
source: this project
install: nothing
broker: {kind: embedded, settings: {max-queued: 7}}
changed: [max-queued is 7]
warm_up: 2s
"""


@pytest.fixture
def sheets(player: Player) -> Player:
    for name, text in {
        "search.yaml": LOAD + LIMIT + SEARCH,
        "series.yaml": LOAD + SERIES,
        "plan.yaml": PLAN.replace("scenario: ", f"scenario: {player.folder}/"),
        "own.yaml": RECIPE,
    }.items():
        (player.folder / name).write_text(text)
    return player


def measure(player: Player, *words: str, time: str = "30min", subject: str = "own.yaml") -> int:
    target = subject if "://" in subject else player.folder / subject
    plan = player.folder / "plan.yaml"
    return player.command(
        "datasheet", target, "--for", time, "--plan", plan, "--out", player.out, *words
    )


def cells(player: Player) -> dict[str, dict[str, Any]]:
    return {cell["name"]: cell for cell in player.stored("datasheet.json")["cells"]}


def figure(cell: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in cell["figures"] if each["name"] == name)
    return found


def test_a_sheet_has_the_figures_of_its_cells_with_their_intervals(sheets: Player) -> None:
    sheets.spread = 3
    assert measure(sheets) == 0
    sheet, found = sheets.stored("datasheet.json"), cells(sheets)
    assert sheet["complete"] and sheet["identity"]["changed"] == ["max-queued is 7"]
    assert "max-queued: 7" in sheet["identity"]["settings"]
    most = figure(found["most"], "clients")["estimate"]
    assert (most["low"], most["bound"]) == (11, "none") and 11 < most["high"] <= 13
    few = figure(found["few"], "sent")["estimate"]
    assert few["repeats"] == 3 and few["low"] < few["value"] < few["high"]
    assert few["value"] == pytest.approx(41.5, abs=1.5)
    each = figure(found["few"], "messages of a client")["estimate"]
    assert each["value"] == pytest.approx(few["value"] / 4)
    cpu = figure(found["few"], "CPU")
    assert cpu["estimate"] is None and cpu["remarks"], "no monitor reads a broker here"
    assert found["few"]["command"].startswith("pubstorm run ")


def test_the_broker_warms_up_before_each_cell(sheets: Player) -> None:
    assert measure(sheets, "--only", "few") == 0
    assert len(sheets.runs) == 2 + 3, "two runs of a second come first"
    brokers = [run.topology.brokers["broker"] for run in sheets.runs]
    settings = {broker.settings["max-queued"] for broker in brokers if broker.kind == "embedded"}
    assert settings == {7}


def test_the_warm_up_ends_with_its_time_where_its_runs_take_longer_than_planned(
    sheets: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = count(0.0, 1.9)
    clock = SimpleNamespace(monotonic=lambda: next(instants))
    monkeypatch.setattr("pubstorm.experiment.player.time", clock)
    assert measure(sheets, "--only", "few") == 0
    assert len(sheets.runs) == 1 + 3, "the second of two runs would begin after 2 s"


def test_a_search_starts_at_a_part_of_the_answer_before_it(sheets: Player) -> None:
    assert measure(sheets, "--only", "most,more") == 0
    folder = sheets.out / cells(sheets)["more"]["folder"]
    assert sorted(path.name for path in (folder / "trials").iterdir())[0].startswith("001-6")


def test_the_drift_is_the_spread_of_the_anchor(sheets: Player) -> None:
    assert measure(sheets) == 0
    drift = sheets.stored("datasheet.json")["drift"]
    values = [each["value"] for each in drift["values"]]
    assert len(values) == 3, "at begin, middle and end"
    mean = sum(values) / 3
    assert drift["spread"] == pytest.approx((max(values) - min(values)) / mean, abs=1e-3)


def test_cells_that_do_not_fit_are_left_out_with_the_reason(
    sheets: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planned time of the last cell is kept."""
    assert measure(sheets, time="13s") == 0
    found = cells(sheets)
    states = {name: cell["state"] for name, cell in found.items()}
    assert states["last"] != "measured", "its search starts at an answer that there is none of"
    assert found["few"]["state"] == "measured"
    assert "not measured in this time: it needs about" in found["most"]["why"]
    assert "which has none" in found["more"]["why"]
    assert "no way to this broker with tls" in found["secret"]["why"]
    assert "most is left out: not measured in this time" in capsys.readouterr().err


@pytest.mark.parametrize(("optional", "state"), [("[twice]", "measured"), ("[]", "left out")])
def test_a_cell_with_a_qos_that_the_broker_lacks_is_played_without_optional_populations(
    sheets: Player, optional: str, state: str
) -> None:
    twice = "populations:\n  twice: {clients: 1, publications: [{topic: b, rate: 1/s, qos: 2}]}\n"
    (sheets.folder / "series.yaml").write_text(LOAD.replace("populations:\n", twice) + SERIES)
    (sheets.folder / "own.yaml").write_text(f"{RECIPE}qos: 1\n")
    plan = sheets.folder / "plan.yaml"
    text = plan.read_text().replace("title: four clients,", f"title: four, optional: {optional},")
    plan.write_text(text.replace("{name: sent, of: device.sent}, {", "{of: twice.sent}, {"))
    assert measure(sheets, "--only", "few") == (0 if state == "measured" else 3)
    few = cells(sheets)["few"]
    assert few["state"] == state
    if state == "measured":
        assert {name for run in sheets.runs for name in run.populations} == {"device", "backend"}
        assert figure(few, "twice.sent")["remarks"] == ["A broker has no QoS 2"]
    else:
        assert few["why"] == "A broker has no QoS 2"


def test_it_says_before_what_it_will_measure(
    sheets: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(sheets, "--skip", "latency") == 0
    said = capsys.readouterr().err
    assert said.index("cells will fit: most, more") < said.index("cell 1 of 4")


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_sheet_that_ended_in_a_cell_is_resumed(sheets: Player, how: str) -> None:
    sheets.meanwhile = end(9, how)
    if how == "killed":
        with pytest.raises(Killed):
            measure(sheets)
    else:
        assert measure(sheets) == 130
    before, runs = cells(sheets), len(sheets.runs)
    measured = [name for name, cell in before.items() if cell["state"] == "measured"]
    assert "last" not in measured
    assert sheets.command("run", "--resume", sheets.out) == 0
    after = cells(sheets)
    assert after["last"]["state"] == "measured"
    assert all(after[name]["figures"] == before[name]["figures"] for name in measured)
    assert len(sheets.runs) > runs


def test_a_broker_that_dies_leaves_the_other_cells(sheets: Player) -> None:
    """It does not start for a run of the series."""

    def meanwhile(number: int, scenario: Scenario) -> bool:
        return scenario.name == "series" and refuse(number)(number, scenario)

    sheets.meanwhile = meanwhile
    assert measure(sheets) == 0
    found = cells(sheets)
    assert found["most"]["state"] == found["more"]["state"] == "measured"
    assert found["few"]["state"] == "without figures"
    assert any("broker-0 exited" in fact for fact in found["few"]["evidence"])
    assert "no run of it was measured" in found["few"]["why"]


def test_a_broker_that_runs_has_no_cells_that_need_its_start(sheets: Player) -> None:
    assert measure(sheets, "--yes", subject="mqtt://127.0.0.1:1") == 0
    found = cells(sheets)
    assert found["most"]["state"] == "measured" and found["secret"]["state"] == "left out"
    assert sheets.stored("datasheet.json")["identity"]["broker"] == "mqtt://127.0.0.1:1"
    assert {str(each) for run in sheets.runs for each in run.target} == {"127.0.0.1:1"}


def test_sheets_are_compared_from_their_folders(
    sheets: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    other = (sheets.folder / "own.yaml").read_text().replace("A broker", "Another broker")
    (sheets.folder / "other.yaml").write_text(other)
    folders = [sheets.folder / name for name in ("first", "second")]
    for folder, recipe in zip(folders, ("own.yaml", "other.yaml"), strict=True):
        words = ("--for", "30min", "--plan", sheets.folder / "plan.yaml", "--out", folder)
        assert sheets.command("datasheet", sheets.folder / recipe, *words) == 0
    capsys.readouterr()
    assert sheets.command("datasheet", "compare", *folders, "--out", sheets.out) == 0
    assert "A broker and Another broker" in capsys.readouterr().out
    rows = {row["figure"]: row for row in sheets.stored("datasheets.json")["rows"]}
    assert len(rows["clients"]["figures"]) == 2
    assert {"report.html", "report.md"} <= {path.name for path in sheets.out.iterdir()}


@pytest.mark.parametrize("count", [0, 1])
def test_a_comparison_needs_two_sheets(
    sheets: Player, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    assert sheets.command("datasheet", "compare", *[sheets.out] * count) == 2
    assert "needed are two or more, each once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "words", "message"),
    [
        ("mqtt://127.0.0.1:1", (), "found no terminal to ask at"),
        ("mqtt://127.0.0.1:1", ("--yes", "--cpus", "0"), "runs already: it has its terms"),
        ("own.yaml", ("--only", "moist"), "did you mean most?"),
        ("own.yaml", ("--cpus", "a"), "found 'a', allowed are numbers"),
        ("own.yaml", ("--memory", "much"), "--memory: found"),
        ("own.yaml", ("--persistent",), "which the recipe"),
        ("own.yaml", ("--for", "soon"), "--for: found"),
        ("absent.yaml", (), "found no such file"),
    ],
)
def test_a_wrong_word_plays_nothing(
    sheets: Player,
    capsys: pytest.CaptureFixture[str],
    subject: str,
    words: tuple[str, ...],
    message: str,
) -> None:
    assert measure(sheets, *words, subject=subject) == 2
    assert message in capsys.readouterr().err
    assert not sheets.runs

"""The page without a run: its form, its list of stored runs, and the requests that it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from pubstorm.cli.run import KINDS
from pubstorm.cli.view import _compare
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.report import load_stored
from pubstorm.web.runs import LISTED_MAX, RunList, StoredCommand, command_of
from pubstorm.web.server import Guard
from pubstorm.web.start import OPTIONS, Starter, bench_words, start_routes
from tests.kit.example_run import SCENARIO, Shape, write_run
from tests.kit.ports import free_port
from tests.kit.serving import Served, serving
from tests.pure.web.test_view import failure

POSTS: dict[str, object] = {
    "start": {"kind": "pub"},
    "repeat": {"run": "older"},
    "compare": {"runs": ["older", "newer"]},
    "stop": {},
}
"""Requests that change something."""
PAGE = files("pubstorm.web").joinpath("page/start.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, one of which has a report, and others that are none."""
    folder = tmp_path_factory.mktemp("web") / "runs"
    for name, day in (("newer", 22), ("older", 21)):
        write_run(folder / name, Shape(duration_s=20), started=f"2026-11-{day}T12:00:00+00:00")
    (folder / "older/report.html").write_text("<!doctype html><title>report</title>")
    (folder / "linked").symlink_to(folder / "older")
    (folder / "no\nline").mkdir()
    (folder / "empty").mkdir()
    (folder / "file").write_text("none")
    (folder / "older/out").symlink_to("/etc/hostname")
    (folder.parent / "secret").write_text("secret")
    os.mkfifo(folder / "older/pipe")
    return folder


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Served]:
    with serving("web", str(runs), f"--listen=127.0.0.1:{free_port()}") as served:
        yield served


def refusal(page: Served, path: str, body: object) -> str:
    """Words with which a request is refused."""
    found = json.loads(page.ask(path, body).text)
    assert not found["accepted"]
    return str(found["text"])


def test_the_form_has_the_kinds_and_options_of_bench() -> None:
    kinds = re.search(r'<select name="kind">(.*?)</select>', PAGE, re.DOTALL)
    assert kinds is not None
    assert set(re.findall(r'value="([\w-]+)"', kinds[1])) == set(KINDS)
    assert set(re.findall(r' name="(\w+)"', PAGE)) - {"viewport", "generator"} == {
        *("kind", "target"),
        *OPTIONS,
    }


def test_a_form_becomes_words_of_a_command_line() -> None:
    form = {"kind": "pub", "target": " mqtt://a:1 ", "clients": "5", "rate": "", "time": "2 s"}
    assert bench_words(form) == (
        "pubstorm bench pub mqtt://a:1 --clients=5 '--for=2 s'",
        "bench-pub",
        ["bench", "--clients=5", "--for=2 s", "--", "pub", "mqtt://a:1"],
    )


@pytest.mark.parametrize("word", ["--out=elsewhere", "-h", "--", "$(id)", "; id", "@file"])
def test_no_value_of_a_form_becomes_an_option(word: str) -> None:
    _, _, words = bench_words({"kind": word, "target": word, "size": word})
    assert words == ["bench", f"--size={word}", "--", word, word]


@pytest.mark.parametrize(
    "value", ["a\nb", "a\0b", "\ud800", "x" * 300, 5, None, ["pub"], {"a": 1}, "${env:HOME}"]
)
def test_a_value_that_is_no_word_of_one_line_is_refused(value: object) -> None:
    for key in ("kind", "target", "clients", "qos"):
        with pytest.raises(UsageError, match=f"^{key}: found "):
            bench_words({"kind": "pub", key: value})


def test_a_page_that_starts_processes_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has a token"):
        start_routes(Starter(tmp_path, _compare), Guard(frozenset({"127.0.0.1"})))


def test_the_list_has_the_runs_of_the_folder_the_newest_first(runs: Path) -> None:
    rows, left_out = RunList(runs).listed()
    assert ([row["name"] for row in rows], left_out) == (["newer", "older"], 0)
    for row in rows:
        verdict = load_stored(runs / row["name"]).verdict  # type: ignore[union-attr]
        assert (row["status"], row["headline"]) == (verdict.status, verdict.headline)
        assert (row["kind"], row["report"]) == ("run", row["name"] == "older")
        assert (row["compares"], row["problem"]) == (True, "")
        assert (
            row["command"] == "pubstorm run fixed-rate.yaml --set populations.device-0.clients=3k"
        )


def test_a_run_that_changes_is_read_again(tmp_path: Path) -> None:
    found = RunList(tmp_path)
    assert found.listed() == ([], 0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/scenario.yaml").write_text(SCENARIO)
    assert found.listed()[0][0]["headline"].startswith("No result is stored")
    (tmp_path / "run/result.json").write_text("{")
    assert "result.json is broken" in found.listed()[0][0]["headline"]
    write_run(tmp_path / "run", Shape(duration_s=20))
    assert found.listed()[0][0]["status"]
    shutil.rmtree(tmp_path / "run")
    assert found.listed() == ([], 0)


def test_a_folder_of_many_runs_is_listed_up_to_a_number(tmp_path: Path) -> None:
    for number in range(LISTED_MAX + 3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "scenario.yaml").touch()
    rows, left_out = RunList(tmp_path).listed()
    assert (len(rows), left_out) == (LISTED_MAX, 3)


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("..", "secret"),
        (".", "file"),
        ("older", "../newer/result.json"),
        ("older", "../../secret"),
        ("older", "/etc/hostname"),
        ("older", "out"),
        ("older", "pipe"),
        ("older", "profile"),
        ("older", "profile/folded.txt"),
        ("older", ""),
        ("older/../older", "result.json"),
        ("linked", "result.json"),
        ("none", "result.json"),
        ("no\nline", "result.json"),
        ("\0", "\0"),
    ],
)
def test_no_name_leads_to_another_file(name: str, inner: str, runs: Path) -> None:
    assert RunList(runs).file(name, inner) is None


def test_the_files_of_a_run_and_the_reports_of_its_runs_are_served(tmp_path: Path) -> None:
    step = tmp_path / "series/steps/01-a"
    step.mkdir(parents=True)
    for path in (step / "report.html", step / "result.json", tmp_path / "series/series.json"):
        path.write_text(path.name)
    (tmp_path / "series/steps/02-b").symlink_to(tmp_path)
    found = RunList(tmp_path)
    assert found.file("series", "series.json") == b"series.json"
    assert found.file("series", "steps/01-a/report.html") == b"report.html"
    assert found.file("series", "steps/01-a/result.json") is None


def command(scenario: Path | str, *overrides: str, target: str = "") -> StoredCommand:
    return StoredCommand("loads", str(scenario), overrides, target, "pubstorm run …")


def test_a_run_is_repeated_with_its_scenario_as_it_was(tmp_path: Path) -> None:
    source, stored = tmp_path / "source.yaml", tmp_path / "run/scenario.yaml"
    stored.parent.mkdir()
    source.write_text(SCENARIO)
    stored.write_text(f"{SCENARIO}# with --set populations.device-0.clients=5\n")
    asked = command(source, "populations.device-0.clients=5", target="mqtt://a mqtt://b")
    options = ["--target=mqtt://a", "--target=mqtt://b", "--set=populations.device-0.clients=5"]
    assert asked.words(stored.parent) == ["run", *options, "--", str(source)]
    # A file that is another one now is not what was played.
    source.write_text(SCENARIO.replace("3k", "4k"))
    words = ["run", *options, '--set=name="loads"', "--", str(stored)]
    assert asked.words(stored.parent) == words
    source.write_text("{")
    assert asked.words(stored.parent) == words


def test_a_run_without_its_secrets_is_not_repeated(tmp_path: Path) -> None:
    source, stored = tmp_path / "source.yaml", tmp_path / "scenario.yaml"
    secret = SCENARIO.replace("{clients: 3k,", "{clients: 3k, username: a, password: b,")
    source.write_text(secret)
    stored.write_text(secret.replace("password: b", 'password: "***"'))
    assert command(source).words(tmp_path)[-1] == str(source), "the file has the secret"
    given = command(source, "populations.device-0.password=***")
    assert given.loss == "the secret given by --set populations.device-0.password was not stored"
    login = command(source, target="mqtt://***@a")
    source.write_text(SCENARIO)
    for each, reason in (
        (given, "was not stored"),
        (login, "login of its target"),
        (command(source), "its scenario has no secrets"),
        (command("gone.yaml"), "its scenario has no secrets"),
    ):
        with pytest.raises(StoredRunError, match=reason):
            each.words(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pubstorm",
        "pubstorm run",
        "rm -r runs",
        "pubstorm down runs/a",
        "pubstorm run a.yaml --out elsewhere",
        "pubstorm run a.yaml --set",
        "pubstorm run a.yaml 'b",
    ],
)
def test_only_command_lines_of_run_are_repeated(text: str, tmp_path: Path) -> None:
    stored = write_run(tmp_path / "run", Shape(duration_s=20), command=text)
    assert command_of(stored) is None
    with pytest.raises(StoredRunError, match="was not played by pubstorm run"):
        RunList(tmp_path).again("run")


@pytest.mark.parametrize("path", ["state", "live", "events", "runs/older/report.html", *POSTS])
def test_nothing_is_answered_without_the_token(path: str, page: Served) -> None:
    stranger = Served(page.url.partition("#")[0], page.process)
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = stranger.ask(path, POSTS.get(path), headers)
        assert (answer.status, answer.text) == (401, "the page needs its token\n")
    assert "Token of the page" in stranger.ask().text


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Content-Type": "text/plain"}],
    ids=str,
)
def test_a_stored_page_or_another_site_starts_nothing(
    path: str, headers: dict[str, str], page: Served
) -> None:
    assert page.ask(path, POSTS[path], headers).status == 403


def test_the_start_page_leads_to_the_live_page(page: Served) -> None:
    assert page.ask().text == PAGE
    assert "://" not in page.ask("start.js").text
    assert 'src="/live.js"' in page.ask("live").text
    _, kind, content = next(page.events())
    assert (kind, content["run"]) == ("whole", None)


def test_a_report_is_served_apart_from_the_page(page: Served) -> None:
    found = page.ask("runs/older/report.html")
    assert (found.status, found.text) == (200, "<!doctype html><title>report</title>")
    policy = found.headers["content-security-policy"]
    assert "sandbox" in policy and "allow-same-origin" not in policy
    result = page.ask("runs/older/result.json")
    assert (result.status, result.headers["content-type"][:10]) == (200, "text/plain")
    for path in ("runs/older/%2e%2e/newer/result.json", "runs/%2e%2e/secret", "runs/older/out"):
        assert page.ask(path).status == 404


@pytest.mark.parametrize("body", [None, [], {"run": "none"}, {"run": "../runs/older"}, {"run": 5}])
def test_a_run_that_the_list_has_not_is_not_repeated(body: object, page: Served) -> None:
    sent = {} if body is None else body
    assert "found no such run" in refusal(page, "repeat", sent)
    names = [body, "older"] if body else []
    found = refusal(page, "compare", {"runs": names})
    assert "found no such run" in found or "found 0 runs" in found


def test_two_runs_are_compared(page: Served, runs: Path) -> None:
    assert "is named twice" in refusal(page, "compare", {"runs": ["older", "older"]})
    found = json.loads(page.ask("compare", {"runs": ["newer", "older"]}).text)
    assert found["accepted"], found
    assert page.ask(found["to"].removeprefix("/")).status == 200
    (made,) = runs.glob("*-comparison")
    compared = json.loads((made / "comparison.json").read_text())
    sides = [compared[side]["runs"][0] for side in ("baseline", "candidate")]
    assert [Path(each).name for each in sides] == ["older", "newer"]
    state = json.loads(page.ask("state").text)
    row = next(each for each in state["runs"] if each["kind"] == "comparison")
    assert (row["name"], row["command"], row["compares"]) == (made.name, "", False)
    shutil.rmtree(made)


def test_a_refusal_of_bench_is_shown_in_its_words(page: Served, runs: Path) -> None:
    text = refusal(page, "start", {"kind": "conn", "rate": "5/s"})
    assert text.startswith("error: found --rate with conn, which publishes nothing\n  hint: ")
    state = json.loads(page.ask("state").text)
    assert (state["active"], state["failed"]) == (None, None)
    assert {row["name"] for row in state["runs"]} == {"older", "newer"}
    assert not [*runs.glob("*bench*")]


def test_a_folder_of_a_run_is_no_folder_of_runs(runs: Path) -> None:
    for path in (runs / "older", runs / "file"):
        code, text = failure("web", str(path))
        assert (code, f"pubstorm view {path}" in text) == (2, True)

"""The start page in a real browser: its form, its list, and the way to the live page and back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from tests.kit.browser import BROWSER, RULES, Browser, axe, browsing
from tests.kit.example_run import Shape, write_run
from tests.kit.ports import free_port
from tests.kit.serving import Served, serving
from tests.system.web.test_page import click

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium: scripts/install-test-tools installs it"
    ),
]
ROWS = "[...document.querySelectorAll('#list li')]"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("web")
    for day, carries in ((21, True), (22, False)):
        run = folder / f"runs/day-{day}"
        started = f"2026-11-{day}T12:00:00+00:00"
        write_run(run, Shape(duration_s=20, carries=carries), started=started)
        assert list(write_reports(run, RunDirectory(run).write)) == []
    with serving("web", f"--listen=127.0.0.1:{free_port()}", cwd=folder) as served:
        yield served


@pytest.fixture(scope="module")
def browser(page: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        found.look(1400, "light")
        found.open(page.url)
        # The token of the address opens the page.
        found.until(f"{ROWS}.length === 2 && location.hash === ''")
        assert ["401 (Unauthorized)" in error for error in found.errors] == [True]
        found.errors.clear()
        yield found


def home(browser: Browser, page: Served) -> None:
    browser.open(page.url.partition("#")[0])
    browser.until(f"{ROWS}.length >= 2")


def fill(browser: Browser, **values: str) -> None:
    for name, value in values.items():
        field = f"document.querySelector('#form [name={name}]')"
        browser.value(f"{field}.value = {json.dumps(value)}")


@pytest.mark.slow("axe-core looks at the page twice")
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (375, "dark")])
def test_every_reader_can_use_the_start_page(
    width: int, theme: str, browser: Browser, page: Served
) -> None:
    browser.look(width, theme)
    home(browser, page)
    texts = browser.value(f"{ROWS}.map((row) => row.innerText)")
    assert ["day-22" in texts[0], "day-21" in texts[1]] == [True, True]
    assert ["✗ FAIL" in texts[0], "✓ PASS" in texts[1]] == [True, True]
    browser.until(f"document.documentElement.clientWidth === {width}")
    assert browser.value("document.documentElement.scrollWidth") == width
    browser.value(f"{axe()}; true")
    found = browser.value(f"axe.run(document, {{ runOnly: {json.dumps(RULES)} }})")
    faults = [
        (each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
    ]
    assert faults == []
    assert browser.errors == []


def test_a_refusal_of_bench_is_shown(browser: Browser, page: Served) -> None:
    home(browser, page)
    fill(browser, kind="sub", rate="5/s")
    click(browser, "go")
    refused = "document.getElementById('refused').textContent"
    browser.until(f"{refused}.includes('found --rate with sub')")
    assert "hint: " in browser.value(refused)
    assert browser.value("document.getElementById('to-live').hidden")
    assert browser.value("location.pathname") == "/"


@pytest.mark.slow("two runs are compared in a browser")
def test_two_runs_are_compared_and_the_page_of_a_report_is_drawn(
    browser: Browser, page: Served
) -> None:
    home(browser, page)
    compare = "document.getElementById('compare')"
    boxes = "document.querySelectorAll('#list input')"
    for number, is_disabled in ((0, True), (1, False)):
        browser.value(f"{boxes}[{number}].click()")
        assert browser.value(f"{compare}.disabled") is is_disabled
    click(browser, "compare")
    browser.until("location.pathname.endsWith('-comparison/report.html')")
    browser.until("document.querySelector('.js-plotly-plot')")
    # Its script has an origin of its own.
    answer = browser.value(
        "fetch('/stop', { method: 'POST', headers: { 'Content-Type': 'application/json' },"
        " body: '{}' }).then(() => 'answered', () => 'refused')"
    )
    assert answer == "refused"
    browser.errors.clear()
    home(browser, page)
    browser.until(f"{ROWS}.length === 3")
    assert browser.value(f"{boxes}[0].disabled"), "a comparison cannot be compared"


@pytest.mark.slow("a run in a browser")
def test_a_run_is_started_and_stopped_in_the_browser(browser: Browser, page: Served) -> None:
    home(browser, page)
    before = browser.value(f"{ROWS}.length")
    fill(browser, kind="pairs", clients="2", rate="10/s", time="10min")
    click(browser, "go")
    browser.until("location.pathname === '/live'")
    headline = "document.getElementById('headline')?.textContent"
    browser.until(f"{headline}?.startsWith('Stage publish')")
    assert not browser.value("document.getElementById('home').hidden")
    home(browser, page)
    browser.until("!document.getElementById('active').hidden")
    assert "--clients=2" in browser.value("document.getElementById('command').textContent")
    click(browser, "go")
    browser.until("!document.getElementById('to-live').hidden")
    click(browser, "stop")
    browser.until("document.getElementById('sure').open")
    click(browser, "#sure [value=stop]")
    browser.until("document.getElementById('active').hidden")
    browser.until(f"{ROWS}.length === {before + 1}")
    assert "bench-pairs" in browser.value(f"{ROWS}[0].innerText")
    browser.open(f"{page.url.partition('#')[0]}live")
    browser.until("document.documentElement.dataset.state === 'over'")
    assert not browser.value("document.getElementById('report').hidden")
    assert browser.errors == []

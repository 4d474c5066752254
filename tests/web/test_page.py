"""The live page in a real browser, beside a real run on the embedded broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.report.test_browser import BROWSER
from tests.web.browser import Browser, browsing

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium: scripts/install-test-tools installs it"
    ),
]
SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]
  backend: {clients: 2, subscriptions: [{topic: "up/#", qos: 1}]}
stages: [connect, publish: 10min, disconnect]
thresholds: [backend.lost == 0, device.acked_per_s > 1M]
validity: {lateness_p99: 1min, busy: 100%}
"""


@dataclass(frozen=True)
class Run:
    """A run with its page."""

    folder: Path
    url: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder, port = tmp_path_factory.mktemp("run"), free_port()
    (folder / "scenario.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "pubstorm", "run", "scenario.yaml", "--out", "run"]
    with subprocess.Popen(
        [*command, f"--web=127.0.0.1:{port}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield Run(folder / "run", f"http://127.0.0.1:{port}/", process)
        process.kill()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def figure(name: str) -> str:
    """Script that reads the value of a key figure."""
    boxes = "[...document.querySelectorAll('#figures > div')]"
    named = f"(box) => box.querySelector('dt').textContent === '{name}'"
    return f"{boxes}.find({named})?.querySelector('.value').textContent"


@pytest.mark.slow("a run in a browser")
def test_the_page_shows_a_run_while_it_is_played(run: Run, browser: Browser) -> None:
    assert run.process.stderr is not None
    assert run.process.stderr.readline() == f"live page: {run.url}\n"
    browser.look(1400, "light")
    browser.open(run.url)
    browser.until("document.getElementById('headline').textContent.startsWith('Stage publish')")
    browser.until(f"parseInt({figure('messages received')}) > 0")
    assert browser.value(figure("clients connected")) == "22"
    seen = float(browser.value("document.documentElement.dataset.at"))
    browser.until(f"Number(document.documentElement.dataset.at) > {seen + 2}")
    drawn = browser.until("document.querySelectorAll('.chart path.line').length")
    assert drawn >= 8
    passed, failed = (f"document.querySelector('#outcomes li.{each}')" for each in ("pass", "fail"))
    browser.until(f"{passed}?.innerText.includes('backend.lost == 0')")
    browser.until(f"{failed}?.innerText.includes('device.acked_per_s')")
    browser.until("document.getElementById('badge').textContent === '✗ FAILS SO FAR'")
    assert browser.errors == []


@pytest.mark.slow("the end of a run in a browser")
def test_the_page_shows_the_end_of_the_run(run: Run, browser: Browser) -> None:
    os.kill(run.process.pid, signal.SIGINT)
    browser.until("document.documentElement.dataset.state === 'over'")
    assert run.process.wait() == 130
    result = json.loads((run.folder / "result.json").read_text())
    headline = browser.value("document.getElementById('headline').textContent")
    assert headline == result["verdict"]["headline"]
    assert browser.value("document.getElementById('link').textContent") == "the run is over"
    assert "interrupted by SIGINT" in browser.value("document.getElementById('happened').innerText")
    assert browser.errors == []

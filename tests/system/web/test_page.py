"""The live page in a real browser, beside a real run on the embedded broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import program
from tests.kit.browser import BROWSER, RULES, Browser, axe, browsing
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.system.web.cable import OTHER, Cable

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
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder, port = tmp_path_factory.mktemp("run"), free_port()
    (folder / "scenario.yaml").write_text(SCENARIO)
    with program.popen(
        ("run", "scenario.yaml", "--out", "run", f"--web=127.0.0.1:{port}"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield Run(folder / "run", port, process)
        process.kill()


@pytest.fixture(scope="module")
def cable(run: Run) -> Iterator[Cable]:
    found = Cable(run.port)
    yield found
    found.pull()


@pytest.fixture(scope="module")
def browser(run: Run, cable: Cable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that shows the page, at the end of the cable."""
    assert cable is not None
    rules = f"--host-resolver-rules=MAP 127.0.0.1:{run.port} {OTHER}:{run.port}"
    with browsing(tmp_path_factory.mktemp("browser"), rules) as found:
        assert run.process.stderr is not None
        address = run.process.stderr.readline().removeprefix("live page: ").strip()
        assert address.startswith(f"{run.url}#token=")
        found.look(1400, "light")
        found.open(address)
        # The token of the address opens the page.
        found.until("document.getElementById('headline') && location.hash === ''")
        assert ["401 (Unauthorized)" in error for error in found.errors] == [True]
        found.errors.clear()
        yield found


def figure(name: str) -> str:
    """Script that reads the value of a key figure."""
    boxes = "[...document.querySelectorAll('#figures > div')]"
    named = f"(box) => box.querySelector('dt').textContent === '{name}'"
    return f"{boxes}.find({named})?.querySelector('.value').textContent"


def click(browser: Browser, target: str) -> None:
    """Clicks on the element with an id, or the one that a selector finds."""
    selector = target if target[0] in "#[" else f"#{target}"
    browser.value(f"document.querySelector('{selector}').click()")


EVENTS = "document.getElementById('happened').innerText"


def test_a_browser_leaves_nothing_behind(tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        assert list(browser.room.iterdir()), "its socket is in a folder of its own"
    assert not browser.room.exists()


@pytest.mark.slow("a run in a browser")
def test_the_page_shows_a_run_while_it_is_played(browser: Browser) -> None:
    browser.until("document.getElementById('headline').textContent.startsWith('Stage publish')")
    browser.until(f"parseInt({figure('messages received')}) > 0")
    assert browser.value(figure("clients connected")) == "22"
    seen = float(browser.value("document.documentElement.dataset.at"))
    browser.until(f"Number(document.documentElement.dataset.at) > {seen + 2}")
    browser.until("document.querySelectorAll('.chart path.line').length >= 8")
    passed, failed = (f"document.querySelector('#outcomes li.{each}')" for each in ("pass", "fail"))
    browser.until(f"{passed}?.innerText.includes('backend.lost == 0')")
    browser.until(f"{failed}?.innerText.includes('device.acked_per_s')")
    browser.until("document.getElementById('badge').textContent === '✗ FAILS SO FAR'")
    evidence = browser.value("document.getElementById('evidence').textContent")
    assert "excluded from loss" not in evidence, "no client joined or left"
    assert "when publishing ended" not in evidence
    assert browser.errors == []


@pytest.mark.slow("a run in a browser")
def test_the_page_steers_the_run(browser: Browser) -> None:
    assert browser.value("document.getElementById('controls').open"), "wide windows have room"
    assert browser.value("document.getElementById('rate-of').value") == "device"
    click(browser, "faster")
    browser.until("document.getElementById('answer').textContent.startsWith('1.1 × device at')")
    browser.until(f"{EVENTS}.includes('1.1 × device')")
    click(browser, "[data-words=pause]")
    browser.until(f"{EVENTS}.includes('pause device')")
    browser.until(f"{figure('messages received')} === '0 /s'")
    click(browser, "[data-words=resume]")
    browser.until(f"parseInt({figure('messages received')}) > 0")
    click(browser, "remove")
    browser.until(f"{EVENTS}.includes('-10% device')")
    browser.until(f"{figure('clients connected')} === '20'")
    browser.value("document.getElementById('count').value = '500'")
    click(browser, "add")
    browser.until("document.querySelector('#answer.refused')?.textContent.includes('18 of 20')")
    browser.value("document.getElementById('count').value = '2'")
    click(browser, "add")
    browser.until(f"{figure('clients connected')} === '22'")
    assert browser.errors == []


@pytest.mark.slow("a broker is killed and started again")
def test_the_page_breaks_a_broker_and_repairs_it(browser: Browser) -> None:
    browser.value("document.getElementById('fault').value = 'kill'")
    assert browser.value("document.getElementById('victims').value") == "main"
    click(browser, "inject")
    browser.until("document.getElementById('answer').textContent === 'kill main begins'")
    browser.until("document.querySelector('#broken li')?.textContent.startsWith('kill main')")
    browser.until(f"{figure('clients connected')} === '0'")
    click(browser, "inject")
    overlap = "kill main (2) would overlap with kill main"
    browser.until(f"document.querySelector('#answer.refused')?.textContent.includes('{overlap}')")
    click(browser, "#broken button")
    browser.until(f"{EVENTS}.includes('kill main: 1 broker is up again')")
    browser.until("!document.querySelector('#broken li')")
    browser.until(f"{figure('clients connected')} === '22'")
    # Nothing was delivered in the outage: the line of latencies has a gap.
    latency = "document.querySelector('figure[aria-labelledby=t-latency]')"
    browser.until(f"{latency}.querySelector('path.line').getAttribute('d').split('M').length > 2")
    assert browser.value(f"{latency}.querySelector('text.unit').textContent") == "ms"


@pytest.mark.slow("a browser that is cut off")
def test_a_browser_that_was_cut_off_catches_up(run: Run, cable: Cable, browser: Browser) -> None:
    browser.until("document.querySelector('.link.live')")
    cable.pull()
    browser.until("document.querySelector('.link.broken')")
    seen = float(browser.value("document.documentElement.dataset.at"))
    samples = run.folder / "samples.csv"
    until(lambda: float(samples.read_text().splitlines()[-1].partition(",")[0]) > seen + 2)
    assert float(browser.value("document.documentElement.dataset.at")) == seen
    cable.plug()
    browser.until("document.querySelector('.link.live')")
    browser.until(f"Number(document.documentElement.dataset.at) > {seen + 2}")
    # A line with a gap has several beginnings.
    line = "document.querySelector('.chart path.line').getAttribute('d')"
    browser.until(f"{line}.split('M').length === 2")
    browser.errors.clear()


# The width moves no colour, and the theme no box.
@pytest.mark.slow("axe-core looks at the page twice")
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (375, "dark")])
def test_every_reader_can_use_the_page(width: int, theme: str, browser: Browser) -> None:
    browser.look(width, theme)
    browser.value("document.getElementById('controls').open = true")
    browser.until(f"document.documentElement.clientWidth === {width}")
    assert browser.value("document.documentElement.scrollWidth") == width
    browser.value(f"{axe()}; true")
    # A picture inside is drawn again while axe-core looks.
    rules = f"{{ exclude: [['svg']] }}, {{ runOnly: {json.dumps(RULES)} }}"
    found = browser.value(f"axe.run({rules})")
    faults = [
        (each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
    ]
    assert faults == []
    assert len(found["passes"]) > 15
    wide = browser.value(
        """[...document.querySelectorAll("main *")].filter((each) =>
        each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        && !each.closest(".scroll, svg")).map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert wide == []


@pytest.mark.slow("the end of a run in a browser")
def test_the_page_stops_the_run_once_it_is_sure(run: Run, browser: Browser) -> None:
    browser.look(1400, "light")
    click(browser, "stop")
    browser.until("document.getElementById('sure').open")
    click(browser, "#sure [value=no]")
    browser.until("!document.getElementById('sure').open")
    seen = float(browser.value("document.documentElement.dataset.at"))
    browser.until(f"Number(document.documentElement.dataset.at) > {seen + 1}")
    click(browser, "stop")
    click(browser, "#sure [value=stop]")
    browser.until("document.documentElement.dataset.state === 'over'")
    assert run.process.wait() == 130
    result = json.loads((run.folder / "result.json").read_text())
    headline = browser.value("document.getElementById('headline').textContent")
    assert headline == result["verdict"]["headline"]
    assert browser.value("document.getElementById('link').textContent") == "the run is over"
    kept = browser.value("document.getElementById('kept').innerText")
    assert f"{run.folder}/report.html" in kept and f"pubstorm view {run.folder}" in kept
    assert "✗" in browser.value("document.querySelector('#figures .fail dd').innerText")
    places = "['figures', 'evidence', 'controls'].map((id) => document.getElementById(id))"
    follows = "Node.DOCUMENT_POSITION_FOLLOWING"
    assert browser.value(
        f"{places}.every((each, n, all) => !n || "
        f"all[n - 1].compareDocumentPosition(each) & {follows})"
    )
    assert "is ended by the user after" in browser.value(EVENTS)
    events = [(event["kind"], event["text"]) for event in result["events"]]
    asked = ["1.1 × device", "pause device", "1.1 × device (2)", "-10% device", "+2 device"]
    made = [text.removesuffix(": resumed") for kind, text in events if kind == "change"]
    assert made == asked
    assert ("change", "1.1 × device (2): resumed") in events
    changes = [text for kind, text in events if kind == "by_hand" and text.endswith(("e", "(2)"))]
    made = [f"the user made the change {name}" for name in asked]
    assert changes == [made[0], "the user paused device", *made[2:]]
    (fault,) = result["faults"]
    assert (fault["name"], fault["victims"]) == ("kill main", ["main-0"])
    assert fault["repaired_at_s"] is not None
    assert browser.errors == []

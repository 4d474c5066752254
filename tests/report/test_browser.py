"""The pages in a real browser: every plot is drawn and no script fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.reading import Page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium: scripts/install-test-tools installs it"
)
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)


@pytest.fixture(scope="module")
def shown(failed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a run as the browser has made it, and what it logged."""
    assert BROWSER is not None
    profile = tmp_path_factory.mktemp("browser")
    address = (failed_run / "report.html").as_uri() + "#dark"
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def test_no_script_fails(shown: tuple[str, str]) -> None:
    dom, log = shown
    assert re.findall(r".*CONSOLE.*", log) == []
    assert "data-failed" not in dom[: dom.index("<body")]


def test_every_plot_in_sight_is_drawn(shown: tuple[str, str], failed_run: Path) -> None:
    page = Page((failed_run / "report.html").read_text(encoding="utf-8"))
    hidden = [key for key in page.figures if key.startswith("other-")]
    drawn = re.findall(r'<div class="canvas js-plotly-plot"', shown[0])
    assert len(drawn) == len(page.figures) - len(hidden)
    assert f'data-plots="{len(drawn)}"' in shown[0]


def test_the_flame_graph_is_drawn_and_can_be_asked(shown: tuple[str, str]) -> None:
    assert re.search(r'<button type="button" title="mux_poll__handle: [\d.]+ %', shown[0])


def test_the_address_chooses_the_theme(shown: tuple[str, str]) -> None:
    assert 'data-theme="dark"' in shown[0][: shown[0].index("<head")]

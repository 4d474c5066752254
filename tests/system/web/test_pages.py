"""The pages in a real browser: every plot is drawn and no script fails."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from pubstorm.report.plot import START_MS
from tests.kit.browser import BROWSER, opened
from tests.kit.example_series import write_series
from tests.kit.reading import Page

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium: scripts/install-test-tools installs it"
    ),
]


USER = """
<script>
(async () => {
  const pause = () => new Promise((done) => setTimeout(done, 50));
  while (!document.documentElement.dataset.plots) await pause();
  const drawn = document.querySelectorAll("div.canvas.js-plotly-plot").length;
  const asked = document.documentElement.dataset.theme;
  const [load, latency] = document.querySelectorAll(".js-plotly-plot");
  const whole = latency.layout.xaxis.range.join();
  await Plotly.relayout(load, { "xaxis.range[0]": 2678460000, "xaxis.range[1]": 2678490000 });
  await pause();
  const moved = latency.layout.xaxis.range.join() === load.layout.xaxis.range.join();
  const frame = [...document.querySelectorAll("#flame button")]
    .find((button) => button.dataset.name === "mux_poll__handle");
  frame.click();
  const search = document.getElementById("flame-search");
  search.value = "EPOLL_WAIT";
  search.dispatchEvent(new Event("input"));
  document.querySelector("details:has([data-figure])").open = true;
  while (!document.querySelector("details .js-plotly-plot")) await pause();
  const blobs = [], names = [];
  URL.createObjectURL = (blob) => { blobs.push(blob); return "#"; };
  HTMLAnchorElement.prototype.click = function () { names.push(this.download); };
  document.querySelector('[data-csv="load"]').click();
  document.getElementById("theme").click();
  document.body.dataset.said = JSON.stringify({
    drawn, asked, names, frame: frame.title,
    plots: Number(document.documentElement.dataset.plots),
    moved: moved && whole !== latency.layout.xaxis.range.join(),
    outer: document.querySelectorAll("#flame .outer").length,
    found: document.getElementById("flame-found").textContent,
    theme: document.documentElement.dataset.theme,
    csv: await blobs[0].text(),
  });
})();
</script>
"""
"""Does what a user would, and writes down what came of it."""


@pytest.fixture(scope="module")
def text(failed_run: Path) -> str:
    return (failed_run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def said(text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Findings of the user on the page of a run, whose address asks for the dark theme."""
    folder = tmp_path_factory.mktemp("used")
    (folder / "used.html").write_text(text.replace("</body>", f"{USER}</body>"))
    dom, log = opened(folder / "used.html", folder / "browser")
    assert re.findall(r".*CONSOLE.*", log) == []
    assert "data-failed" not in dom[: dom.index("<body")]
    (body,) = (attributes for tag, attributes in Page(dom).elements if tag == "body")
    return dict(json.loads(body["data-said"]))


def test_every_plot_that_stands_open_is_drawn(said: dict[str, Any], text: str) -> None:
    unfolded = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert said["drawn"] == said["plots"] == unfolded.count("data-figure=") == 4


def test_plots_and_the_flame_graph_follow_the_user(said: dict[str, Any]) -> None:
    assert (said["moved"], said["outer"]) == (True, 5)
    assert re.fullmatch(r"mux_poll__handle: [\d.]+ %.*", said["frame"])
    assert re.fullmatch(r"found in [\d.]+ % of the samples", said["found"])


def test_the_address_chooses_the_theme_and_a_button_changes_it(said: dict[str, Any]) -> None:
    assert (said["asked"], said["theme"]) == ("dark", "light")


def test_the_points_of_a_plot_can_be_saved(said: dict[str, Any], text: str) -> None:
    (name,), rows = said["names"], [*csv.reader(io.StringIO(said["csv"]))]
    assert name.endswith("-load.csv")
    assert rows[0] == ["line", "time (s)", "messages per second"]
    figure = Page(text).figures["load"]
    first = next(each for each in figure["data"] if each["name"] == rows[1][0])
    assert [float(cell) for cell in rows[1][1:]] == [
        (first["x"][0] - START_MS) / 1000,
        first["y"][0],
    ]
    points = sum(y is not None for trace in figure["data"] for y in trace["y"])
    assert len(rows) == 1 + points


@pytest.mark.slow("a browser draws the plots of a series")
def test_the_page_of_a_series_is_drawn(tmp_path: Path) -> None:
    write_series(tmp_path / "series")
    directory = RunDirectory(tmp_path / "series")
    assert list(write_reports(directory.path, directory.write)) == []
    dom, log = opened(directory.path / "report.html", tmp_path / "browser")
    assert re.findall(r".*CONSOLE.*", log) == []
    assert 'data-plots="5"' in dom, "the plots of single steps are folded"

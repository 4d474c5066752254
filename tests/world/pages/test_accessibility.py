"""The pages for every reader: checked by axe-core in a browser, wide and light, narrow and
dark. The page never scrolls sideways, and every text is looked at, folded ones too."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from tests.kit.browser import BROWSER, RULES, axe, opened
from tests.kit.example_comparison import write_comparison
from tests.kit.example_datasheet import write_datasheet, write_datasheets
from tests.kit.example_history import write_history
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import write_search
from tests.kit.example_series import write_series
from tests.kit.reading import Page

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.concerns("python/pubstorm/report/", "python/pubstorm/web/"),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium: scripts/install-test-tools installs it"
    ),
]
VIEWS = ((1400, "light"), (375, "dark"))
"""Width and theme: the width moves no colour, and the theme no box."""
SCREENS, HEIGHT = 4, 900
"""Screens that a plain run takes at most at 1400 pixels, with the rest folded."""

INSIDE = """
<script>
(async () => {
  const pause = () => new Promise((done) => setTimeout(done, 50));
  while (!document.documentElement.dataset.plots) await pause();
  const height = document.documentElement.scrollHeight;
  for (const more of document.querySelectorAll("details")) {
    more.open = more.querySelectorAll("[data-figure]").length < 12;
  }
  const canvases = [...document.querySelectorAll(":not(details:not([open]) *)[data-figure]")];
  while (canvases.some((each) => !each.classList.contains("js-plotly-plot"))) await pause();
  const root = document.documentElement;
  const sideways = root.scrollWidth > root.clientWidth;
  const wide = [...document.querySelectorAll("main *")].filter((each) =>
    each.getBoundingClientRect().right > root.clientWidth + 1
    && !each.closest(".scroll, pre, svg, .modebar-container, #flame"));
  const found = await axe.run({ exclude: [["svg"]] }, { runOnly: RULES });
  const faults = found.violations.map(
    ({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 120))]);
  parent.postMessage({ view: location.hash + root.clientWidth, sideways, height, faults,
    wide: wide.map((each) => each.outerHTML.slice(0, 80)), checked: found.passes.length }, "*");
})();
</script>
"""
"""Unfolds and draws all but the longest folds, and lets axe-core and a ruler look at it."""

AROUND = """<!doctype html><html lang="en"><body><script>
const said = [];
addEventListener("message", (event) => {
  said.push(event.data);
  document.body.dataset.said = JSON.stringify(said);
});
</script>FRAMES</body></html>"""
"""Shows a page in a frame of each width, since no window of Chromium is narrower than 500 px."""


@dataclass(frozen=True)
class Seen:
    """The findings of one page, by width and theme."""

    views: list[dict[str, Any]]
    errors: list[str]
    """Lines of the browser's console."""

    def found(self, name: str) -> list[Any]:
        return [(view["view"], view[name]) for view in self.views if view[name]]


def seen(report: Path, folder: Path) -> Seen:
    folder.mkdir()
    text = report.read_text(encoding="utf-8")
    inside = INSIDE.replace("RULES", json.dumps(RULES))
    added = f"<script>{axe()}</script>{inside}</body>"
    (folder / "page.html").write_text(text.replace("</body>", added), encoding="utf-8")
    frames = "".join(
        f'<iframe src="page.html#{theme}" title="page" style="width:{width}px;height:{HEIGHT}px">'
        "</iframe>"
        for width, theme in VIEWS
    )
    (folder / "around.html").write_text(AROUND.replace("FRAMES", frames), encoding="utf-8")
    dom, log = opened(folder / "around.html", folder / "browser")
    (body,) = (attributes for tag, attributes in Page(dom).elements if tag == "body")
    views = sorted(json.loads(html.unescape(body["data-said"])), key=lambda each: each["view"])
    assert len(views) == len(VIEWS)
    return Seen(views, re.findall(r".*CONSOLE.*", log))


@pytest.fixture(scope="module")
def pages(failed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {"failed run": failed_run, "plain run": tmp_path_factory.mktemp("plain")}
    nothing = dict.fromkeys(("faults", "events", "stale_state", "monitor_problems"), ())
    write_run(folders["plain run"], Shape(duration_s=60), profile=None, table={}, **nothing)
    written = RunDirectory(folders["plain run"])
    assert list(write_reports(written.path, written.write)) == []
    for name, write in (
        ("series", write_series),
        ("search", write_search),
        ("comparison", write_comparison),
        ("data sheet", write_datasheet),
        ("data sheets", write_datasheets),
    ):
        folder = folders[name] = tmp_path_factory.mktemp(name)
        write(folder)
        assert list(write_reports(folder, RunDirectory(folder).write)) == []
    folders["history"] = write_history(tmp_path_factory.mktemp("history")).parent
    return {name: folder / "report.html" for name, folder in folders.items()}


@pytest.mark.slow("a browser draws every plot of a page twice")
@pytest.mark.parametrize(
    "name",
    [
        "failed run",
        "plain run",
        "series",
        "search",
        "comparison",
        "history",
        "data sheet",
        "data sheets",
    ],
)
def test_every_reader_can_use_the_page(name: str, pages: dict[str, Path], tmp_path: Path) -> None:
    found = seen(pages[name], tmp_path / "seen")
    assert found.errors == []
    assert found.found("faults") == []
    assert found.found("sideways") == []
    assert found.found("wide") == []
    assert all(view["checked"] > 15 for view in found.views)
    if name == "plain run":
        assert min(view["height"] for view in found.views) <= SCREENS * HEIGHT

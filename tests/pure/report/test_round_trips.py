"""A run whose clients ask for round trips shows them first, wherever its figures are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubstorm.report.data import conclusion_of, data_table
from pubstorm.report.document import KEY_FIGURES_MAX
from pubstorm.report.latencies import percentile_plot
from pubstorm.report.of_run import run_document
from pubstorm.report.stored import RESULT_FILE, load_tracks
from pubstorm.report.timeline import timeline
from pubstorm.result import RunResult
from pubstorm.result.comparison import default_figures
from pubstorm.result.samples import HEADER, SAMPLES_FILE, csv_lines
from pubstorm.web.watch import Surroundings, Watch
from tests.kit.recorded import unpack
from tests.kit.replayed import Replay

pytestmark = pytest.mark.xdist_group("round-trips")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("requests", tmp_path_factory.mktemp("requests"))


@pytest.fixture(scope="module")
def result(folder: Path) -> RunResult:
    """The result of the recorded run, whose folder has the samples of its snapshots then."""
    replay = Replay(folder)
    found = replay.result()
    assert found is not None
    lines = [",".join(HEADER), "\n", *csv_lines(replay.samples)]
    (folder / SAMPLES_FILE).write_text("".join(lines), encoding="utf-8")
    return found


def page(folder: Path) -> dict[str, Any]:
    watch = Watch(folder, Surroundings())
    while watch.poll():
        pass
    return watch.whole()


def check_page(content: dict[str, Any]) -> None:
    names = [figure["name"] for figure in content["now"]["figures"]]
    assert "round trip p99" in names[:KEY_FIGURES_MAX]
    assert {"round trip p50", "round trip p99"} <= {*content["now"]["heads"]}
    asker, backend, *_ = content["now"]["populations"]
    place = content["now"]["heads"].index("round trip p99")
    assert asker["cells"][place].endswith("s") and backend["cells"][place] == "–"
    drawn = [chart["key"] for chart in content["charts"] if chart["lines"]]
    assert drawn.index("round-trip") < drawn.index("latency")


def test_sentence_figures_plots_and_tables_have_round_trips(
    folder: Path, result: RunResult
) -> None:
    document = run_document(result)
    assert "p99 of round trips" in result.verdict.headline
    assert "round trip p99" in [figure.name for figure in document.key_figures]
    tracks, _ = load_tracks(folder)
    keys = [plot.key for plot in timeline(result, tracks) if plot.part == "latency"]
    assert keys == ["round-trip", "latency"], "the first plot of a section stands open"
    plot = percentile_plot(result)
    assert plot is not None
    assert plot.figure["data"][0]["name"] == "asker round trips, from scheduled"
    for name in ("intervals", "latency"):
        assert any(data_table(result, folder, name)["round_trip_p99_us"]), name
    concluded = conclusion_of(result, document, 0).populations
    assert concluded["asker"].round_trip_p99_us == result.populations["asker"].round_trip_us.p99
    assert concluded["backend"].round_trip_p99_us is None
    assert [str(figure) for figure in default_figures([result])][:2] == [
        "round_trip.p50",
        "round_trip.p99",
    ]


def test_the_live_page_has_round_trips(folder: Path, result: RunResult) -> None:
    (folder / RESULT_FILE).unlink(missing_ok=True)
    playing = Watch(folder, Surroundings())
    playing.is_alive = True
    while playing.poll():
        playing.is_alive = True
    check_page(playing.whole())
    (folder / RESULT_FILE).write_text(result.to_json(), encoding="utf-8")
    check_page(page(folder))

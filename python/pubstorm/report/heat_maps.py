"""Heat maps of a grid of two variables: a cell for each pair of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pubstorm.report.plot import NO_MORE, Plot, figure, plotted

SIDE_MIN = 3
"""Values of each variable from which a heat map says more than lines."""
SCALE = ((0, "rgba(47,131,201,0.05)"), (1, "rgba(47,131,201,0.6)"))
"""One hue, so that cells differ for colour-blind people, and text is readable on both grounds."""
CAPTION = "A cell for each pair of values; a stronger colour is more."
OF_REPEATS = " Of repeats the largest is shown."
INVALID = " Steps that are invalid have no cell."


def heat_map(
    plot: Plot, axes: tuple[str, str], unit: str, cells: Mapping[tuple[str, str], float | None]
) -> Plot | None:
    """Returns a heat map of values by their places on both axes, with the names of the axes; an
    absent value is a hole. None if a side is too short."""
    across = list(dict.fromkeys(x for x, _ in cells))
    down = list(dict.fromkeys(y for _, y in cells))
    if min(len(across), len(down)) < SIDE_MIN:
        return None
    trace: dict[str, Any] = {
        "type": "heatmap",
        "name": plotted(plot.title),
        "x": [plotted(x) for x in across],
        "y": [plotted(y) for y in down],
        "z": [[cells.get((x, y)) for x in across] for y in down],
        "colorscale": [list(step) for step in SCALE],
        "texttemplate": "%{z:,.4~r}",
        "hoverongaps": False,
        "hovertemplate": f"%{{z:,.5~r}}{unit} at %{{x}}, %{{y}}{NO_MORE}",
        "showscale": False,
        "showlegend": False,
        "xgap": 2,
        "ygap": 2,
    }
    return Plot(plot.key, plot.title, plot.caption, figure([trace], _axis(axes[0]), _axis(axes[1])))


def _axis(name: str) -> dict[str, Any]:
    return {"type": "category", "title": {"text": plotted(name)}, "showgrid": False}

"""The latency plot by percentile, as HdrHistogram's tools draw it: on the horizontal axis the share
of messages that took longer, on a logarithmic scale, so that the rare slow ones can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pubstorm.contract.histogram import Histogram, bucket_upper_ns
from pubstorm.quantities import shortened
from pubstorm.report.plot import (
    DASHES,
    GRID,
    HOVER,
    NO_MORE,
    Plot,
    figure,
    looks,
    plotted,
    value_axis,
)
from pubstorm.result import HistogramPair, Result

NS_IN_MS = 1e6
SOLID, DOT = DASHES.index("solid"), DASHES.index("dot")
STEP = 1.02
"""Points of a curve lie at least this factor apart on the horizontal axis."""


def percentile_plot(result: Result) -> Plot | None:
    """Every latency of the run as a curve; None where none was measured."""
    found = [
        (number, f"{name}, from {since}", histogram, dash)
        for number, (name, pair) in enumerate(_pairs(result))
        for since, histogram, dash in (
            ("scheduled", pair.intended, SOLID),
            ("sent", pair.actual, DOT),
        )
        if histogram.count
    ]
    if not found:
        return None
    own = looks((number, dash) for number, _, _, dash in found)
    curves = [
        curve(name, histogram, look)
        for (_, name, histogram, _), look in zip(found, own, strict=True)
    ]
    furthest = max(curve["x"][-1] for curve in curves)
    return Plot(
        key="percentiles",
        title="Latency by percentile",
        caption="At 99 %, the height of a curve is the time that 99 of 100 messages did not "
        "exceed. Further right are the rare slow ones, up to the slowest of all. Solid: from the "
        "scheduled instant. Dotted: from the instant it was sent, which hides the "
        "sender's wait.",
        figure=figure(
            curves, percentile_axis(furthest), value_axis("latency (ms, logarithmic)", log=True)
        ),
        part="latency",
    )


def _pairs(result: Result) -> Iterator[tuple[str, HistogramPair]]:
    for flow in result.flows:
        yield f"{flow.source} → {flow.to}", flow.histogram_ns
    for name, population in result.populations.items():
        yield f"{name} acks", population.ack_histogram_ns


def curve(name: str, histogram: Histogram, look: tuple[str, str]) -> dict[str, Any]:
    """Returns the line of a histogram; `look` is its colour and its dash."""
    hue, dash = look
    rarities, latencies = points(histogram)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plotted(name),
        "x": [shortened(each) for each in rarities],
        "y": [shortened(each / NS_IN_MS) for each in latencies],
        "line": {"color": hue, "width": 1.8, "dash": dash, "shape": "vh"},
        "hovertemplate": f"{HOVER} ms, exceeded by 1 in %{{x:,.4~r}}{NO_MORE}",
    }


def points(histogram: Histogram) -> tuple[list[float], list[float]]:
    """The curve of a histogram that holds something: 1/(1-q) and the quantile in nanoseconds. The
    largest of n lies at n, for nothing rarer was seen."""
    rarities: list[float] = [1.0]
    latencies: list[float] = [max(histogram.min_ns, 1)]
    below = 0
    for index, count in histogram.buckets:
        below += count
        rarity = histogram.count / max(histogram.count - below, 1)
        if rarity >= rarities[-1] * STEP:
            rarities.append(rarity)
            latencies.append(max(min(bucket_upper_ns(index), histogram.max_ns), 1))
    if latencies[-1] < histogram.max_ns:
        rarities.append(histogram.count)
        latencies.append(histogram.max_ns)
    return rarities, latencies


def percentile_axis(furthest: float) -> dict[str, Any]:
    """Returns the horizontal axis, with ticks at 0, 50, 90, 99 … %."""
    ticks, labels, power = [1, 2], ["0", "50 %"], 1
    while 10**power <= 10 * furthest:
        ticks.append(10**power)
        digits = f"{100 - 100 / 10**power:.{max(power - 2, 0)}f}"
        labels.append(f"{digits} %")
        power += 1
    return {
        "type": "log",
        "title": {
            "text": "percentile of messages (logarithmic towards the slowest)",
            "standoff": 8,
        },
        "tickvals": ticks,
        "ticktext": labels,
        "gridcolor": GRID,
    }

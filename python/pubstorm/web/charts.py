"""The lines of the live page: which of them shows a sample."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pubstorm.contract.source import Sample, Source
from pubstorm.metrics.charts import LIVE, SCALES, ChartLine, lines_of
from pubstorm.report.plot import PALETTE

SOURCES_MAX = 8
"""Populations or brokers that have lines of their own in a chart."""
DRAWN = tuple(each for chart in LIVE for each in lines_of("live", chart.key))
"""Lines in the order of their colours."""


@dataclass(frozen=True)
class LineKey:
    """One line of the page."""

    drawn: ChartLine
    source: str
    """Name of the source; empty if the line sums several up."""

    @property
    def label(self) -> str:
        """Name of the line."""
        return f"{self.source} {self.drawn.line.label}".strip()

    @property
    def scale(self) -> float:
        """Factor from the unit of the metric to the one that the chart shows."""
        return SCALES.get(self.drawn.unit, 1.0)


class Sorter:
    """Finds the line of each sample."""

    def __init__(self, populations: Collection[str]) -> None:
        """`populations` are those that charts show: whole ones, without shares."""
        self._populations = frozenset(populations)
        self._found: dict[tuple[Source, str], LineKey | None] = {}
        self._sources: dict[tuple[str, str], list[str]] = {}

    def line_of(self, sample: Sample) -> LineKey | None:
        """Returns the line that shows a sample; None if none does."""
        name = (sample.source, sample.metric)
        if name not in self._found:
            self._found[name] = self._line(*name)
        return self._found[name]

    def kind_of(self, source: Source) -> str:
        """Returns the kind of a source in the charts, which show neither shares nor bridges."""
        match source.kind:
            case "agent" | "host" as kind:
                return kind
            case "population":
                return "population" if source.name in self._populations else "other"
        return "other" if source.kind == "bridge" else "watched"

    def _line(self, source: Source, metric: str) -> LineKey | None:
        kind = self.kind_of(source)
        lines = (each for each in DRAWN if each.kind == kind and each.sample == metric)
        drawn = next(lines, None)
        if drawn is None:
            return None
        if not drawn.line.each:
            return LineKey(drawn, "")
        shown = self._sources.setdefault((drawn.line.chart, metric), [])
        if len(shown) >= SOURCES_MAX:
            return None
        shown.append(source.name)
        return LineKey(drawn, source.name)


def coloured(keys: Collection[LineKey]) -> Iterator[tuple[LineKey, str]]:
    """Lines with their colours, chart by chart."""
    for chart in LIVE:
        own = [key for key in keys if key.drawn.line.chart == chart.key]
        own.sort(key=lambda key: (key.source, DRAWN.index(key.drawn)))
        for number, key in enumerate(own):
            yield key, PALETTE[number % len(PALETTE)]

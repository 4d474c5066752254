"""The console of rich that all tables and the live display are drawn on."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pubstorm.output import visible


class PlainConsole(Console):
    """A console that shows control characters of the drawn text instead of obeying them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments, without control characters that are not the console's own."""
        for segment in super().render(renderable, options):
            if segment.control is None and (text := visible(segment.text)) != segment.text:
                yield Segment(text, segment.style)
            else:
                yield segment

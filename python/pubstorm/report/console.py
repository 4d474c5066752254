"""The console of rich that all tables and the live display are drawn on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pubstorm.output import visible

ColorSystem = Literal["auto", "standard", "256", "truecolor", "windows"]
"""Names that rich has for what a terminal can show."""


class PlainConsole(Console):
    """A console that shows control characters of the drawn text instead of obeying them. With
    NO_COLOR in the environment it draws without styles: no colour, nothing dim or bold."""

    def __init__(self, *, color_system: ColorSystem | None = "auto", **more: Any) -> None:
        system = None if os.environ.get("NO_COLOR") else color_system
        super().__init__(color_system=system, **more)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments, without control characters that are not the console's own."""
        for segment in super().render(renderable, options):
            if segment.control is None and (text := visible(segment.text)) != segment.text:
                yield Segment(text, segment.style)
            else:
                yield segment

"""Tables over a series: a row for each value that its steps vary, columns taken from its variants.
The docstrings are the reference that users read. It knows no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Text


class TableColumn(Part):
    """A column of a table over a series: a metric of one variant, or what its steps vary."""

    SHORT_FOR: ClassVar[str | None] = "metric"

    metric: Text
    """A metric or word as in `table`, or what the steps vary: `clients`, or its whole path."""
    variant: Text | None = None
    """Whose metric it is, where the sweep has variants."""

    def shows_step(self, paths: Iterable[str] | Mapping[str, str]) -> bool:
        """Whether it shows what all variants of a step have in common: a value that varies, given
        the paths with what they are called, or the step itself."""
        called = paths.values() if isinstance(paths, Mapping) else ()
        return self.metric == STEP or self.metric in {*paths, *called}


STEP = "step"
"""The column that shows what a step is called, without the variant."""

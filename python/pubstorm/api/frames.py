"""Tables of a result as DataFrames of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pubstorm.errors import UsageError
from pubstorm.report.data import data_table
from pubstorm.result import RunResult, SearchResult, Series

if TYPE_CHECKING:
    import pandas


def frame(stored: RunResult | Series | SearchResult, folder: Path, name: str) -> pandas.DataFrame:
    """Returns a table by its name. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError("frames need pandas", "pip install 'pubstorm[pandas]'") from None
    return pandas.DataFrame(data_table(stored, folder, name))

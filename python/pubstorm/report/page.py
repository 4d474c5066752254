"""A page as one file that fetches nothing: templates, style, script and Plotly are all in it. It
knows no run."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pubstorm.report.plot import Plot

LIBRARY_LEVEL = 4
"""Level of compression: half the time of level 9, and 4 % longer."""


def page(template: str, **parts: Any) -> str:
    """A template, filled in. Everything is escaped but what is Markup."""
    environment = Environment(
        loader=PackageLoader("pubstorm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(parts)


def library() -> str:
    """Plotly, compressed, as base64. The browser unpacks it, and the page has half the size. It is
    made once: a second caller waits for the first."""
    with _packing:
        return _library()


_packing = Lock()


@cache
def _library() -> str:
    packed = gzip.compress(get_plotlyjs().encode(), LIBRARY_LEVEL, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def figures(plots: Sequence[Plot]) -> Markup:
    """The figures of plots by their key, as JSON for a script element."""
    return script_json({plot.key: {**plot.figure, "linked": plot.linked} for plot in plots})


def script_json(value: object) -> Markup:
    """JSON that no text in it can end early: a script element ends at `</`."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)

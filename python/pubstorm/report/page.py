"""A report as an HTML page: one file with style, script and Plotly, which fetches nothing.

Plotly, packed, and compiled templates are the same in all pages. They are kept between commands."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from pubstorm.output import without_controls
from pubstorm.report.document import Document, mark, word
from pubstorm.report.plot import Plot

LIBRARY_LEVEL = 4
"""Level of compression: half the time of level 9, and 4 % longer."""


def page(
    document: Document,
    plots: Sequence[Plot] = (),
    template: str = "experiment.html.j2",
    **parts: Any,
) -> str:
    """Returns the text of `report.html`. `plots` and `parts` are those that only this template
    knows. Everything is escaped except Markup."""
    own = [plot for section in document.plots for plot in section.plots]
    every = [*own, *(plot for item in document.items for plot in item.plots), *plots]
    rendered = _environment().get_template(template)
    text = rendered.render(
        title=document.title,
        document=document,
        mark=mark,
        word=word,
        figures=_figures(every),
        library=library() if every else "",
        **parts,
    )
    return without_controls(text)


class _Compiled(BytecodeCache):
    """Keeps compiled templates, each with a checksum of its source."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills a template's bucket, if it is kept."""
        if (found := kept(f"template-{bucket.key}")) is not None:
            bucket.bytecode_from_string(found)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps a template."""
        keep(f"template-{bucket.key}", bucket.bytecode_to_string())


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("pubstorm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
    )


def library() -> str:
    """Returns Plotly, compressed, as base64, which the browser unpacks: half the size of the page.
    A second caller waits for the first."""
    with _packing:
        return _library()


_packing = Lock()


@cache
def _library() -> str:
    name = f"plotly-{get_plotlyjs_version()}-{LIBRARY_LEVEL}"
    if (packed := kept(name)) is None:
        source = get_plotlyjs().encode()
        packed = base64.b64encode(gzip.compress(source, LIBRARY_LEVEL, mtime=0))
        keep(name, packed)
    return packed.decode("ascii")


def _figures(plots: Sequence[Plot]) -> Markup:
    return script_json({plot.key: {**plot.figure, "linked": plot.linked} for plot in plots})


def script_json(value: object) -> Markup:
    """Returns JSON for a script element, which ends at `</`: no text in the JSON can end it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def kept(name: str) -> bytes | None:
    """Returns the content of this name; None if there is none, or if it is another user's, whose
    code is not to run here."""
    with suppress(OSError, RuntimeError), (_folder() / name).open("rb") as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            return file.read()
    return None


def keep(name: str, content: bytes) -> None:
    """Keeps a content, unless its folder cannot be written. Another command sees all or nothing."""
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            fresh = Path(file.name)
            try:
                file.write(content)
                file.flush()
                fresh.replace(folder / name)
            except OSError:
                fresh.unlink()


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pubstorm")

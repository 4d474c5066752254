"""The deputy as one file, which any host with Python can run."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

NAME = "pubstorm-deputy.pyz"
"""Name of the file."""
MODULES = (
    "errors",
    "output",
    "host/children",
    "host/counters",
    "host/deputy/servers",
    "host/deputy/__main__",
    "host/ends",
    "host/log_tail",
    "host/machine",
    "host/members",
    "host/ports",
    "host/proc",
    "host/process_tree",
    "host/programs",
    "host/sockets",
    "host/spawn_errors",
)
"""Modules of the deputy. They import nothing that does not come with Python."""
PACKAGES = ("", "host/", "host/deputy/")
MAIN = "from pubstorm.host.deputy.__main__ import main\nmain()\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)


def pack(path: Path) -> None:
    """Writes the deputy to a file; the same modules make the same file."""
    content = io.BytesIO()
    root = Path(__file__).parents[2]
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in MODULES:
            text = (root / f"{module}.py").read_text()
            archive.writestr(zipfile.ZipInfo(f"pubstorm/{module}.py", EARLIEST), text)
        for package in PACKAGES:
            archive.writestr(zipfile.ZipInfo(f"pubstorm/{package}__init__.py", EARLIEST), "")
        archive.writestr(zipfile.ZipInfo("__main__.py", EARLIEST), MAIN)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.getvalue())

"""Programs that are installed on this machine."""

from __future__ import annotations

import shutil

MORE_FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/bin"
"""Folders outside a user's PATH where Debian has brokers."""
NOT_WRAPPED = {"rabbitmq-server": "/usr/lib/rabbitmq/bin"}
"""Folders of programs that Debian has a wrapper for in the PATH, which changes the user."""


def find(program: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    real = shutil.which(program, path=NOT_WRAPPED.get(program, ""))
    return real or shutil.which(program) or shutil.which(program, path=MORE_FOLDERS)

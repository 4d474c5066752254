"""Pubstorm finds out what a publish/subscribe system can take, and says so with evidence."""

import os
from typing import TYPE_CHECKING, Any

# pydantic looks through all installed packages for plug-ins, a twentieth of the time to start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if TYPE_CHECKING:
    from pubstorm.api import PopulationFigures, Quantity, Result, StageFigures, load, run

    __version__: str

__all__ = ["PopulationFigures", "Quantity", "Result", "StageFigures", "load", "run"]


def __getattr__(name: str) -> Any:
    """Imports a part of the package when a program asks for it, since few commands need it."""
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from pubstorm import api

    return getattr(api, name)


def _version() -> str:
    """Reads the version when it is asked for, since few commands do."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pubstorm")
    except PackageNotFoundError:
        return "unknown"

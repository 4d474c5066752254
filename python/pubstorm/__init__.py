"""Pubstorm finds out what a publish/subscribe system can take, and says so with evidence."""

import os
from typing import TYPE_CHECKING

# pydantic looks through all installed packages for plug-ins, a twentieth of the time to start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Reads the version when it is asked for, since few commands do."""
        if name != "__version__":
            raise AttributeError(name)
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("pubstorm")
        except PackageNotFoundError:
            return "0.1.0"

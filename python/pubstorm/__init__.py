"""Pubstorm finds out what a publish/subscribe system can take, and says so with evidence."""

from typing import TYPE_CHECKING

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

"""Pubstorm finds out what a publish/subscribe system can take, and says so with evidence."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pubstorm")
except PackageNotFoundError:
    __version__ = "0.1.0"

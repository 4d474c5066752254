"""Programs beside the brokers that a run starts: Redis with the users of the brokers, and programs
of the user, such as a bridge between two brokers. The docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from pubstorm.quantities import UnfitError
from pubstorm.scenario.base import AnyOf, Variant
from pubstorm.scenario.fields import HostLabel, Name, PathText, PortNumber, Text, Words


def plain_settings(value: object) -> object:
    """Keeps every setting a plain value or a list of them."""
    settings = {} if value is None else value
    if not isinstance(settings, dict):
        raise UnfitError(value, "is a mapping of settings")
    for key, setting in settings.items():
        items = setting if isinstance(setting, list) else [setting]
        if not all(isinstance(item, (str, int, float, bool)) for item in items):
            raise UnfitError(setting, f"for {key} is a plain value or a list of them")
        if any("\n" in part for part in (key, *map(str, items))):
            raise UnfitError(setting, f"for {key} is a value on one line")
    return settings


Settings = Annotated[Mapping[str, Any], BeforeValidator(plain_settings)]


def _seed(value: object) -> object:
    if value is None or isinstance(value, (bool, list, tuple)):
        return value
    raise UnfitError(value, "are true, false and a list of populations")


SEED_JSON = WithJsonSchema(
    {
        "title": "flag or list",
        "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
    }
)


class Service(Variant):
    """A program beside the brokers that the run starts and stops itself; a plain text is the
    kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"
    HINTS: ClassVar[Mapping[str, str]] = {
        "command": "kind: command is any program, such as a bridge between brokers",
        "environment": "only kind: command has variables",
        "ready": "the run knows by itself when this kind is ready",
        "settings": "command and environment have the options of the program",
        "seed": "the run writes users to kind: redis only",
        "binary": "the program is the first word of command",
        "port": "the command has the ports of the program",
        "hosts": "a command runs on the controller's host",
    }

    kind: str
    """The program."""

    @property
    def fixed_port(self) -> int | None:
        """Port that the scenario gives it; None if it takes a free one, or none."""
        return self.port if isinstance(self, RedisServer) else None

    @property
    def label(self) -> str | None:
        """Label of its hosts; None for the controller's host."""
        return self.hosts if isinstance(self, RedisServer) else None

    @property
    def users(self) -> tuple[str, ...] | bool | None:
        """Populations whose users the run writes to it; None: that follows from the brokers."""
        return self.seed if isinstance(self, RedisServer) else False

    @property
    def seeded_populations(self) -> tuple[str, ...] | None:
        """Names of the populations whose users are written, where it is not all of them."""
        return self.users if isinstance(self.users, tuple) else None


class RedisServer(Service):
    """Redis, which has to be installed, and keeps nothing on the disk."""

    kind: Literal["redis"]
    """`redis`."""
    port: PortNumber | None = None
    """Its port. Default: a free one."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts that it is on (`ray start --labels pubstorm=LABEL`), or the
    address of one. Default: the controller's host. With `fleet.on: local`, everything is on this
    host."""
    binary: PathText | None = None
    """Path of the program; a relative one is from the folder of the scenario file. Default: the one
    that is installed."""
    settings: Settings = Field(default_factory=dict)
    """Settings in its own words: lines of `redis.conf` such as `maxmemory: 100mb`."""
    seed: Annotated[tuple[Name, ...] | bool | None, BeforeValidator(_seed), SEED_JSON] = None
    """The run writes the users of the populations, their passwords and their rights to the service
    before the brokers start, as `pubstorm seed` does; a list names the populations. Default: all of
    them if a broker's `auth` names the service."""


class Program(Service):
    """A program of the user, such as a bridge that carries messages from one broker to another. It
    starts after the brokers and ends before them. If it ends in between, the run fails."""

    kind: Literal["command"]
    """`command`."""
    command: Words = ()
    """The program and its arguments; relative paths are from the folder of the scenario file. Texts
    in them and in `environment` are replaced: `{NAME.host}` and `{NAME.port}` of a broker, and
    `{NAME.PROTOCOL}`, its port for another protocol; `{folder}`, a folder of the program's own.
    `{{` and `}}` are braces. The program stays in the foreground, and ends at SIGTERM."""
    environment: Mapping[Name, Text] = Field(default_factory=dict)
    """Environment variables of the program, beside those of the run."""
    ready: Text = ""
    """A text that the program prints when it is ready: the first stage begins afterwards. Default:
    the first stage does not wait."""


def _kind_of(value: object) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", value)
    return f"kind {kind}" if isinstance(kind, str) else None


AnyService = Annotated[
    Annotated[RedisServer, Tag("kind redis")] | Annotated[Program, Tag("kind command")],
    Discriminator(_kind_of),
    AnyOf(),
]
"""A service of any kind."""

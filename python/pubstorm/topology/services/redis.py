"""Redis as a service of a run: on the loopback address, without a copy on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

from pubstorm.host.ports import LOOPBACK
from pubstorm.scenario.monitors import Redis
from pubstorm.topology.broker import ServerProcess


class RedisService(ServerProcess):
    """`redis-server` as a child process."""

    noun: ClassVar[str] = "service"
    kind: ClassVar[str] = "redis"
    programs: ClassVar[Sequence[str]] = ("redis-server",)
    states_version: ClassVar[tuple[str, str] | None] = ("--version", r" v=(\S+)")

    async def configure(self, program: str) -> Sequence[str]:
        """Writes redis.conf, and reads nothing else."""
        self.port = self.place.port or await self.place.machine.free_port()
        ours: dict[str, object] = {
            "bind": self.host,
            "port": self.port,
            "dir": self.folder.absolute(),
            "daemonize": False,
            "logfile": "",
        }
        if self.host != LOOPBACK:
            # Without it, Redis without a password answers loopback addresses only.
            ours = {"protected-mode": False, **self.place.settings, **ours}
        path = self.write("redis.conf", configuration(self.place.settings, ours))
        return (program, str(path))

    @property
    def url(self) -> str:
        """Address for clients, after the start."""
        password = self.place.settings.get("requirepass")
        login = "" if password is None else f":{quote(str(password), safe='')}@"
        return f"redis://{login}{self.host}:{self.port}/0"

    @property
    def watched(self) -> Redis:
        """The service as monitors read it."""
        return Redis(url=self.url)


def configuration(settings: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """The text of redis.conf: the user's settings win over our defaults, not over `ours`. A list
    of values becomes a line each."""
    defaults: dict[str, object] = {"save": "", "appendonly": False, "tcp-backlog": 4096}
    lines = [
        f"{key} {_written(item)}"
        for key, value in {**defaults, **settings, **ours}.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or '""'

"""Redis as a service of a run: on the loopback address, without a copy on the disk, gone with the
run. It does not know what is kept in it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

from pubstorm.errors import TopologyError
from pubstorm.topology.adapters.program import stated_version
from pubstorm.topology.broker import ServerProcess
from pubstorm.topology.ports import free_port


class RedisService(ServerProcess):
    """`redis-server` as a child process."""

    noun: ClassVar[str] = "service"
    kind: ClassVar[str] = "redis"

    def program(self) -> str:
        """The one that is given, or that is installed."""
        found = self.place.binary or find_redis()
        if found is None:
            text = f"service {self.name}: redis-server is not installed"
            raise TopologyError(text, "apt-get install redis-server", exit_code=2)
        return found

    async def version_of(self, program: str) -> str:
        """The version that the program states."""
        return await stated_version(program, "--version", r" v=(\S+)")

    def configure(self, program: str) -> Sequence[str]:
        """Writes redis.conf, and reads nothing else."""
        self.port = self.place.port or free_port()
        ours: dict[str, object] = {
            "bind": self.host,
            "port": self.port,
            "dir": self.folder.absolute(),
            "daemonize": False,
            "logfile": "",
        }
        path = self.write("redis.conf", configuration(self.place.settings, ours))
        return (program, str(path))

    @property
    def url(self) -> str:
        """Where clients find it, once it is started."""
        password = self.place.settings.get("requirepass")
        login = "" if password is None else f":{quote(str(password), safe='')}@"
        return f"redis://{login}{self.host}:{self.port}/0"


def find_redis() -> str | None:
    """The program."""
    return shutil.which("redis-server") or shutil.which("redis-server", path="/usr/sbin:/usr/bin")


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

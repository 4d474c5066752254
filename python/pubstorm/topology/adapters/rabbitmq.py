"""RabbitMQ with its MQTT plugin. Everything of it is in its folder. The node is told the port of
its distribution and looks for no port mapper, so that no `epmd` is started or left; on that port it
is asked whether it is up, as the tools of RabbitMQ do. With federation it has a virtual host for
each customer, and is ready when all links are running.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

from pubstorm.scenario.topology import Federation
from pubstorm.shortage import CANNOT_START
from pubstorm.topology.adapters.program import installed
from pubstorm.topology.broker import BrokerProcess, Place
from pubstorm.topology.ports import LOOPBACK, free_port

MAIN = "/"
"""The broker's own virtual host."""
USER = PASSWORD = "guest"
"""Who may do everything, in every virtual host; as in a RabbitMQ that is newly installed."""
START_S = 60.0
VHOST_START_S = 1.0
"""How long it may take to start, and more for each virtual host: ten times what two idle cores
take."""
ASK_EVERY_S = 0.1
ANSWER_S = 10
"""How long an answer of the node may take; whole seconds."""
DEBIAN = "/usr/lib/rabbitmq/bin"
"""Where Debian keeps the program; the one in the PATH is a wrapper that changes the user."""
ERROR, ERRORS = " [error] ", 4
PROMETHEUS = "rabbitmq_prometheus"
UP = re.compile(r'{ok, *{true, *"([^"]*)", *(\d+)}}')


class RabbitmqBroker(BrokerProcess):
    """`rabbitmq-server` as a child process: the Erlang machine itself, not a shell before it."""

    kind: ClassVar[str] = "rabbitmq"
    has_helpers: ClassVar[bool] = True
    says_taken: ClassVar[str] = "eaddrinuse"
    stop_grace_s: ClassVar[float] = 30.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        vhosts = place.federation.vhosts if place.federation else 0
        self.ready_timeout_s = START_S + VHOST_START_S * vhosts
        self._links = sum(1 for _ in _links(place.federation)) if place.federation else 0
        self._running = 0
        self._node_port = self._metrics_port = 0

    def program(self) -> str:
        """The one that is given, or that is installed."""
        found = self.place.binary or find_rabbitmq()
        # Its node is asked with a program of Erlang's, which comes with it.
        found = found if shutil.which("erl_call") else None
        return installed(found, self.name, "rabbitmq-server", instead="mosquitto")

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """The node says it when it is up."""
        return ""

    def configure(self, program: str) -> Sequence[str]:
        """Writes configuration, plugins and definitions."""
        self.port = self.observer_port = self.place.port or free_port()
        self._node_port = free_port()
        ours: dict[str, object] = {"mqtt.listeners.tcp.1": f"{self.host}:{self.port}"}
        if self.place.federation is not None:
            definitions = json.dumps(definitions_of(self.place.federation), indent=1)
            ours["load_definitions"] = self.write("definitions.json", definitions)
        if PROMETHEUS in self.place.plugins:
            self._metrics_port = free_port()
            ours |= {"prometheus.tcp.ip": LOOPBACK, "prometheus.tcp.port": self._metrics_port}
        self.write("rabbitmq.conf", configuration(self.place.settings, ours))
        self.write("enabled_plugins", f"[{','.join(plugins_of(self.place))}].\n")
        return (program,)

    def environment(self) -> Mapping[str, str]:
        """Where everything of it is, and that it is the Erlang machine that is started."""
        folder = self.folder.absolute()
        # For the helpers of the node too: one of them would start the port mapper each minute.
        no_port_mapper = f"-start_epmd false -erl_epmd_port {self._node_port}"
        listens = "-kernel inet_dist_use_interface {" + self.host.replace(".", ",") + "}"
        return {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"{self.name}@localhost",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-sname {self.name}@localhost",
            "ERL_AFLAGS": f"{no_port_mapper} {listens}",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    async def ready(self) -> bool:
        """Waits until the node says that it is up with all its links, and the port answers."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.ready_timeout_s
        while not self.gone() and loop.time() < deadline_s:
            found = UP.search(await self._ask(self._question()))
            if found is not None:
                self.version, self._running = found[1], int(found[2])
                if self._running >= self._links:
                    return await self.accepts(self.port)
            await asyncio.sleep(ASK_EVERY_S)
        return False

    def not_ready(self) -> str:
        """How many links are missing."""
        if self.version and self._running < self._links:
            return f"had {self._running} of {self._links} federation links running"
        return super().not_ready()

    def last_words(self) -> str:
        """The first errors of its log: what follows them is the fall of everything else."""
        errors = [line.partition("> ")[2] for line in self.log_text().splitlines() if ERROR in line]
        return "\n".join([words for words in errors if words][:ERRORS]) or super().last_words()

    @property
    def metrics_url(self) -> str | None:
        """What the plugin shows."""
        return f"http://{LOOPBACK}:{self._metrics_port}/metrics" if self._metrics_port else None

    def _question(self) -> str:
        """Erlang: whether the node is up, its version, and how many links are running."""
        running = "[x || S <- rabbit_federation_status:status(), {status, running} <- S]"
        links = f"length({running})" if self._links else "0"
        up = f"{{true, rabbit_misc:version(), {links}}}"
        return f"case rabbit:is_running() of true -> {up}; false -> false end.\n"

    async def _ask(self, question: str) -> str:
        """What the node answers; empty if it does not."""
        erl_call = shutil.which("erl_call") or "erl_call"
        node = f"{self.host}:{self._node_port}"
        words = (erl_call, "-address", node, "-R", "-timeout", str(ANSWER_S), "-e")
        try:
            process = await asyncio.create_subprocess_exec(
                *(*self.place.prefix, *words),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={**os.environ, "HOME": str(self.folder.absolute())},
            )
        except CANNOT_START:
            return ""
        answer, _ = await process.communicate(question.encode())
        return answer.decode(errors="replace")


def find_rabbitmq() -> str | None:
    """The program itself."""
    return shutil.which("rabbitmq-server", path=DEBIAN) or shutil.which("rabbitmq-server")


def plugins_of(place: Place) -> list[str]:
    """The plugins that are enabled, each once."""
    own = ["rabbitmq_mqtt", *(["rabbitmq_federation"] if place.federation else [])]
    return list(dict.fromkeys([*own, *place.plugins]))


def configuration(settings: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """The text of rabbitmq.conf: the user's settings win over our defaults, not over `ours`."""
    defaults: dict[str, object] = {
        "mqtt.allow_anonymous": True,
        "loopback_users": "none",
        "log.file": False,
        "log.console": True,
        "log.console.use_colors": "off",
    }
    if not any(key.startswith("listeners.tcp") for key in settings):
        defaults["listeners.tcp"] = "none"
    lines = {**defaults, **settings, **ours}
    return "".join(f"{key} = {_written(value)}\n" for key, value in lines.items())


def definitions_of(federation: Federation) -> Mapping[str, object]:
    """Virtual hosts, who may do what in them, and the links between them."""
    vhosts = [MAIN, *(_customer(number) for number in range(federation.vhosts))]
    links = list(_links(federation))
    return {
        "users": [{"name": USER, "password": PASSWORD, "tags": "administrator"}],
        "vhosts": [{"name": vhost} for vhost in vhosts],
        "permissions": [
            {"user": USER, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
            for vhost in vhosts
        ],
        "parameters": [
            {
                "component": "federation-upstream",
                "vhost": vhost,
                "name": "main" if upstream == MAIN else upstream,
                # Without a host it is a link inside of the node.
                "value": {"uri": f"amqp:///{quote(upstream, safe='')}"},
            }
            for vhost, upstream in links
        ],
        "policies": [
            {
                "vhost": vhost,
                "name": "federation",
                "pattern": r"^amq\.topic$",
                "apply-to": "exchanges",
                "definition": {"federation-upstream-set": "all"},
            }
            for vhost in dict.fromkeys(vhost for vhost, _ in links)
        ],
    }


def _links(federation: Federation) -> Iterator[tuple[str, str]]:
    """Pairs of the virtual host that messages go to and the one that they come from."""
    for number in range(federation.vhosts):
        if federation.direction in {"out", "both"}:
            yield MAIN, _customer(number)
        if federation.direction in {"in", "both"}:
            yield _customer(number), MAIN


def _customer(number: int) -> str:
    return f"customer-{number}"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

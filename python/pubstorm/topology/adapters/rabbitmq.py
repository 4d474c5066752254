"""RabbitMQ with its MQTT plugin and a port for AMQP, and all its files in its folder. Pubstorm sets
the port of its distribution, so that no `epmd` is started or left, and checks there that the node
is up. With federation it has a virtual host for each customer, and is ready when all links are
running; in a cluster, when all nodes agree. It gets the virtual hosts of clients before they
connect."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from pubstorm.errors import TopologyError
from pubstorm.host.preflight.need import Appetite
from pubstorm.scenario.topology import AMQP1_PLUGIN, WEBSOCKET_PATH, Federation
from pubstorm.topology.broker import BrokerProcess, Cluster, Place

MAIN = "/"
"""The broker's own virtual host."""
USERS_FILE = "definitions.local.path"
SALT_BYTES = 4
HASHING = "rabbit_password_hashing_sha256"
USER = PASSWORD = "guest"
"""The user that may do everything, in every virtual host, as in a RabbitMQ that is newly
installed."""
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
"""Rights of a user."""
START_S = 60.0
VHOST_START_S, USERS_B_PER_S = 1.0, 25_000
"""Longest start, with more for each virtual host and for the file of users: ten times the duration
on two idle cores."""
ASK_EVERY_S = 0.1
ANSWER_S = 10
"""Longest wait for an answer of the node, in whole seconds."""
ERROR, ERRORS = " [error] ", 4
PROMETHEUS = "rabbitmq_prometheus"
UP = re.compile(r'{ok, *{true, *"([^"]*)", *(\d+), *(\d+)}}')
AGREE = """\
Running = lists:sort(rabbit_nodes:all_running()),
Sees = fun(Node) -> rpc:call(Node, rabbit_nodes, all_running, [], 5000) end,
Agreed = [N || N <- Running, S <- [Sees(N)], is_list(S), lists:sort(S) =:= Running],
"""
"""Erlang: the nodes that say the same of which ones are running."""
TAKE_PART = """\
catch case {whereis(mqtt_node), ra_directory:uid_of(coordination, mqtt_node)} of
  {undefined, Known} when Known =/= undefined ->
    ra:restart_server(coordination, {mqtt_node, node()});
  _ -> ok
end,
"""
"""Erlang: a node that comes back votes at once on who holds which client id. By itself it waits
until its peers have a leader, which the other of two cannot become alone: for hours."""

HOSTS_AT_ONCE, HOSTS_ANSWER_S = 20, 60
"""Virtual hosts that the node is asked to make at once, and the longest wait for them, in whole
seconds."""
MAKE_HOSTS = """\
Users = [U || [{{user, U}} | _] <- rabbit_auth_backend_internal:list_users()],
Allow = fun(U, H) ->
  rabbit_auth_backend_internal:set_permissions(U, H, <<".*">>, <<".*">>, <<".*">>, <<"pubstorm">>)
end,
Make = fun(H) ->
  case rabbit_vhost:exists(H) of true -> ok; false -> rabbit_vhost:add(H, <<"pubstorm">>) end,
  [Allow(U, H) || U <- Users]
end,
lists:foreach(Make, [{hosts}]).
"""
"""Erlang: makes virtual hosts, as `rabbitmqctl add_vhost` and `set_permissions` do."""


class RabbitmqBroker(BrokerProcess):
    """`rabbitmq-server` as a child process: the Erlang machine itself, not a shell before it."""

    kind: ClassVar[str] = "rabbitmq"
    appetite: ClassVar[Appetite] = Appetite(
        200 * 2**20, 40, threads_per_core=4, client_bytes=300_000
    )
    """A client of RabbitMQ 3.10 with ten filters takes 290 kB on a node of a cluster."""
    programs: ClassVar[Sequence[str]] = ("rabbitmq-server", "erl_call")
    """Its node is asked with a program of Erlang's, which comes with it."""
    instead: ClassVar[str] = ", or use kind: mosquitto"
    has_helpers: ClassVar[bool] = True
    says_taken: ClassVar[str] = "eaddrinuse"
    stop_grace_s: ClassVar[float] = 30.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._links = sum(1 for _ in _links(place.federation)) if place.federation else 0
        self._was_up, self._running, self._agreed = False, 0, 0
        self._node_port = self._metrics_port = 0
        if place.cluster is not None:
            place.cluster.join(self.name, lambda: bool(self.pid) and not self.gone())

    @classmethod
    def users_text(cls, passwords: Mapping[str, str]) -> bytes:
        """Returns the definitions that the broker reads at its start: users who may do
        everything."""
        users = [
            {"name": user, "password_hash": hashed(word), "hashing_algorithm": HASHING, "tags": ""}
            for user, word in passwords.items()
        ]
        permissions = [{"user": user, "vhost": MAIN, **EVERYTHING} for user in passwords]
        found = {"users": users, "vhosts": [{"name": MAIN}], "permissions": permissions}
        return json.dumps(found).encode()

    @classmethod
    def users_settings(cls, path: str) -> Mapping[str, object]:
        """Returns the lines of the configuration about the definitions; nodes of a cluster read
        them once for all."""
        return {
            "mqtt.allow_anonymous": False,
            "definitions.import_backend": "local_filesystem",
            USERS_FILE: path,
            "definitions.skip_if_unchanged": True,
        }

    async def start(self) -> None:
        """In a cluster, returns when all nodes up to this one are running; see `Cluster`."""
        if self.place.cluster is None:
            await super().start()
            return
        async with self.place.cluster.turn(self.name):
            await super().start()

    async def configure(self, program: str) -> Sequence[str]:
        """Writes configuration, plugins and definitions."""
        self.ready_timeout_s = _longest_start_s(self.place)
        self.port = self.observer_port = self.place.port or await self._free_port()
        ours: dict[str, object] = {"mqtt.listeners.tcp.1": f"{self.host}:{self.port}"}
        if self.place.cluster is None:
            self._node_port = await self._free_port()
        else:
            ours |= await self._joined(self.place.cluster)
        if self.place.federation is not None:
            definitions = json.dumps(definitions_of(self.place.federation), indent=1)
            ours["load_definitions"] = self.write("definitions.json", definitions)
        if await self.open_websocket():
            ours |= {
                "web_mqtt.tcp.ip": self.host,
                "web_mqtt.tcp.port": self.websocket_port,
                "web_mqtt.ws_path": WEBSOCKET_PATH,
            }
        if PROMETHEUS in self.place.plugins:
            self._metrics_port = await self._free_port()
            ours |= {"prometheus.tcp.ip": self.host, "prometheus.tcp.port": self._metrics_port}
        self.other_ports["amqp"] = await self._free_port()
        if AMQP1_PLUGIN in self.place.plugins:
            self.other_ports["amqp1"] = self.other_ports["amqp"]
        ours["listeners.tcp.pubstorm"] = f"{self.host}:{self.other_ports['amqp']}"
        self.write("rabbitmq.conf", configuration(self.place.settings, ours))
        self.write("enabled_plugins", f"[{','.join(plugins_of(self.place))}].\n")
        return (program,)

    def environment(self) -> Mapping[str, str]:
        """Returns the paths of its files, and the settings of the Erlang machine."""
        folder = self.folder.absolute()
        # For the helpers of the node too: one of them would start the port mapper each minute.
        no_port_mapper = f"-start_epmd false -erl_epmd_port {self._node_port}"
        listens = "-kernel inet_dist_use_interface {" + self.host.replace(".", ",") + "}"
        # A name with an address needs no resolver, but Erlang's long names.
        is_long = self.place.cluster is not None
        node = self._node(self.name) if is_long else f"{self.name}@localhost"
        return {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": node,
            "RABBITMQ_USE_LONGNAME": _written(is_long),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-{'' if is_long else 's'}name {node}",
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
                self.version, self._running, self._agreed = found[1], int(found[2]), int(found[3])
                if self._running >= self._links and self._agreed >= self._nodes:
                    self._was_up = await super().ready()
                    return self._was_up
            await asyncio.sleep(ASK_EVERY_S)
        return False

    async def provide(self, virtual_hosts: Sequence[str]) -> None:
        """Makes virtual hosts that do not exist, in which every user may do everything."""
        for first in range(0, len(virtual_hosts), HOSTS_AT_ONCE):
            some = ", ".join(map(_binary, virtual_hosts[first : first + HOSTS_AT_ONCE]))
            answer = await self._ask(MAKE_HOSTS.format(hosts=some), HOSTS_ANSWER_S)
            if "{ok, ok}" not in answer:
                text = f"broker {self.name} did not make the virtual hosts {some}: {answer}"
                raise TopologyError(text, f"its log is {self.log}")

    def not_ready(self) -> str:
        """Returns the links or nodes that are missing, in words."""
        if self.version and self._running < self._links:
            return f"had {self._running} of {self._links} federation links running"
        if self.version and self._agreed < self._nodes:
            return f"saw {self._agreed} of {self._nodes} nodes of its cluster running"
        return super().not_ready()

    def last_words(self) -> str:
        """The first errors of its log: what follows them is the fall of everything else."""
        errors = [line.partition("> ")[2] for line in self.log_text().splitlines() if ERROR in line]
        return "\n".join([words for words in errors if words][:ERRORS]) or super().last_words()

    @property
    def metrics_url(self) -> str | None:
        """Address of the plugin's figures."""
        return f"http://{self.host}:{self._metrics_port}/metrics" if self._metrics_port else None

    async def _free_port(self) -> int:
        return await self.place.machine.free_port(self.host)

    @property
    def _nodes(self) -> int:
        """Nodes that have to agree that it is running, itself among them."""
        return 1 if self.place.cluster is None else self.place.cluster.there()

    def _node(self, name: str) -> str:
        """Returns Erlang's name of a node of the cluster."""
        return f"{name}@{self.place.cluster.host(name)}" if self.place.cluster else name

    async def _joined(self, cluster: Cluster) -> Mapping[str, object]:
        """Chooses the nodes' port if it is the first; what its configuration says of the others."""
        self.write(".erlang.cookie", cluster.secret)
        if self.name == cluster.names[0]:
            # The first node looks for no other node; the others look for it.
            await cluster.choose_port()
        self._node_port = cluster.node_port
        if self.name == cluster.names[0]:
            return {}
        found = "cluster_formation.classic_config.nodes"
        nodes = {f"{found}.{n}": self._node(name) for n, name in enumerate(cluster.names, 1)}
        return {"cluster_formation.peer_discovery_backend": "classic_config", **nodes}

    def _question(self) -> str:
        """Erlang: whether the node is up, its version, how many links are running, and how many
        nodes agree on which of them are."""
        running = "[x || S <- rabbit_federation_status:status(), {status, running} <- S]"
        links = f"length({running})" if self._links else "0"
        up = f"{AGREE}{{true, rabbit_misc:version(), {links}, length(Agreed)}}"
        first = TAKE_PART if self.place.cluster is not None and self._was_up else ""
        return f"{first}case rabbit:is_running() of true -> {up}; false -> false end.\n"

    async def _ask(self, question: str, longest_s: int = ANSWER_S) -> str:
        """Returns the answer of the node; empty if there is none."""
        machine = self.place.machine
        erl_call = await machine.find("erl_call") or "erl_call"
        node = f"{self.host}:{self._node_port}"
        words = (erl_call, "-address", node, "-R", "-timeout", str(longest_s), "-e")
        home = {"HOME": str(self.folder.absolute())}
        return await machine.output(*self.place.prefix, *words, text=question, environment=home)


def hashed(password: str) -> str:
    """A password as RabbitMQ keeps it: SHA-256 with a salt before it."""
    salt = secrets.token_bytes(SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _longest_start_s(place: Place) -> float:
    vhosts = place.federation.vhosts if place.federation else 0
    users = Path(str(place.settings.get(USERS_FILE, "")))
    users_s = users.stat().st_size / USERS_B_PER_S if users.is_file() else 0
    return START_S + VHOST_START_S * vhosts + users_s


def plugins_of(place: Place) -> list[str]:
    """The plugins that are enabled, each once."""
    own = ["rabbitmq_mqtt", *(["rabbitmq_federation"] if place.federation else [])]
    own += ["rabbitmq_web_mqtt"] if place.serves_websocket else []
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
    lines = {**defaults, **settings, **ours}
    return "".join(f"{key} = {_written(value)}\n" for key, value in lines.items())


def definitions_of(federation: Federation) -> Mapping[str, object]:
    """Virtual hosts, who may do what in them, and the links between them."""
    vhosts = [MAIN, *(_customer(number) for number in range(federation.vhosts))]
    links = list(_links(federation))
    return {
        "users": [{"name": USER, "password": PASSWORD, "tags": "administrator"}],
        "vhosts": [{"name": vhost} for vhost in vhosts],
        "permissions": [{"user": USER, "vhost": vhost, **EVERYTHING} for vhost in vhosts],
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


def _binary(text: str) -> str:
    """Returns a text as a binary of Erlang."""
    return f"<<{','.join(map(str, text.encode()))}>>"


def _customer(number: int) -> str:
    return f"customer-{number}"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

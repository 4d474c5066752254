"""The services of a run: programs beside its brokers. Redis is on the loopback address, without a
copy on the disk. It starts before the brokers, gets the users of the populations, and ends after
the brokers. Programs of the user start after the brokers and end before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.errors import PubstormError, TopologyError
from pubstorm.host.sockets import LOOPBACK
from pubstorm.result import ServiceResult
from pubstorm.scenario.monitors import Redis
from pubstorm.scenario.services import Program, RedisServer
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology.broker import BrokerProcess, Place, ServerProcess
from pubstorm.topology.identities.accounts import Accounts, accounts_of
from pubstorm.topology.services.program import ProgramService
from pubstorm.topology.started import StartRecord
from pubstorm.topology.supervision import Notify, Supervision


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


def _addresses(
    brokers: Sequence[BrokerProcess], targets: Sequence[Target]
) -> Iterator[tuple[str, str]]:
    """Yields hosts and ports of brokers and targets by name; one that is alone has the name of the
    scenario."""
    places = [(b.place.group, b.host, {"port": b.port, **b.other_ports}) for b in brokers]
    places += [(target.name, target.host, {"port": target.port}) for target in targets]
    groups, numbers = Counter(group for group, _, _ in places), Counter[str]()
    for group, host, ports in places:
        for name in [f"{group}-{numbers[group]}", *([group] if groups[group] == 1 else [])]:
            yield f"{name}.host", host
            yield from ((f"{name}.{key}", str(port)) for key, port in ports.items())
        numbers[group] += 1


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


class Services:
    """All services of a topology, in the order of the scenario."""

    def __init__(
        self, spec: TopologySpec, folder: Path, record: StartRecord, directory: Path | None = None
    ) -> None:
        self._spec = spec
        self._accounts: Mapping[str, Sequence[Accounts]] | None = None
        self._rows: dict[str, int] = {}
        self._by_name: dict[str, RedisService] = {}
        self._programs: list[ProgramService] = []
        for name, service in spec.services.items():
            place = Place(
                name=name,
                folder=folder / name,
                host=LOOPBACK,
                environment=record.mark,
                note=record.note_process,
            )
            if isinstance(service, RedisServer):
                place = replace(
                    place, settings=service.settings, port=service.port, binary=service.binary
                )
                self._by_name[name] = RedisService(place)
            elif isinstance(service, Program):
                place = replace(
                    place,
                    command=service.command,
                    directory=directory,
                    variables=service.environment,
                )
                self._programs.append(ProgramService(place, service.ready))

    @property
    def servers(self) -> Sequence[ServerProcess]:
        """Their processes."""
        return (*self.stores, *self._programs)

    @property
    def stores(self) -> Sequence[RedisService]:
        """The processes of those that brokers use."""
        return tuple(self._by_name.values())

    @property
    def programs(self) -> Sequence[ProgramService]:
        """The processes of those that use brokers."""
        return tuple(self._programs)

    def prepare(self, *plans: Plan) -> None:
        """Keeps whose users are to be written. Done once: services that outlive a run need those of
        all their runs at their start. Raises UsageError where they cannot be written."""
        if self._accounts is None:
            populations = [population for plan in plans for population in plan.populations]
            services = self._spec.services
            self._accounts = {
                name: accounts_of(populations, services[name].seeded_populations)
                for name in self._by_name
                if self._spec.is_seeded(name)
            }

    async def start(self, notify: Notify) -> None:
        """Returns when every service that brokers use accepts connections and has its users; raises
        TopologyError. `notify` receives the progress."""
        for server in self.stores:
            await server.start()
        for name, accounts in (self._accounts or {}).items():
            await self._seed(name, accounts, notify)

    async def start_programs(
        self, brokers: Sequence[BrokerProcess], targets: Sequence[Target] = ()
    ) -> None:
        """Returns when every program that uses brokers or targets is ready; raises
        TopologyError."""
        for program in self._programs:
            program.addresses = dict(_addresses(brokers, targets))
            await program.start()

    def url(self, name: str) -> str:
        """Returns the address of a service that is started, such as redis://127.0.0.1:16379/0."""
        return self._by_name[name].url

    def resolved(self, auth: str | None) -> str | None:
        """The URL behind a broker's `auth`: that of a service, or one that is written out."""
        return self.url(auth) if auth in self._by_name else auth

    def results(self, supervision: Supervision) -> tuple[ServiceResult, ...]:
        """Returns the services for the result."""
        return tuple(
            ServiceResult(
                name=server.name,
                kind=server.kind,
                version=server.version,
                host=server.host,
                port=server.port,
                pid=server.pid,
                died=bool(supervision.died(server.name)),
                seeded_rows=self._rows.get(server.name),
            )
            for server in self.servers
        )

    async def _seed(self, name: str, accounts: Sequence[Accounts], notify: Notify) -> None:
        from pubstorm.topology.identities.seeding import seed_all

        def notify_of_rows(text: str) -> None:
            notify(f"seeding {name}: {text}")

        try:
            self._rows[name] = await seed_all(self.url(name), accounts, notify_of_rows)
        except PubstormError as error:
            raise TopologyError(f"service {name}: {error.message}", error.hint) from error

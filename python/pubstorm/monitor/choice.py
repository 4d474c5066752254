"""Which monitors a scenario asks for, by default or by name. It starts none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pubstorm.monitor import Monitor
from pubstorm.monitor.group import GroupMonitor
from pubstorm.monitor.host import HostMonitor
from pubstorm.monitor.login import Login
from pubstorm.monitor.process import Families, PidNow, ProcessMonitor
from pubstorm.monitor.profiling import ProfileSpec
from pubstorm.monitor.sys_topics import SysTopicsMonitor
from pubstorm.plan import Plan, PublishAction, Target, client_tls, template_of
from pubstorm.result import BrokerResult
from pubstorm.scenario import Scenario
from pubstorm.scenario.monitors import TOGETHER_ABOVE, Process, SysTopics
from pubstorm.scenario.target import ZmqTarget, parse_target


@dataclass(frozen=True)
class WatchedBroker:
    """A broker that can be watched from this machine."""

    source: str
    """What its readings are called after."""
    process: Process | PidNow
    """Where its process is found."""
    target: Target
    """Where an observer finds it."""
    speaks_sys: bool
    """Whether it is expected to publish under `$SYS`."""
    metrics_url: str | None = None
    """Where it shows counters in Prometheus' format; None if it does not."""
    login: Login | None = None
    """Who an observer is there; None: what a client of the load is."""


@dataclass(frozen=True)
class WatchedProcess:
    """A program of the run that is no broker, such as a publisher."""

    source: str
    """What its readings are called after."""
    process: PidNow
    """Its process id."""


@dataclass(frozen=True)
class WatchedGroup:
    """Brokers of one name, too many to be watched one by one."""

    source: str
    """What their readings together are called after."""
    pids: Callable[[], Sequence[int]]
    """The ids of their processes, as they are now."""


@dataclass(frozen=True)
class Watchable:
    """The brokers that can be watched from this machine."""

    brokers: tuple[WatchedBroker, ...] = ()
    """Those that are watched one by one."""
    groups: tuple[WatchedGroup, ...] = ()
    """Those that are watched together."""


def watched_brokers(
    started: Sequence[BrokerResult],
    targets: Sequence[Target],
    pid_of: Callable[[str], int],
    login_of: Callable[[str], Login | None] = lambda _: None,
) -> Watchable:
    """The targets on this machine, which are called `broker-0` and so on, and after them the
    brokers that the run has started, each with the target where an observer finds it; `pid_of`
    tells the process id that a broker has now, `login_of` the observers' own login at the brokers
    of a name, if they have one."""
    given = targets[: len(targets) - len(started)]
    found = (
        WatchedBroker(
            source=f"broker-{number}",
            process=Process(port=target.port),
            target=target,
            speaks_sys=not isinstance(target, ZmqTarget),
        )
        for number, target in enumerate(given)
        if target.is_loopback
    )
    sizes = Counter(broker.group for broker in started)
    together = [group for group, size in sizes.items() if group and size > TOGETHER_ABOVE]
    own = (
        WatchedBroker(
            source=broker.name,
            process=partial(pid_of, broker.name),
            target=target,
            speaks_sys=broker.speaks_sys,
            metrics_url=broker.metrics_url,
            login=login_of(broker.group),
        )
        for broker, target in zip(started, targets[len(given) :], strict=True)
        if broker.group not in together
    )
    members = {group: [b.name for b in started if b.group == group] for group in together}
    groups = (WatchedGroup(group, _pids(names, pid_of)) for group, names in members.items())
    return Watchable((*found, *own), tuple(groups))


def _pids(names: Sequence[str], pid_of: Callable[[str], int]) -> Callable[[], Sequence[int]]:
    return lambda: [pid_of(name) for name in names]


def monitors_for(scenario: Scenario, plan: Plan, watched: Watchable) -> Iterator[Monitor]:
    """The monitors of a run."""
    families = Families()
    if scenario.monitors.host:
        yield HostMonitor()
    if scenario.monitors.brokers:
        for broker in watched.brokers:
            yield ProcessMonitor(broker.source, broker.process, families)
            if broker.speaks_sys:
                login = broker.login or client_login(plan, broker.target)
                yield SysTopicsMonitor(broker.source, broker.target, SysTopics().topics, login)
            if broker.metrics_url is not None:
                yield _prometheus(broker.source, broker.metrics_url, ("*",))
        for group in watched.groups:
            yield GroupMonitor(group.source, group.pids, families)
    for name, source in scenario.monitors.sources.items():
        if source.process is not None:
            yield ProcessMonitor(name, source.process, families)
        if source.prometheus is not None:
            yield _prometheus(name, source.prometheus.url, source.prometheus.include)
        if source.redis is not None:
            yield _redis(name, source.redis.url)
        if source.sys is not None:
            first = plan.targets[0] if scenario.target else watched.brokers[0].target
            yield _observer(name, source.sys, plan, first)


def process_monitors(programs: Sequence[WatchedProcess]) -> Iterator[Monitor]:
    """The monitors of programs of the run."""
    families = Families()
    for program in programs:
        yield ProcessMonitor(program.source, program.process, families)


def profile_spec(
    scenario: Scenario, plan: Plan, brokers: Sequence[WatchedBroker]
) -> ProfileSpec | None:
    """What is to be profiled; None where nothing is asked for or there is no such broker."""
    wanted = scenario.profile
    if wanted is None:
        return None
    named: dict[str, Process | PidNow] = {
        name: s.process for name, s in scenario.monitors.sources.items() if s.process
    }
    for broker in reversed(brokers):
        named[broker.source] = broker.process
    first = brokers[0].source if brokers else next(iter(named), None)
    name = wanted.broker or first
    found = next((each for each in (name, f"{name}-0") if each in named), None)
    stages = [n for n, stage in enumerate(scenario.stages) if stage.name == wanted.stage]
    stages += [n for n, s in enumerate(plan.stages) if isinstance(s.action, PublishAction)]
    if found is None or not stages:
        return None
    return ProfileSpec(
        broker=found,
        process=named[found],
        stage=stages[0],
        after_ns=wanted.after,
        duration_ns=wanted.duration,
        frequency=wanted.frequency,
    )


def client_login(plan: Plan, target: Target) -> Login:
    """The login of a client that connects there: the first of the first such population."""
    index = plan.targets.index(target) if target in plan.targets else 0
    fits = (p for p in plan.populations if p.at.first <= index < p.at.first + p.at.count)
    population = next(fits, plan.populations[0])
    username, password = (
        None if template is None else template_of(population, template).text(population.first)
        for template in (population.username, population.password)
    )
    tls = client_tls(population, population.first) if target.tls else None
    return Login(username, password, tls, population.first)


def _prometheus(name: str, url: str, include: Sequence[str]) -> Monitor:
    from pubstorm.monitor.prometheus import PrometheusMonitor

    return PrometheusMonitor(name, url, include)


def _redis(name: str, url: str) -> Monitor:
    from pubstorm.monitor.redis import RedisMonitor

    return RedisMonitor(name, url, with_process=True)


def _observer(name: str, topics: SysTopics, plan: Plan, first: Target) -> SysTopicsMonitor:
    target = first if topics.url is None else parse_target(topics.url)
    login = client_login(plan, target)
    if topics.username is not None:
        login = Login(topics.username, topics.password, login.tls, login.number)
    return SysTopicsMonitor(name, target, topics.topics, login)

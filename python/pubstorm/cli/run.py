"""`pubstorm run` plays a scenario, a series or a search, and prints its verdict. `pubstorm bench`
does so for a common load in one line: each kind is a ready scenario, and each option a value of it,
so that a line grows into a scenario."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from pubstorm.cli.init import scenario_names
from pubstorm.cli.options import SET, asked_for
from pubstorm.cli.outcome import Output, output_options
from pubstorm.contract.capabilities import TOPICS, UNDER_TLS, Capabilities, Names
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import ScenarioError, UsageError
from pubstorm.experiment import play as play_scenario
from pubstorm.experiment.invocation import Invocation
from pubstorm.output import data_code, say
from pubstorm.play.display import Live
from pubstorm.quantities import UnfitError, count
from pubstorm.result import RunResult, SearchResult, Series
from pubstorm.result.comparison import Comparison
from pubstorm.result.datasheet import Datasheet
from pubstorm.scenario.document import At, read_document, redacted_override
from pubstorm.scenario.load import written_again


@click.command()
@click.argument("scenario", required=False, shell_complete=scenario_names)
@asked_for
@output_options
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of SCENARIO: continue the experiment in this folder.",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="Store data only; `pubstorm report` makes page, tables, JUnit and histograms of it.",
)
def run(asked: Invocation, output: Output, resume: Path | None, no_report: bool) -> int:
    """Run SCENARIO, a file or the name of a ready one.

    With - as SCENARIO, it is read from stdin. Prints one screen at the end: verdict, thresholds,
    key figures and folder. A scenario with a sweep is played as a series, step after step, one with
    a search until the answer is found. The exit code is 0 if the run passes, 1 if a threshold
    fails, 2 if the scenario is wrong, 3 if the run is invalid or cannot be stored, 130 if it was
    interrupted. A series has the highest code of its steps. A search has 0 with an answer, 1 if no
    value passes, 3 if no trial counted, 4 if the host or the load generator ended it.
    """
    asked = replace(asked, reports=not no_report)
    with output.shown() as live:
        played = play(asked, output.folder, resume, live)
    return output.conclude(played)


def play(
    asked: Invocation, out: Path | None, resume: Path | None, live: Live
) -> RunResult | Series | SearchResult | Comparison | Datasheet:
    """Plays what is asked for: a run, a series or a search, or the rest of an experiment."""
    if resume is not None:
        if asked != Invocation("") or out is not None:
            raise UsageError(
                "--resume goes with no SCENARIO, --set, --on, --target, --out or --no-report",
                "the folder holds them",
            )
        return _resumed(resume, live)
    if not asked.scenario:
        raise click.UsageError("Missing argument 'SCENARIO'.", click.get_current_context())
    return play_scenario(asked.load(), asked, out, live)


def _resumed(folder: Path, live: Live) -> Series | SearchResult | Comparison | Datasheet:
    """Plays the rest of the experiment in a folder."""
    from pubstorm.report import ASKED_FILE, DATASHEET_FILE, SEARCH_FILE

    if (folder / ASKED_FILE).exists():
        from pubstorm.experiment.comparison import resume_comparison

        return resume_comparison(folder, live)
    if (folder / DATASHEET_FILE).exists():
        from pubstorm.experiment.datasheet import resume_datasheet

        return resume_datasheet(folder, live)
    if (folder / SEARCH_FILE).exists():
        from pubstorm.experiment.search import resume_search

        return resume_search(folder, live)
    from pubstorm.experiment.series import resume_series

    return resume_series(folder, live)


RATE_MAX = {"rate": "1M/s", "total_rate": "10M/s"}
"""Largest rate that a search tries, of a publisher and of all of them."""
CLIENTS_MAX = "10M"
"""Largest number of clients that a search tries."""
CONNECTIONS_HELD = "5s"
"""Time for which the most connections are held."""
TIMES = {"pub": "publisher.ack_latency", "conn": "client.connect_time"}
"""Time that a percentile alone means, of kinds without deliveries."""
STATISTIC = r"p\d+(?:\.\d+)?|max|mean"
"""A figure without a name: a statistic of the time of its kind."""
CONDITION = re.compile(r"\s*([\w./]+)\s*(>=?)\s*(\S.*?)\s*")

TLS_FILES = {"tls_ca": "ca", "tls_cert": "certificate", "tls_key": "key"}
"""Options with files, by the key of a population's `tls`."""
OPTIONS = {"as_fast": "--max", "length": "--for"}
"""Options that have another name in Python."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A kind of load: the ready scenario `bench-KIND`."""

    many: tuple[str, ...]
    """Populations whose number of clients is an option."""
    populations: tuple[str, ...]
    verb: str = "publish"
    """Action of the stage whose length is an option."""

    @property
    def publishes(self) -> bool:
        """True if a population publishes."""
        return "publisher" in self.populations


BOTH = ("publisher", "subscriber")
KINDS = {
    "conn": Bench(("client",), ("client",), "hold"),
    "pub": Bench(("publisher",), ("publisher",)),
    "sub": Bench(("subscriber",), ("subscriber",), "hold"),
    "pairs": Bench(BOTH, BOTH),
    "fan-in": Bench(("publisher",), BOTH),
    "fan-out": Bench(("subscriber",), BOTH),
}


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("target", required=False)
@click.option("-c", "--clients", metavar="N", help="Number of clients. Default: 1000.")
@click.option("--rate", metavar="RATE", help="Messages of each publisher, such as 20/s.")
@click.option("--total-rate", metavar="RATE", help="Messages of all publishers, such as 20k/s.")
@click.option("--max", "as_fast", is_flag=True, help="Publish as fast as possible.")
@click.option("--size", metavar="SIZE", help="Payload of a message. Default: 100B.")
@click.option("--qos", type=click.Choice(["0", "1", "2"]), help="QoS of messages and filters.")
@click.option("--topic", metavar="TOPIC", help="Topic; {n} is the number of a client.")
@click.option("--group", metavar="NAME", help="Queue group of the subscribers, with nats://.")
@click.option("--queue", metavar="NAME", help="Queue that the subscribers share, with amqp://.")
@click.option("--confirm", is_flag=True, help="The broker confirms messages, with amqp://.")
@click.option("--virtual-host", metavar="NAME", help="Virtual host, with amqp://; {n} as above.")
@click.option("--for", "length", metavar="TIME", help="Length of the load. Default: 30s.")
@click.option(
    "-n",
    "--messages",
    metavar="N",
    help="Messages of all publishers, or of each with N/client; --for is the longest time.",
)
@click.option("--ramp", metavar="RATE", help="Connections a second. Default: 500/s.")
@click.option("--v5", is_flag=True, help="Speak MQTT 5 instead of 3.1.1.")
@click.option("--username", metavar="NAME", help="User name; {n} is the number of a client.")
@click.option("--password", metavar="TEXT", help="Password, or ${env:NAME} to keep it secret.")
@click.option("--token", metavar="TEXT", help="Token of the login, with nats://.")
@click.option("--nkey", metavar="SEED", help="Seed of the user's key, with nats://.")
@click.option("--jwt", metavar="TEXT", help="Token of the user with that key, with nats://.")
@click.option("--tls-ca", metavar="FILE", help="Authority of the broker's certificate.")
@click.option("--tls-insecure", is_flag=True, help="Do not verify the broker's certificate.")
@click.option("--tls-cert", metavar="FILE", help="Certificate of the clients; {n} as above.")
@click.option("--tls-key", metavar="FILE", help="Private key of the clients.")
@click.option(
    "--until",
    metavar="CONDITION",
    help='Search the largest rate before this condition is met, such as "p99 > 100ms". With conn: '
    "the largest number of clients. A number, such as 100k, is the most clients to try to keep.",
)
@SET
@click.option("--print", "prints", is_flag=True, help="Print the scenario instead of running it.")
@output_options
def bench(
    kind: str,
    target: str | None,
    overrides: tuple[str, ...],
    prints: bool,
    output: Output,
    **given: object,
) -> int:
    """Run a common load against TARGET, or against the embedded broker.

    Kinds: conn only connects; pub publishes; sub subscribes and counts; pairs, fan-in and fan-out
    publish and receive. The exit codes are those of `pubstorm run`. --print writes the scenario.
    """
    _check_target(kind, target)
    _check_tls(target, given)
    options = options_of(kind, given, target)
    asked = Invocation(f"bench-{kind}", (*options, *overrides), target)
    with _named_by_options(options, target):
        if prints:
            say(written_again(asked.load()))
            return data_code()
        with output.shown() as live:
            played = play(asked, output.folder, None, live)
    return output.conclude(played)


def options_of(kind: str, given: dict[str, object], target: str | None = None) -> dict[str, str]:
    """Returns the overrides for the options that are given, and the option of each. Raises
    UsageError for one that the kind does not have."""
    load, can = KINDS[kind], _abilities(target)
    options = {name: value for name, value in given.items() if value not in (None, False)}
    _check(kind, load, can, options)
    twins = dict.fromkeys(_twins(kind, can.names), "TARGET") if can.names is not TOPICS else {}
    return twins | {
        override: _option(name)
        # With a number of messages, the length is the longest time.
        for name in sorted(options, key=lambda name: name != "messages")
        for override in _overrides(kind, can, name, options)
    }


def _abilities(target: str | None) -> Capabilities:
    """Returns the abilities of clients at the first address of a target; those of MQTT if it is no
    address."""
    try:
        return parse_target((target or "").partition(" ")[0]).can
    except UnfitError:
        return Target(host="", port=0).can


def _twins(kind: str, names: Names | None) -> Iterator[str]:
    """Yields the flows of a kind as another protocol has them."""
    populations = At(read_document(Invocation(f"bench-{kind}").load().source.text).data)
    for population in populations["populations"].named():
        for flow in (*population["subscriptions"].entries(), *population["publications"].entries()):
            topic = str(flow["topic"].data)
            twin = {"topic": topic.rstrip("+#")} if names is None else names.flow(topic)
            others = {str(each.path[-1]): each.data for each in flow.named()}
            others.pop("topic")
            yield f"{'.'.join(map(str, flow.path))}={json.dumps({**others, **twin})}"


def _overrides(
    kind: str, can: Capabilities, name: str, options: dict[str, object]
) -> Iterator[str]:
    """Yields the overrides that an option stands for."""
    load, publications, subscriptions = KINDS[kind], "publications.0", "subscriptions.0"
    flow, value = f"populations.publisher.{publications}", options[name]
    match name:
        case "clients":
            yield from (f"populations.{each}.clients={value}" for each in load.many)
        case "rate":
            yield f"{flow}.rate={value}"
        case "as_fast":
            yield f"{flow}.rate=max"
        case "total_rate":
            yield from (f"{flow}.rate=null", f"{flow}.total_rate={value}")
        case "size":
            yield f"{flow}.size={value}"
        case "qos":
            for each, part in (("publisher", publications), ("subscriber", subscriptions)):
                if each in load.populations:
                    yield f"populations.{each}.{part}.qos={value}"
        case "topic":
            yield from _topics(kind, load, can.names or TOPICS, str(value))
        case "group":
            yield f"populations.subscriber.{subscriptions}.group={json.dumps(value)}"
        case "queue":
            yield f"populations.subscriber.{subscriptions}.queue={json.dumps(value)}"
        case "confirm":
            yield f"{flow}.confirm=true"
        case "length" if "messages" not in options:
            yield f"stages.1.{load.verb}={value}"
        case "length":
            yield f"stages.1.{load.verb}.for={value}"
        case "messages":
            yield f"stages.1.{load.verb}={{messages: {value}}}"
        case "ramp":
            yield f"stages.0.connect.rate={value}"
        case "until":
            yield from _search(kind, flow, str(value), options)
        case _:
            setting = _connection(name, value)
            yield from (f"populations.{each}.{setting}" for each in load.populations)


@contextlib.contextmanager
def _named_by_options(options: Mapping[str, str], target: str | None) -> Iterator[None]:
    """Names what is wrong with a scenario by the options that are given, not by its paths."""
    places = {f"--set {redacted_override(each)}": option for each, option in options.items()}
    places[f"--target {target}"] = "TARGET"
    try:
        yield
    except ScenarioError as error:
        named = (
            replace(
                each,
                place=places[each.place],
                path="",
                hint=each.hint or "pubstorm bench --help",
            )
            if each.place in places
            else each
            for each in error.problems
        )
        raise ScenarioError(list(dict.fromkeys(named))) from None


def _check(kind: str, load: Bench, can: Capabilities, options: dict[str, object]) -> None:
    rates = [name for name in ("rate", "total_rate", "as_fast") if name in options]
    if len(rates) > 1:
        raise UsageError(
            f"found {' and '.join(map(_option, rates))}, allowed is one of them", "choose one"
        )
    sends = ("size", "messages", *(() if kind == "conn" else ("until",)))
    needs = [*rates, *(name for name in sends if name in options)]
    if not load.publishes and needs:
        raise UsageError(
            f"found {_option(needs[0])} with {kind}, which publishes nothing",
            "allowed with pub, pairs, fan-in and fan-out",
        )
    flows = next((name for name in (*OF_FLOWS, *OF_FILTERS) if name in options), None)
    if load.populations == ("client",) and flows is not None:
        raise UsageError(f"found {_option(flows)} with conn, which only connects", "leave it out")
    filters = next((name for name in OF_FILTERS if name in options), None)
    if filters is not None and "subscriber" not in load.populations:
        raise UsageError(
            f"found {_option(filters)} with {kind}, which subscribes to nothing",
            "allowed with sub, pairs, fan-in and fan-out",
        )
    if ("tls_cert" in options) != ("tls_key" in options):
        one, other = ("cert", "key") if "tls_cert" in options else ("key", "cert")
        raise UsageError(f"found --tls-{one} without --tls-{other}", "give both or neither")
    if "until" in options and "as_fast" in options:
        raise UsageError("found --until and --max, allowed is one of them", "give --rate to begin")
    if "messages" in options and "until" in options:
        found = "found --messages and --until, allowed is one of them"
        raise UsageError(found, "a search plays each load for a time: give it --for")
    _check_acknowledged(kind, can, options)
    for name in ("topic", "username"):
        foreign = _FOREIGN.search(str(options.get(name, "")))
        if foreign is not None:
            found = f"{_option(name)}: found {foreign[0]}, which would be taken as it is"
            raise UsageError(found, "write {n} for the number of a client")


OF_FLOWS = ("qos", "topic", "confirm")
OF_FILTERS = ("group", "queue")
"""Options about subscribers."""
_FOREIGN = re.compile(r"%[icu]\b")
"""Placeholders of other tools."""


def _check_acknowledged(kind: str, can: Capabilities, options: dict[str, object]) -> None:
    """Raises UsageError for a percentile of acknowledgements that do not exist."""
    condition = options.get("until")
    if kind != "pub" or condition is None or not re.match(rf"\s*({STATISTIC})\b", str(condition)):
        return
    if not can.has_qos and "confirm" in options:
        return
    if not can.has_qos:
        raise UsageError(
            f"found --until {condition!r} with pub at a target without acknowledgements",
            "name a figure, as in publisher.skipped > 0, or use pairs",
        )
    if options.get("qos", "0") == "0":
        raise UsageError(
            f"found --until {condition!r} with QoS 0, which has no acknowledgements",
            "add --qos 1",
        )


def _check_target(kind: str, target: str | None) -> None:
    if target is not None and KINDS[kind].publishes and not _abilities(target).has_broker:
        raise UsageError(
            f"found {kind} with {target}, which sends and receives nothing",
            "allowed are conn and sub",
        )


def _check_tls(target: str | None, given: dict[str, object]) -> None:
    name = next((name for name in (*TLS_FILES, "tls_insecure") if given.get(name)), None)
    if name is None:
        return
    if target is None:
        raise UsageError(
            f"found {_option(name)} without TARGET; the embedded broker has no TLS",
            "add the address of a broker: mqtts://HOST",
        )
    scheme, separator, rest = target.partition("://")
    if separator and f"{scheme}s" in UNDER_TLS:
        allowed = ", ".join(f"{each}://" for each in sorted(UNDER_TLS))
        raise UsageError(
            f"found {_option(name)} with {target}, allowed with {allowed}",
            f"write {scheme}s://{rest}",
        )


def _option(name: str) -> str:
    return OPTIONS.get(name, f"--{name.replace('_', '-')}")


def _topics(kind: str, load: Bench, names: Names, topic: str) -> Iterator[str]:
    """Yields the topic of publishers, and the filter of subscribers that matches it."""
    if load.publishes:
        yield from _keyed("populations.publisher.publications.0", names, topic)
    if "subscriber" in load.populations:
        own = kind in ("pairs", "sub", "fan-out")
        levels = topic.split(names.separator)
        wanted = (level if own or "{" not in level else names.one for level in levels)
        own_filter = names.separator.join(wanted)
        yield from _keyed("populations.subscriber.subscriptions.0", names, own_filter)


def _keyed(flow: str, names: Names, topic: str) -> Iterator[str]:
    """Yields the override of the topic of a flow, by the key that its protocol has for topics."""
    *_, key = names.flow(topic)
    yield f"{flow}.{key}={json.dumps(topic)}"


def _connection(name: str, value: object) -> str:
    """Returns the setting of a population for an option of connections."""
    match name:
        case "v5":
            return "version=5"
        case "tls_insecure":
            return "tls.verify=false"
        case _ if name in TLS_FILES:
            return f"tls.{TLS_FILES[name]}={json.dumps(str(Path(str(value)).absolute()))}"
        case _:
            return f"{name}={json.dumps(str(value))}"


def _search(kind: str, flow: str, condition: str, options: dict[str, object]) -> Sequence[str]:
    """Returns the overrides for a search of the largest rate before a condition is met, or of the
    largest number of clients that only connect."""
    if kind == "conn" and _is_count(condition):
        return tuple(_most_connections(condition, options))
    found = CONDITION.fullmatch(condition)
    if found is None:
        allowed = "METRIC > VALUE" + (" or a number of clients" if kind == "conn" else "")
        hint = 'such as "p99 > 100ms"' + (" or 100k" if kind == "conn" else "")
        raise UsageError(f"found --until {condition!r}, allowed is {allowed}", hint)
    metric, sign, value = found.groups()
    if re.fullmatch(STATISTIC, metric):
        metric = f"{TIMES.get(kind, 'subscriber.latency')}.{metric}"
    threshold = f"{metric} {'<=' if sign == '>' else '<'} {value}"
    conditions = f"thresholds=[{json.dumps(threshold)}]"
    if kind == "conn":
        return (_clients_search(options, CLIENTS_MAX), conditions)
    key = "total_rate" if "total_rate" in options else "rate"
    first = options.get(key, "1/s")
    return (
        f"search={{vary: {flow}.{key}, from: {first}, to: {RATE_MAX[key]}}}",
        conditions,
    )


def _is_count(text: str) -> bool:
    try:
        count(text)
    except UnfitError:
        return False
    return True


def _most_connections(bound: str, options: dict[str, object]) -> Iterator[str]:
    """Yields the overrides for a search of the most clients that connect and stay, up to a bound.
    A number of connections is a limit by itself: it is searched once, and held for a short time."""
    yield _clients_search(options, f"{bound}, repeat: 1")
    yield "thresholds=[client.never_ready == 0, client.disconnected == 0]"
    if "length" not in options:
        yield f"stages.1.hold={CONNECTIONS_HELD}"


def _clients_search(options: dict[str, object], bound: str) -> str:
    first = options.get("clients", "1000")
    return f"search={{vary: populations.client.clients, from: {first}, to: {bound}}}"

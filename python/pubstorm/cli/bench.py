"""`pubstorm bench`: one line for a common load. Each kind is a ready scenario, and each option a
value of it, so that a line grows into a scenario."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pubstorm.cli.asked import SET
from pubstorm.cli.outcome import Output, output_options
from pubstorm.cli.run import play
from pubstorm.errors import UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.output import say
from pubstorm.scenario.load import written_again

RATE_MAX = {"rate": "1M/s", "total_rate": "10M/s"}
"""Largest rate that a search tries, of a publisher and of all of them."""
CONDITION = re.compile(r"\s*([\w./]+)\s*(>=?)\s*(\S.*?)\s*")

TLS_FILES = {"tls_ca": "ca", "tls_cert": "certificate", "tls_key": "key"}
"""Options with files, by the key of a population's `tls`."""


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
@click.option("--for", "length", metavar="TIME", help="Length of the load. Default: 30s.")
@click.option("--ramp", metavar="RATE", help="Connections a second. Default: 500/s.")
@click.option("--v5", is_flag=True, help="Speak MQTT 5 instead of 3.1.1.")
@click.option("--username", metavar="NAME", help="User name; {n} is the number of a client.")
@click.option("--password", metavar="TEXT", help="Password, or ${env:NAME} to keep it secret.")
@click.option("--tls-ca", metavar="FILE", help="Authority of the broker's certificate.")
@click.option("--tls-insecure", is_flag=True, help="Do not verify the broker's certificate.")
@click.option("--tls-cert", metavar="FILE", help="Certificate of the clients; {n} as above.")
@click.option("--tls-key", metavar="FILE", help="Private key of the clients.")
@click.option(
    "--until",
    metavar="CONDITION",
    help='Search the largest rate before this is so, such as "p99 > 100ms".',
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
    asked = Invocation(f"bench-{kind}", (*options_of(kind, given), *overrides), target)
    if prints:
        say(written_again(asked.load()))
        return 0
    with output.shown() as live:
        played = play(asked, output.folder, None, live)
    return output.conclude(played)


def options_of(kind: str, given: dict[str, object]) -> Iterator[str]:
    """Yields an override for each option that is given. Raises UsageError for one that the kind
    does not have."""
    load = KINDS[kind]
    options = {name: value for name, value in given.items() if value not in (None, False)}
    _check(kind, load, options)
    publications, subscriptions = "publications.0", "subscriptions.0"
    flow = f"populations.publisher.{publications}"
    for name, value in options.items():
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
                yield from _topics(kind, load, str(value))
            case "length":
                yield f"stages.1.{load.verb}={value}"
            case "ramp":
                yield f"stages.0.connect.rate={value}"
            case "until":
                yield from _search(kind, flow, str(value), options)
    for each in load.populations:
        yield from _connection(f"populations.{each}", options)


def _check(kind: str, load: Bench, options: dict[str, object]) -> None:
    rates = [name for name in ("rate", "total_rate", "as_fast") if name in options]
    if len(rates) > 1:
        raise UsageError(
            f"found {' and '.join(map(_option, rates))}, allowed is one of them", "choose one"
        )
    needs = [*rates, *(name for name in ("size", "until") if name in options)]
    if not load.publishes and needs:
        raise UsageError(
            f"found {_option(needs[0])} with {kind}, which publishes nothing",
            "allowed with pub, pairs, fan-in and fan-out",
        )
    if load.populations == ("client",) and {"qos", "topic"} & options.keys():
        found = next(name for name in ("qos", "topic") if name in options)
        raise UsageError(f"found {_option(found)} with conn, which only connects", "leave it out")
    if ("tls_cert" in options) != ("tls_key" in options):
        one, other = ("cert", "key") if "tls_cert" in options else ("key", "cert")
        raise UsageError(f"found --tls-{one} without --tls-{other}", "give both or neither")
    if "until" in options and "as_fast" in options:
        raise UsageError("found --until and --max, allowed is one of them", "give --rate to begin")


def _option(name: str) -> str:
    return "--max" if name == "as_fast" else f"--{name.replace('_', '-')}"


def _topics(kind: str, load: Bench, topic: str) -> Iterator[str]:
    """Yields the topic of publishers, and the filter of subscribers that matches it."""
    if load.publishes:
        yield f"populations.publisher.publications.0.topic={json.dumps(topic)}"
    if "subscriber" in load.populations:
        own = kind in ("pairs", "sub", "fan-out")
        levels = (level if own or "{" not in level else "+" for level in topic.split("/"))
        yield f"populations.subscriber.subscriptions.0.topic={json.dumps('/'.join(levels))}"


def _connection(path: str, options: dict[str, object]) -> Iterator[str]:
    if "v5" in options:
        yield f"{path}.version=5"
    for name in ("username", "password"):
        if name in options:
            yield f"{path}.{name}={json.dumps(str(options[name]))}"
    for name, key in TLS_FILES.items():
        if name in options:
            yield f"{path}.tls.{key}={json.dumps(str(Path(str(options[name])).absolute()))}"
    if "tls_insecure" in options:
        yield f"{path}.tls.verify=false"


def _search(kind: str, flow: str, condition: str, options: dict[str, object]) -> Sequence[str]:
    """Returns the overrides for a search of the largest rate before a condition is met."""
    found = CONDITION.fullmatch(condition)
    if found is None:
        raise UsageError(
            f"found --until {condition!r}, allowed is METRIC > VALUE", 'such as "p99 > 100ms"'
        )
    metric, sign, value = found.groups()
    if re.fullmatch(r"p\d+|max|mean", metric):
        metric = f"{'publisher.ack_latency' if kind == 'pub' else 'subscriber.latency'}.{metric}"
        if kind == "pub" and options.get("qos", "0") == "0":
            raise UsageError(
                f"found --until {condition!r} with QoS 0, which has no acknowledgements",
                "add --qos 1",
            )
    threshold = f"{metric} {'<=' if sign == '>' else '<'} {value}"
    key = "total_rate" if "total_rate" in options else "rate"
    first = options.get(key, "1/s")
    return (
        f"search={{vary: {flow}.{key}, from: {first}, to: {RATE_MAX[key]}}}",
        f"thresholds=[{json.dumps(threshold)}]",
    )

"""The commands that help to begin. `pubstorm init` writes a scenario with comments after three
questions, composed of parts that people can edit; `pubstorm check` accepts every combination.
`pubstorm scenarios` lists the ready scenarios, and `pubstorm completion` prints the script of a
shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click
from click.shell_completion import CompletionItem, get_completion_class

from pubstorm.contract.capabilities import TOPICS, Capabilities, forms
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import UsageError, meant
from pubstorm.files import shipped
from pubstorm.output import data_code, pour, say
from pubstorm.quantities import QuantityField, UnfitError
from pubstorm.scenario.fields import Clients
from pubstorm.scenario.load import shipped_scenarios

EMBEDDED = "embedded"
OWN = "mqtt://localhost"
"""Address that has the abilities of the embedded broker."""
DEFAULT_CLIENTS = "100"
DEFAULT_FILE = "scenario.yaml"


@dataclass(frozen=True, slots=True)
class StarterLoad:
    """A load that a scenario can begin with."""

    description: str
    populations: tuple[str, ...]
    """Populations in the order of the file."""
    many: tuple[str, ...]
    """Populations with the number of clients that the user asked for; others have 1."""
    own_topics: bool = True
    """True if each client has a topic of its own."""


LOADS = {
    "conn": StarterLoad("clients that connect and stay", ("client",), ("client",)),
    "pub": StarterLoad("clients that publish", ("publisher",), ("publisher",)),
    "sub": StarterLoad("clients that subscribe", ("subscriber",), ("subscriber",)),
    "pairs": StarterLoad(
        "publishers and subscribers in pairs",
        ("subscriber", "publisher"),
        ("subscriber", "publisher"),
    ),
    "fan-in": StarterLoad(
        "many publishers and one subscriber", ("subscriber", "publisher"), ("publisher",)
    ),
    "fan-out": StarterLoad(
        "one publisher and many subscribers",
        ("subscriber", "publisher"),
        ("subscriber",),
        own_topics=False,
    ),
}


@click.command()
@click.argument("file", default=DEFAULT_FILE, metavar="[FILE]")
@click.option("--broker", metavar="URL", help="Address of the broker, or embedded. Default.")
@click.option("--kind", type=click.Choice(list(LOADS)), help="Load to begin with. Default: pairs.")
@click.option("-c", "--clients", metavar="N", help=f"Number of clients. Default: {DEFAULT_CLIENTS}")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def init(file: str, broker: str | None, kind: str | None, clients: str | None, force: bool) -> int:
    """Write a commented scenario to FILE.

    Asks for the broker, the load and the number of clients, unless options name them or stdin is no
    terminal. FILE is scenario.yaml by default; - is stdout.
    """
    path = None if file == "-" else Path(file)
    if path is not None and path.exists() and not force:
        raise UsageError(f"found {path}, which exists", "--force replaces it")
    text = scenario_text(
        _answer(broker, "Broker, such as mqtt://HOST:1883", EMBEDDED, broker_of),
        _answer(kind, f"Load: {', '.join(LOADS)}", "pairs", load_of),
        _answer(clients, "Number of clients", DEFAULT_CLIENTS, clients_of),
    )
    if path is None:
        say(text.rstrip("\n"))
        return data_code()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from error
    say(f"{path}: a scenario; pubstorm check {path} shows its plan, pubstorm run {path} plays it")
    return 0


def _answer(given: str | None, question: str, default: str, read: Callable[[str], str]) -> str:
    """Returns the option, the answer of the user, or the default without a terminal."""
    if given is not None:
        return read(given)
    if not sys.stdin.isatty():
        return default
    found: str = click.prompt(question, default=default, value_proc=_asking(read), err=True)
    return found


def _asking(read: Callable[[str], str]) -> Callable[[str], str]:
    """Lets click ask again after a wrong answer."""

    def value(text: str) -> str:
        try:
            return read(text.strip())
        except UsageError as error:
            hint = "" if error.hint is None else f"; {error.hint}"
            raise click.UsageError(f"{error.message}{hint}") from error

    return value


def broker_of(text: str) -> str:
    """Returns the address of a broker, or `embedded`. Raises UsageError."""
    if text == EMBEDDED:
        return text
    try:
        if not (target := parse_target(text)).can.has_broker:
            hint = f"see pubstorm scenarios for {target.can.title}"
            raise UnfitError(text, "is the address of a broker", hint)
    except UnfitError as unfit:
        allowed = f"allowed is embedded or {forms(of_brokers=True)}"
        raise UsageError(f"found broker {text!r}, {allowed}", unfit.hint) from unfit
    return text


def load_of(text: str) -> str:
    """Returns the name of a load. Raises UsageError."""
    if text not in LOADS:
        raise UsageError(f"found load {text!r}, allowed is {', '.join(LOADS)}")
    return text


def clients_of(text: str) -> str:
    """Returns a number of clients as the scenario has it. Raises UsageError."""
    quantity = next(each for each in get_args(Clients) if isinstance(each, QuantityField))
    try:
        quantity.read(text)
    except UnfitError as unfit:
        raise UsageError(f"clients: {unfit}", unfit.hint) from unfit
    return text


def scenario_text(broker: str, kind: str, clients: str) -> str:
    """Returns the text of a scenario."""
    load, target = LOADS[kind], parse_target(OWN if broker == EMBEDDED else broker)
    parts = [
        "# `pubstorm check FILE` prints this plan in words, `pubstorm run FILE` plays it.\n"
        f"description: {load.description}\n",
        EMBEDDED_BROKER if broker == EMBEDDED else TARGET.format(broker=broker),
        POPULATIONS
        + "".join(_population(name, load, target, clients) for name in load.populations),
        STAGES.format(verb=_verb(load)),
        "".join(_thresholds(load, target.can)),
    ]
    if "publisher" in load.populations:
        parts.append(SEARCH)
    return "\n".join(parts)


def _population(name: str, load: StarterLoad, target: Target, clients: str) -> str:
    number = clients if name in load.many else "1"
    text = f"  {name}:\n    clients: {number}\n{LOGIN}"
    if target.tls:
        text += TLS
    names = target.can.names or TOPICS
    topic = "demo/{n}" if load.own_topics else "demo"
    if name == "publisher":
        keys = [f'{key}: "{value}"' for key, value in names.flow(topic).items()]
        text += PUBLICATION.format(flow="\n        ".join(keys))
        return text + ("        qos: 1\n" if target.can.has_qos else "")
    if name == "subscriber":
        alone = "publisher" not in load.populations
        own = names.flow("demo/#" if alone else topic if name in load.many else "demo/+")
        keys = [f'{key}: "{value}"' for key, value in own.items()]
        qos = ", qos: 1" if target.can.has_qos else ""
        return text + SUBSCRIPTION.format(flow=", ".join(keys), qos=qos)
    return text


def _verb(load: StarterLoad) -> str:
    return "publish" if "publisher" in load.populations else "hold"


def _thresholds(load: StarterLoad, can: Capabilities) -> Iterator[str]:
    yield THRESHOLDS
    yield f"  - {load.many[0]}.connected == 100%\n"
    if load.populations == ("publisher",):
        if can.has_qos:
            yield "  - publisher.ack_latency.p99 < 100ms    # from the scheduled instant on\n"
    elif _verb(load) == "publish":
        yield "  - subscriber.lost == 0\n"
        yield "  - subscriber.latency.p99 < 100ms       # from the scheduled instant on\n"


TARGET = """\
# The broker under test. An address under TLS has an s, as in mqtts://; WebSocket has ws://, QUIC
# has quic://.
target: {broker}
"""
EMBEDDED_BROKER = """\
# The run starts this broker and stops it. To test a broker of your own, replace the three lines by
# target: mqtt://HOST:1883
topology:
  brokers:
    broker: {kind: embedded}
"""
POPULATIONS = """\
# A population has clients that behave alike. {n} is the number of a client, from 0.
populations:
"""
LOGIN = """\
    # username: "user-{n}"
    # password: ${env:BROKER_PASSWORD}       # from the environment, so that no file has it
"""
TLS = """\
    # tls: {ca: ca.crt}                      # authority of the broker; default: the system's
"""
PUBLICATION = """\
    publications:
      - {flow}
        rate: 1/s                            # of each client; total_rate is that of all clients
        size: 100B
"""
SUBSCRIPTION = """\
    subscriptions:
      - {{{flow}{qos}}}
"""
STAGES = """\
# Stages follow one another.
stages:
  - connect: {{rate: 500/s}}                   # new connections a second
  - {verb}: 30s
  - disconnect: {{}}
"""
THRESHOLDS = """\
# The run passes if all of these hold, every scheduled message is sent, and no delivery is lost.
thresholds:
"""
SEARCH = """\
# Without the leading # this line finds the largest load that passes.
# search: {vary: populations.publisher.publications.0.rate, from: 1/s, to: 10k/s}
"""


@click.command()
def scenarios() -> None:
    """List the ready scenarios."""
    ready = shipped_scenarios()
    width = max((len(scenario.name) for scenario in ready), default=0)
    for scenario in ready:
        say(f"{scenario.name:{width}}  {scenario.description}")


@click.command()
@click.argument("name", default="scenario", required=False)
def schema(name: str) -> int:
    """Print the JSON Schema of scenarios, or of the file that NAME names.

    NAME is that of a stored file, such as result, or conclusion for what --json prints. For an
    editor, write `pubstorm schema >scenario.schema.json`, and as first line of a scenario
    `# yaml-language-server: $schema=scenario.schema.json`.
    """
    known = shipped("contract", "*.schema.json")
    if name not in known:
        hint = meant(name, known, f"there are {', '.join(known)}")
        raise UsageError(f"found no schema {name!r}", hint)
    pour(known[name].read_bytes())
    return data_code()


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PUBSTORM_COMPLETE"
"""Environment variable by which a shell asks the program for words."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of a shell.

    For bash, put eval "$(pubstorm completion bash)" into ~/.bashrc; for zsh the same into ~/.zshrc.
    For fish, write the output to ~/.config/fish/completions/pubstorm.fish.
    """
    from pubstorm.cli import pubstorm

    kind = get_completion_class(shell)
    assert kind is not None, "click has completion for each of the shells"
    script = kind(pubstorm, {}, "pubstorm", VARIABLE)
    say((script.source_template % script.source_vars()).strip())
    return data_code()


def scenario_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Returns the names of ready scenarios that begin so, and asks the shell for files."""
    from pubstorm.scenario.load import scenario_files

    names = [path.stem for path in scenario_files() if path.stem.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]

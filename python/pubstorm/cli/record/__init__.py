"""`pubstorm record`: writes a population file and its scenario from a table, a capture of packets
or a subscription, and compares a run of them with the recording."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pubstorm.errors import UsageError
from pubstorm.output import data_code, say
from pubstorm.quantities import SECOND_NS, UnfitError, duration_ns

DEFAULT_TARGET = "mqtt://localhost:1883"
FOLDER = click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="New folder for the files.",
)
TARGET_OF_REPLAY = click.option(
    "--target",
    default=DEFAULT_TARGET,
    show_default=True,
    metavar="TARGET",
    help="Broker of the scenario.",
)
FIT = click.option(
    "--fit",
    is_flag=True,
    help="Write a fitted model instead: rates, sizes and the shape of the topic tree, no recorded "
    "message, topic or instant.",
)
PAYLOADS = click.option(
    "--payloads",
    is_flag=True,
    help="Record the payloads too, which runs then send. They may contain personal data and "
    "secrets.",
)


@click.group()
def record() -> None:
    """Record clients and messages as a scenario, and compare its runs with them.

    User names and passwords are never recorded, payloads only with --payloads. A client identifier
    becomes a number.
    """


@record.command("csv")
@click.argument("table", type=click.Path(path_type=Path), metavar="FILE")
@FOLDER
@TARGET_OF_REPLAY
@FIT
@PAYLOADS
def csv_(table: Path, folder: Path, target: str, fit: bool, payloads: bool) -> int:
    """Record the messages in FILE, a table of time, client, topic and size.

    The first line has these headings. Further columns may be qos, retain, event and payload, which
    is in base64. A time is in seconds, or a date and time of ISO 8601.
    """
    from pubstorm.cli.record.table import read_table

    _check_words(fit, payloads)
    return _written(read_table(table, payloads=payloads), folder, target, fit)


@record.command()
@click.argument("packets", type=click.Path(path_type=Path), metavar="FILE")
@FOLDER
@TARGET_OF_REPLAY
@FIT
@PAYLOADS
@click.option(
    "--port",
    "ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    default=(1883,),
    show_default=True,
    help="Port of the broker in the capture; may be repeated.",
)
def capture(packets: Path, folder: Path, ports: tuple[int, ...], **words: object) -> int:
    """Record the clients in FILE, a capture of packets of MQTT without TLS.

    tshark of Wireshark reads it, and dumpcap or tcpdump write one. Beside the messages, a capture
    has sessions, subscriptions and deliveries.
    """
    from pubstorm.cli.record.capture import read_capture

    _check_words(words["fit"], words["payloads"])
    observed = read_capture(packets, ports, payloads=bool(words["payloads"]))
    return _written(observed, folder, str(words["target"]), bool(words["fit"]))


@record.command()
@click.argument("source", metavar="TARGET")
@FOLDER
@TARGET_OF_REPLAY
@FIT
@PAYLOADS
@click.option(
    "--filter",
    "filters",
    multiple=True,
    default=("#",),
    show_default=True,
    help="Topic filter; may be repeated.",
)
@click.option("--for", "time", default="60s", show_default=True, help="Time of the recording.")
@click.option(
    "--client-level",
    type=click.IntRange(1, 128),
    metavar="N",
    help="Level of the topics that names a client. Default: each topic is a client.",
)
@click.option("--username", help="User name; the password is in PUBSTORM_RECORD_PASSWORD.")
def subscription(source: str, folder: Path, **words: object) -> int:
    """Record the messages that a subscriber at TARGET receives, in MQTT 5.

    TARGET is mqtt://HOST:PORT or mqtts://HOST:PORT. A subscriber sees no publishers: they are
    modelled.
    """
    from pubstorm.cli.record.subscription import RecordedSubscription, record_subscription
    from pubstorm.contract.target import parse_target

    _check_words(words["fit"], words["payloads"])
    level, username, filters = words["client_level"], words["username"], words["filters"]
    assert isinstance(filters, tuple)
    try:
        wanted = RecordedSubscription(
            filters=filters,
            seconds=duration_ns(str(words["time"])) / SECOND_NS,
            level=level if isinstance(level, int) else None,
            username=None if username is None else str(username),
            password=os.environ.get("PUBSTORM_RECORD_PASSWORD"),
            payloads=bool(words["payloads"]),
        )
        address = parse_target(source)
    except UnfitError as error:
        raise UsageError(str(error)) from None
    observed = record_subscription(address, wanted)
    return _written(observed, folder, str(words["target"]), bool(words["fit"]))


@record.command("compare")
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def compare_(run_dir: Path) -> int:
    """Compare the run in RUN_DIR with the messages that it played: rates, sizes and fan-out."""
    from pubstorm.cli.record.comparison import played_against_recorded

    say("\n".join(played_against_recorded(run_dir)))
    return data_code()


def _check_words(fit: object, payloads: object) -> None:
    """Raises UsageError for a model of payloads."""
    if fit and payloads:
        message = "found --payloads with --fit, allowed is one of them"
        raise UsageError(message, "a model has no recorded message")


def _written(observed: object, folder: Path, target: str, fit: bool) -> int:
    from pubstorm.cli.record.fit import write_fitted
    from pubstorm.cli.record.population import Observed, write_population

    assert isinstance(observed, Observed)
    write = write_fitted if fit else write_population
    say("\n".join(write(observed, folder, target)))
    return data_code()

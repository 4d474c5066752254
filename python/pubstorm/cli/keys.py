"""`pubstorm keys` and `pubstorm ray-keys`: the command lines of keys. They say on stdout what they
have made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import click

from pubstorm.contract.capabilities import DEFAULT_TLS_PORT
from pubstorm.errors import KeysError
from pubstorm.host.keys.certificates import Authority, CertificateDates, ClusterKeys, Credential
from pubstorm.host.keys.clients import Names, Wanted
from pubstorm.host.keys.files import NewFile, new_keys, psk_text, read_psk, shares, write_files
from pubstorm.output import say
from pubstorm.topology.adapters.mosquitto import (
    CLIENTS,
    certificate_settings,
    lines_of,
    psk_settings,
)

CLIENTS_MAX = 1_000_000
SCENARIO = click.option(
    "--scenario", metavar="SCENARIO", help="The clients of all populations of this scenario."
)
FORCE = click.option("--force", is_flag=True, help="Replace files that exist already.")


def of_clients(option: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options that say which clients, as one argument `wanted`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(option, "template", metavar="TEMPLATE", help=f"{what}, as 'device-{{n}}'.")
        @click.option("--count", type=click.IntRange(1, CLIENTS_MAX), help="Number of clients.")
        @click.option(
            "--first",
            type=click.IntRange(0, 2**62),
            default=0,
            show_default=True,
            help="Number {n} of the first client.",
        )
        @SCENARIO
        @functools.wraps(command)
        def collected(**values: Any) -> None:
            asked = {key: values.pop(key) for key in ("template", "count", "first", "scenario")}
            command(wanted=Wanted(**asked), **values)

        return collected

    return decorate


@click.group()
def keys() -> None:
    """Make keys for TLS: pre-shared ones, or certificates of an authority of your own."""


@keys.command()
@of_clients("--identity", "Identity of a client")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="File of the keys; FILE.conf gets the lines for mosquitto.conf.",
)
@FORCE
def psk(wanted: Wanted, out: Path, force: bool) -> None:
    """Make a file of pre-shared keys: lines identity:key, a random key for each client."""
    made = new_keys(identity for names in wanted.identities() for identity in names)
    settings = {
        "listener": DEFAULT_TLS_PORT,
        **psk_settings(out.absolute(), as_username=True),
    }
    lines = out.with_name(f"{out.name}.conf")
    files = (
        NewFile(out, psk_text(made.items())),
        NewFile(lines, lines_of(settings).encode(), private=False),
    )
    write_files(files, force=force)
    say(f"{out}: {len(made)} keys")
    say(f"{lines}: lines for mosquitto.conf")


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--name",
    "names",
    multiple=True,
    default=("localhost", "127.0.0.1"),
    show_default=True,
    help="Name or address of the broker; may be given many times.",
)
@of_clients("--client", "Common name of a client")
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True)
@FORCE
def ca(folder: Path, names: Names, wanted: Wanted, days: int, force: bool) -> None:
    """Make an authority with certificates: the broker's, and one for each client that you name."""
    validity = CertificateDates.of_days(days)
    authority = Authority.new("pubstorm keys", validity)
    clients = () if wanted.is_nothing else wanted.subjects()
    subjects = [_file_name(name) for population in clients for name in population]
    files = [
        *_credential(folder, "ca", authority.credential),
        *_credential(folder, "server", authority.server(names, validity)),
    ]
    for name in subjects:
        files += _credential(folder / CLIENTS, name, authority.client(name, validity))
    settings = certificate_settings(
        folder.absolute(), require_client=bool(subjects), as_username=True
    )
    lines = lines_of({"listener": DEFAULT_TLS_PORT, **settings})
    files.append(NewFile(folder / "mosquitto.conf", lines.encode(), private=False))
    write_files(files, force=force)
    say(f"{folder}/ca.crt, ca.key: the authority")
    say(f"{folder}/server.crt, server.key: the broker, as {', '.join(names)}")
    if subjects:
        say(f"{folder}/{CLIENTS}: certificates and keys of {len(subjects)} clients")
    say(f"{folder}/mosquitto.conf: lines for mosquitto.conf")


@keys.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--shards", type=click.IntRange(1, 4096), required=True, help="Number of agents.")
@SCENARIO
@FORCE
def split(file: Path, shards: int, scenario: str | None, force: bool) -> None:
    """Split FILE of pre-shared keys: to each agent those of the clients that it plays.

    Line c is the key of client c. With a scenario, client c is that of each of its populations.
    """
    keys_by_identity = read_psk(file)
    populations: tuple[Names, ...] = (tuple(keys_by_identity),)
    if scenario is not None:
        populations = Wanted(scenario=scenario).identities()
    missing = [name for names in populations for name in names if name not in keys_by_identity]
    if missing:
        found = f"found no key for {len(missing)} identities in {file}, the first is {missing[0]!r}"
        raise KeysError(found, "without --scenario the lines of the file are shared out")
    by_shard = zip(*(shares(names, shards) for names in populations), strict=True)
    files = []
    for index, share in enumerate(by_shard):
        lines = [(name, keys_by_identity[name]) for names in share for name in names]
        path = file.with_name(f"{file.stem}.{index}-of-{shards}{file.suffix}")
        files.append(NewFile(path, psk_text(lines)))
    write_files(files, force=force)
    for made in files:
        say(f"{made.path}: {len(made.content.splitlines())} keys")


@click.command("ray-keys")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Address or name of a node, as Ray calls it; may be given many times.",
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    default="ray-keys",
    show_default=True,
    metavar="DIR",
    help="Folder of the files; nodes are added to those that exist.",
)
@click.option(
    "--at",
    type=click.Path(path_type=PurePosixPath),
    default="/etc/pubstorm",
    show_default=True,
    metavar="DIR",
    help="The folder on a node that its keys will be copied to.",
)
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True)
@FORCE
def ray_keys(nodes: Names, folder: Path, at: PurePosixPath, days: int, force: bool) -> None:
    """Make the keys of a Ray cluster: a token, an authority, and a certificate for each node.

    Authority and token stay the same for nodes that are added later, also with --force.
    """
    validity = CertificateDates.of_days(days)
    cluster = ClusterKeys.of(folder, validity)
    write_files(cluster.files(nodes, at, validity), force=force)
    kept = "" if cluster.is_new else ", as before"
    say(f"{folder}/ca.crt, ca.key: the authority{kept}")
    say(f"{folder}/token: the token of the cluster{kept}")
    for node in dict.fromkeys(nodes):
        say(f"{cluster.folder_of(node)}: copy it to {node}, as {at}")


def _credential(folder: Path, stem: str, credential: Credential) -> Iterator[NewFile]:
    yield NewFile(folder / f"{stem}.crt", credential.certificate, private=False)
    yield NewFile(folder / f"{stem}.key", credential.key)


def _file_name(name: str) -> str:
    if "/" in name or "\0" in name or name.startswith("."):
        hint = "a client's files are named after it"
        raise KeysError(f"found the name {name!r}, which can be no file's", hint)
    return name

"""Three commands about this host: `pubstorm broker` becomes the embedded broker, `pubstorm
calibrate` measures an agent, and `pubstorm seed` writes identities. Results go to stdout, progress
to stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pubstorm.cli.init import scenario_names
from pubstorm.contract.plan import PlannedPopulation
from pubstorm.errors import PubstormError, StoreError, UsageError
from pubstorm.experiment.calibrate import QUICK_CLIENTS, QUICK_SECONDS, CalibrateOptions, in_words
from pubstorm.experiment.calibrate import calibrate as measure_host
from pubstorm.experiment.invocation import Invocation
from pubstorm.host.binaries import broker_path, engine_path
from pubstorm.host.calibration import store
from pubstorm.host.signals import INTERRUPTED
from pubstorm.output import redraw, say, warn
from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario
from pubstorm.topology.identities.accounts import SCHEMES, Accounts, accounts_of, scheme_of
from pubstorm.topology.identities.mosquitto import MosquittoFiles
from pubstorm.topology.identities.seeding import (
    BATCH_ROWS,
    Identities,
    Meter,
    RedisAddress,
    RedisStore,
    Seeding,
    SeedVerification,
)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=1883, show_default=True)
def broker(port: int) -> None:
    """Run the embedded broker on its own, until interrupted."""
    path = broker_path()
    os.execv(path, [path.name, "--port", str(port)])


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="Time for which each load is played, in seconds.",
)
@click.option(
    "--clients", type=click.IntRange(1), help="Clients to connect. Default: as limits allow."
)
@click.option("--quick", is_flag=True, help="One short round with few clients: a rough figure.")
def calibrate(seconds: float, clients: int | None, quick: bool) -> None:
    """Measure how much load an agent makes on this host, against a peer that does nothing.

    The limits are stored for this host; runs then say how close they came to them.
    """
    options = CalibrateOptions(seconds, clients)
    if quick:
        options = CalibrateOptions(QUICK_SECONDS, clients or QUICK_CLIENTS, rounds=1)
    found = measure_host(engine_path(), options, warn)
    for line in in_words(found):
        say(line)
    warn(f"stored in {store(found)}")


REDIS, FILES = "redis://", "mosquitto:"
LINE_EVERY_S = 5.0
"""Interval of progress lines if stderr is no terminal."""

GOES_ON = "the same command continues there"
DEFAULT_SCHEME = "emqx"


@dataclass(frozen=True)
class SeedTask:
    """The task of the command."""

    verify: bool
    remove: bool
    restart: bool
    batch_rows: int


@click.command()
@click.argument("target")
@click.argument("scenario", shell_complete=scenario_names)
@click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a value of the scenario, for example populations.device.clients=10k.",
)
@click.option(
    "--scheme",
    metavar="NAME|FILE",
    help=f"Keys and values in Redis: {', '.join(SCHEMES)}, or a YAML file. "
    f"Default: {DEFAULT_SCHEME}.",
)
@click.option("--verify", is_flag=True, help="Read everything back instead; write nothing.")
@click.option("--remove", is_flag=True, help="Remove what would be written instead.")
@click.option("--restart", is_flag=True, help="Begin anew where some was written before.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=BATCH_ROWS,
    show_default=True,
    help="Rows that are sent to Redis at once.",
)
def seed(
    target: str, scenario: str, overrides: tuple[str, ...], scheme: str | None, **words: object
) -> int:
    """Write the users of SCENARIO, their passwords and their rights to TARGET.

    TARGET is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or mosquitto:FOLDER for a file of
    passwords and one of rights. Repeat an interrupted command to resume it.
    The exit code is 1 if --verify finds rows missing or wrong, and 3 if Redis refuses.
    """
    asked = SeedTask(
        verify=bool(words["verify"]),
        remove=bool(words["remove"]),
        restart=bool(words["restart"]),
        batch_rows=int(str(words["batch"])),
    )
    if asked.verify and asked.remove:
        raise UsageError("found --verify and --remove, allowed is one of them")
    if asked.restart and (asked.verify or asked.remove):
        raise UsageError("found --restart with --verify or --remove, allowed is it without them")
    if not target.startswith((REDIS, FILES)):
        hint = "for example redis://127.0.0.1:6379/0 or mosquitto:users"
        raise UsageError(
            f"found {target}, allowed are redis://HOST:PORT/DB and {FILES}FOLDER", hint
        )
    accounts = _accounts(Invocation(scenario, overrides).load())
    if target.startswith(FILES):
        if scheme is not None:
            raise UsageError("found --scheme with mosquitto, allowed is it with Redis")
        return _in_files(MosquittoFiles(Path(target.removeprefix(FILES)), accounts), asked)
    identities = Identities(accounts, scheme_of(scheme or DEFAULT_SCHEME))
    store = RedisStore(RedisAddress.parse(target))
    try:
        return _in_redis(Seeding(store, identities, asked.batch_rows), identities, store, asked)
    finally:
        store.close()


def _accounts(scenario: Scenario) -> tuple[Accounts, ...]:
    """The accounts of a scenario, or of all steps of its sweep."""
    played = [step.scenario for step in scenario.steps] or [scenario]
    populations: list[PlannedPopulation] = [
        population for each in played for population in provisional_plan(each).populations
    ]
    found = accounts_of(populations)
    for name in dict.fromkeys(p.name for p in populations if p.username is None):
        warn(f"population {name} has no user names and is left out")
    return found


def _in_redis(seeding: Seeding, identities: Identities, store: RedisStore, asked: SeedTask) -> int:
    where, total = str(store.address), identities.rows
    if asked.verify:
        positions = seeding.positions()
        with _metered(total, 0, "") as meter:
            findings = seeding.verify(meter)
        return _verdict(where, findings, _reached(identities, positions))
    if asked.remove:
        with _metered(total, 0, GOES_ON) as meter:
            removed = seeding.remove(meter)
        say(f"{where}: {removed:,} fields removed")
        return 0
    if asked.restart:
        seeding.forget()
    positions = seeding.positions()
    before = seeding.done_before(positions)
    if before == total:
        say(f"{where}: all {total:,} rows were written before")
        warn("--verify reads them back, --restart writes them again")
        return 0
    if before:
        warn(f"continues at row {before:,} of {total:,}")
    with _metered(total, before, GOES_ON) as meter:
        seeding.write(positions, meter)
    say(f"{where}: {_written(meter, total - before, identities.accounts)}")
    return 0


def _in_files(files: MosquittoFiles, asked: SeedTask) -> int:
    total, where = sum(accounts.rows for accounts in files.accounts), str(files.folder)
    if asked.remove:
        say(f"{where}: {files.remove()} files removed")
        return 0
    with _metered(total, 0, "nothing was written") as meter:
        if asked.verify:
            return _verdict(where, files.verify(meter), "")
        files.write(meter, replace=asked.restart)
    say(f"{where}: {_written(meter, total, files.accounts)}")
    for path, word in zip(files.paths, ("password_file", "acl_file"), strict=True):
        say(f"{word} {path.absolute()}")
    return 0


def _written(meter: Meter, rows: int, accounts: Sequence[Accounts]) -> str:
    clients = sum(each.count for each in accounts)
    return (
        f"{rows:,} rows of {clients:,} clients written in {meter.took_s:.1f} s "
        f"({meter.rate_per_s:,.0f} rows/s)"
    )


def _verdict(where: str, findings: SeedVerification, reached: str) -> int:
    """Says what was found, and gives the exit code."""
    right = findings.rows - findings.missing - findings.wrong
    say(f"{where}: {right:,} of {findings.rows:,} rows exist and are right")
    if findings.is_good:
        return 0
    say(f"{findings.missing:,} missing, {findings.wrong:,} wrong; the first:")
    for example in findings.examples:
        say(f"  {example}")
    if reached:
        say(reached)
    return 1


def _reached(identities: Identities, positions: list[int]) -> str:
    """Returns the progress of earlier writing, by its marker."""
    if not any(positions):
        return "no writing of just these users is known: without --verify it begins"
    for accounts, position in zip(identities.accounts, positions, strict=True):
        if position < accounts.count:
            return (
                f"writing came to client {position:,} of {accounts.count:,} of "
                f"{accounts.population}: without --verify the command continues there"
            )
    return "all was written once: --restart writes it again"


@contextmanager
def _metered(total: int, done: int, afterwards: str) -> Iterator[Meter]:
    """Something of so many rows: says on stderr how far it is, and where it was if it ends."""
    is_terminal, next_s = sys.stderr.isatty(), time.monotonic() + LINE_EVERY_S

    def notify(text: str) -> None:
        nonlocal next_s
        if is_terminal:
            redraw(text)
        elif time.monotonic() >= next_s:
            next_s = time.monotonic() + LINE_EVERY_S
            warn(text)

    meter = Meter(total, done, notify)
    try:
        yield meter
    except KeyboardInterrupt:
        text = f"interrupted after {meter.reached}"
        raise PubstormError(text, afterwards or None, exit_code=INTERRUPTED) from None
    except StoreError as error:
        hints = "; ".join(hint for hint in (error.hint, afterwards) if hint)
        raise StoreError(f"{error.message}, after {meter.reached}", hints or None) from error
    finally:
        if is_terminal:
            redraw("")

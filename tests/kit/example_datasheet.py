"""Makes data sheets by hand: two brokers with all sections, figures that this host cut off, figures
without an interval, and cells that were left out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pubstorm.quantities import Unit
from pubstorm.result import Estimate, LimitedBy
from pubstorm.result.datasheet import (
    Better,
    CellState,
    Datasheet,
    Identity,
    Section,
    SheetCell,
    SheetDrift,
    SheetFigure,
)
from pubstorm.result.datasheet_comparison import SheetComparison, compare_sheets
from tests.kit.measured import ENVIRONMENT

QOS = {0: 1.4, 1: 1.0, 2: 0.55}
"""Rates by QoS, as shares of those of QoS 1."""
SIZES = {"16 B": 1.05, "256 B": 1.0, "4 kB": 0.6, "64 kB": 0.08}
"""Rates by size, as shares of those of 256 B."""
SHAPES = {"1:1": 1.0, "fan-out": 2.6}
"""Rates by shape, as shares of those of 1:1."""
NO_TIME = "not measured in the time given"
ERROR = 0.01
"""Half of each interval, as a share of its value."""


@dataclass(frozen=True)
class ExampleBroker:
    """A broker as the figures of its sheet show it."""

    name: str
    version: str
    rate_per_s: float
    """Largest rate at 1:1, QoS 1, 256 B."""
    session_bytes: float
    recovery_s: float
    garbage: bool = False
    has_sharing: bool = True


MOSQUITTO = ExampleBroker("mosquitto", "2.0.18", 61_000, 4300, 1.4)
NANOMQ = ExampleBroker("nanomq", "0.22.1", 58_000, 9800, 0.9, has_sharing=False)
ARTEMIS = ExampleBroker("artemis", "2.44.0", 24_000, 31_000, 9.2, garbage=True)


def write_datasheet(folder: Path, broker: ExampleBroker = MOSQUITTO) -> Datasheet:
    """Makes the folder of a sheet, with a page of one cell."""
    sheet = sheet_of(broker, run_directory=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datasheet.json").write_text(sheet.to_json(), encoding="utf-8")
    page = folder / "cells" / "connect-tcp" / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("its own page", encoding="utf-8")
    return sheet


def write_datasheets(folder: Path) -> SheetComparison:
    """Makes the folder of sheets side by side: three brokers, two of them with two passes."""
    found = compared_sheets(str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datasheets.json").write_text(found.to_json(), encoding="utf-8")
    return found


def compared_sheets(folder: str = "") -> SheetComparison:
    """Returns sheets side by side, played in the order A B C B A."""
    order = (MOSQUITTO, NANOMQ, ARTEMIS, NANOMQ, MOSQUITTO)
    sheets = [
        sheet_of(
            broker,
            seed=turn,
            run_directory=f"sheets/{turn}-{broker.name}",
            started=f"2026-11-21T{12 + turn}:00:00+00:00",
        )
        for turn, broker in enumerate(order, 1)
    ]
    return compare_sheets(sheets, folder)


def sheet_of(broker: ExampleBroker = MOSQUITTO, seed: int = 1, **changes: object) -> Datasheet:
    """Returns a sheet. Its values differ from those of the broker by chance, within ERROR."""
    chance = random.Random(f"{broker.name} {seed}")
    cells = tuple(cell for part in PARTS for cell in part(broker, chance))
    anchors = tuple(_estimate(chance, broker.rate_per_s, "per_s") for _ in range(3))
    values = [each.value for each in anchors]
    return Datasheet(
        name="datasheet",
        scenario=broker.name,
        target=None,
        run_directory=f"runs/{broker.name}",
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:30:40+00:00",
        complete=True,
        identity=_identity(broker),
        plan="default",
        for_s=1800,
        spent_s=1768,
        cells=cells,
        drift=SheetDrift(
            figure="1:1, QoS 1, 256 B",
            values=anchors,
            spread=(max(values) - min(values)) * len(values) / sum(values),
        ),
        remarks=("other programs used 4 % of this host's processors",),
    ).model_copy(update=changes)


def _identity(broker: ExampleBroker) -> Identity:
    return Identity(
        broker=broker.name,
        version=broker.version,
        recipe=broker.name,
        source=f"apt-get install {broker.name}",
        settings=f"kind: {broker.name}\ncpus: [0]\nsettings:\n  max_queued_messages: 0\n",
        changed=("max_queued_messages: 0, no limit", "set_tcp_nodelay: true"),
        known=("one thread serves all clients",),
        cpus=(0,),
        memory_bytes=2_000_000_000,
        garbage=broker.garbage,
        environment=ENVIRONMENT,
    )


def _estimate(chance: random.Random, value: float, unit: Unit, repeats: int = 3) -> Estimate:
    found = value * (1 + chance.gauss(0, ERROR / 4))
    return Estimate(
        value=round(found, 4),
        low=round(found * (1 - ERROR), 4),
        high=round(found * (1 + ERROR), 4),
        repeats=repeats,
        unit=unit,
    )


@dataclass
class Maker:
    """Makes the cells of one section."""

    section: Section
    chance: random.Random

    def cell(
        self, name: str, title: str, figures: Sequence[SheetFigure], **more: object
    ) -> SheetCell:
        """Returns a cell that was measured."""
        fields: dict[str, object] = {
            "state": "measured",
            "folder": f"cells/{name}",
            "command": f"pubstorm datasheet mosquitto --only {name}",
            "took_s": 20.5,
            "figures": tuple(figures),
        }
        return SheetCell.model_validate(
            {"name": name, "section": self.section, "title": title, **fields, **more}
        )

    def absent(self, name: str, title: str, why: str, state: CellState = "left out") -> SheetCell:
        """Returns a cell without figures."""
        return SheetCell(name=name, section=self.section, title=title, state=state, why=why)

    def figure(
        self, name: str, value: float, unit: Unit, better: Better = "more", **more: object
    ) -> SheetFigure:
        """Returns a figure with its interval."""
        estimate = _estimate(self.chance, value, unit)
        fields = {"name": name, "estimate": estimate, "better": better, **more}
        return SheetFigure.model_validate(fields)


def _connections(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("connections", chance)
    for name, share in (("TCP", 1.0), ("TLS 1.3", 0.12), ("WebSocket", 0.7)):
        rate = broker.rate_per_s / 8 * share
        limit = LimitedBy.BROKER if share < 1 else LimitedBy.GENERATOR
        figures = (
            make.figure("connects a second", rate, "per_s", limited_by=limit),
            make.figure("CPU for each", 1e6 / rate, "us", "less"),
        )
        key = f"connect-{name.split()[0].lower()}"
        yield make.cell(key, f"connect, {name}", figures, load="1 000 clients")
    most = Estimate(value=20_000, low=20_000, high=20_000, bound="at_least")
    largest = SheetFigure(name="clients at most", estimate=most, better="more")
    yield make.cell("most-clients", "idle clients", (largest,), load="keep-alive of 60 s")


def _memory(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("memory", chance)
    remarks = ("extrapolated to 1 000 000 sessions: 4.30 GB",)
    for name, share in (("session", 1.0), ("persistent session", 1.3), ("TLS connection", 7.5)):
        own = remarks if name == "session" else ()
        figure = make.figure(
            "bytes of each", broker.session_bytes * share, "bytes", "less", r_squared=0.9991
        )
        figures = (
            figure.model_copy(update={"remarks": own}),
            make.figure("given back", 0.93, "share", "more"),
        )
        yield make.cell(name.replace(" ", "-"), name, figures, load="1 000 to 8 000 clients")
    why = "the readings did not become flat in 30 s"
    yield make.cell("retained", "retained message of 256 B", (), state="without figures", why=why)


def _throughput(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("throughput", chance)
    for shape, qos, size in product(SHAPES, QOS, SIZES):
        name, title = f"{shape}-{qos}-{size}".replace(" ", ""), f"{shape}, QoS {qos}, {size}"
        if shape == "fan-out" and size in ("16 B", "64 kB"):
            yield make.absent(name, title, NO_TIME)
            continue
        rate = broker.rate_per_s * SHAPES[shape] * QOS[qos] * SIZES[size]
        limit = LimitedBy.HOST if shape == "fan-out" and qos == 0 else LimitedBy.BROKER
        figures = (
            make.figure("messages a second", rate, "per_s", limited_by=limit),
            make.figure("CPU for each", 0.9e6 / rate, "us", "less"),
            make.figure("messages a core-second", rate / 0.9, "per_s"),
        )
        evidence = (f"the largest rate with p99 < 100 ms is {rate:.0f}/s",)
        yield make.cell(name, title, figures, evidence=evidence)
    if not broker.has_sharing:
        why = "this broker has no shared subscriptions"
        yield make.absent("shared", "shared group, QoS 1, 256 B", why)
        return
    figure = make.figure("messages a second", broker.rate_per_s * 0.8, "per_s")
    yield make.cell("shared", "shared group, QoS 1, 256 B", (figure,))


def _latency(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("latency", chance)
    for percent in (10, 50, 80):
        base = 6e6 / broker.rate_per_s * (1 + percent / 40)
        figures = [
            make.figure(name, base * factor, "us", "less")
            for name, factor in (("p50", 1.0), ("p99", 4.0), ("p99.9", 11.0))
        ]
        if percent == 80:
            why = "16 bytes have no room for a stamp, and the order was lost"
            figures[2] = SheetFigure(name="p99.9", better="less", remarks=(why,))
        rate = round(broker.rate_per_s * percent / 100)
        title = f"{percent} % of the capacity"
        yield make.cell(f"latency-{percent}", title, figures, load=f"{rate:,}/s".replace(",", " "))


def _trouble(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("trouble", chance)
    figures = [
        make.figure("all clients are back", broker.recovery_s, "s", "less"),
        make.figure("lost at QoS 1", 120 * broker.recovery_s, "", "less"),
        make.figure("sessions lost", 0.25, "share", "less"),
        SheetFigure(name="queued messages", word="delivered"),
    ]
    yield make.cell("restart", "kill and restart", figures, load="1 000 clients, 2 000/s")
    figures = [
        make.figure("all clients are back", broker.recovery_s / 2, "s", "less"),
        make.figure("connects a second", broker.rate_per_s / 9, "per_s"),
    ]
    yield make.cell("storm", "reconnect storm", figures, load="1 000 clients")
    figures = [
        SheetFigure(name="slow reader", word="is disconnected after 12 s"),
        SheetFigure(name="others", word="do not suffer"),
    ]
    yield make.cell("slow-reader", "slow reader", figures, load="one reader of 100")


def _features(broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("features", chance)
    words = {
        "retained messages": "yes",
        "shared subscriptions": "yes" if broker.has_sharing else "no",
        "topic aliases": "yes",
        "message expiry": "yes",
        "request and response": "yes",
        "subscription identifiers": "no" if broker.garbage else "yes",
    }
    yield make.cell(
        "features", "MQTT 5.0", [SheetFigure(name=name, word=word) for name, word in words.items()]
    )


def _limits(_broker: ExampleBroker, chance: random.Random) -> Iterator[SheetCell]:
    make = Maker("limits", chance)
    packet = Estimate(
        value=268_435_455, low=268_435_455, high=268_435_455, bound="at_least", unit="bytes"
    )
    topic = Estimate(value=65_535, low=65_535, high=65_535, unit="bytes")
    levels = Estimate(value=200, low=200, high=201, bound="none")
    for name, estimate in (("packet", packet), ("topic", topic), ("levels", levels)):
        figures = (SheetFigure(name="largest", estimate=estimate, better="more"),)
        yield make.cell(f"largest-{name}", name, figures)
    yield make.absent("largest-subscriptions", "subscriptions of a client", "", "not played")


PARTS = (_connections, _memory, _throughput, _latency, _trouble, _features, _limits)

"""`mqtt5-features` on four brokers, and the part of it that MQTT 3.1.1 has. The table in
docs/how-to/mqtt5.md is what the runs have to measure. Every other step plays over WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from pubstorm.scenario.load import find_scenario
from tests.kit.runs import Run, RunMaker
from tests.world.brokers.other_brokers import artemis, ejabberd

pytestmark = pytest.mark.concerns(
    "crates/broker/",
    "crates/engine/src/seam",
    "crates/mqtt/",
    "docs/how-to/mqtt5.md",
    "scenarios/mqtt5-features.yaml",
    "tests/world/brokers/",
)

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "mqtt5.md"
HEADING = "| feature | "
POPULATIONS = ("device", "observer", "late")
FEATURES = yaml.safe_load(find_scenario("mqtt5-features").read_text())["sweep"]["steps"]
KEPT = next(step for step in FEATURES if step["step"] == "session that is kept")
OLD = {f"populations.{name}.version": "3.1.1" for name in POPULATIONS}
OLD_FEATURES = [
    {"step": "MQTT 3.1.1", **OLD},
    {
        "step": "MQTT 3.1.1: retained messages",
        **OLD,
        "populations.device.publications.0.retain": True,
        "stages.3": {"hold": "500ms"},
        "thresholds": ["late.retained == 20"],
    },
    {
        "step": "MQTT 3.1.1: session that is kept",
        **OLD,
        "populations.observer.session": "persistent",
        "stages": KEPT["stages"],
        "thresholds": ["observer.received == 400", "lost == 0"],
    },
]
STEPS = OLD_FEATURES + FEATURES
TRANSPORTS = {"tcp": STEPS[::2], "websocket": STEPS[1::2]}
OF_EJABBERD = (
    *(f"populations.{name}.{key}=x" for name in POPULATIONS for key in ("username", "password")),
    # It ends each connection with a shared subscription.
    "populations.observer.reconnect=never",
)
OTHERS = {"ejabberd": (ejabberd, OF_EJABBERD), "Artemis": (artemis, ())}
"""Brokers that the test starts, and settings for them."""


def published() -> dict[str, dict[str, str]]:
    """Returns the table of the guide: broker, feature, and pass or fail."""
    _, _, after = PAGE.read_text().partition(HEADING)
    lines = (HEADING + after).split("\n\n")[0].splitlines()
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        broker: {row[0]: row[column] for row in rows}
        for column, broker in enumerate(heading)
        if column > 0
    }


@pytest.mark.slow("25 steps are played, half of them over WebSocket")
@pytest.mark.parametrize("broker", published())
def test_a_broker_has_the_features_of_the_guide(
    start: RunMaker, tmp_path: Path, broker: str
) -> None:
    """The runs of both transports play side by side, each on a broker of its own."""
    name, runs = broker.split()[0], []
    with ExitStack() as stack:
        for transport, steps in TRANSPORTS.items():
            folder = tmp_path / transport
            folder.mkdir()
            settings = stack.enter_context(at(name, transport, folder))
            steps_word = f"sweep.steps={json.dumps(steps)}"
            runs.append(start(find_scenario("mqtt5-features"), *settings, "--set", steps_word))
        for run in runs:
            run.finish()
    assert {**measured(runs[0]), **measured(runs[1])} == published()[broker]


@contextmanager
def at(name: str, transport: str, folder: Path) -> Iterator[list[str]]:
    """Starts a broker, unless the run starts one; yields arguments for `pubstorm run`."""
    if name in OTHERS:
        serve, settings = OTHERS[name]
        with serve(folder) as targets:
            words = [word for each in settings for word in ("--set", each)]
            yield ["--target", targets[transport], *words]
    else:
        place = f"{{kind: {name}, transport: {transport}}}"
        yield ["--set", f"topology.brokers.broker={place}"]


def measured(run: Run) -> dict[str, str]:
    """Returns the verdict of each feature."""
    series = json.loads((run.directory / "series.json").read_text())
    return {step["label"]: step["status"] for step in series["steps"]}

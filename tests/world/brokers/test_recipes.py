"""Every recipe that counts as tried starts its broker, which passes messages of each QoS that the
recipe names: plainly, with persistence over WebSocket, and under TLS."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pubstorm.scenario.recipes import Recipe, find_recipe, load_recipe, recipe_names
from tests.kit.artemis_server import HOME
from tests.kit.runs import RunMaker

pytestmark = pytest.mark.concerns(
    "python/pubstorm/scenario/recipes.py",
    "python/pubstorm/topology/adapters/",
    "recipes/",
    "scripts/brokers/",
    "scripts/install-brokers",
    "tests/world/brokers/test_recipes.py",
)

BROKERS = Path(os.environ.get("PUBSTORM_BROKERS") or Path.home() / ".cache/pubstorm/brokers")
RECIPES = {name: load_recipe(find_recipe(name)) for name in recipe_names()}
TRIED = {name: recipe for name, recipe in RECIPES.items() if recipe.untried is None}
PROGRAMS = {
    "ejabberd": "ejabberdctl",
    "mosquitto": "mosquitto",
    "nats": "nats-server",
    "rabbitmq": "rabbitmq-server",
}
PATH = f"{os.environ['PATH']}:/usr/sbin"
RATE_PER_S, SPAN_S, CLIENTS = 20, 2, 3
SENT = RATE_PER_S * SPAN_S * CLIENTS


def is_installed(name: str) -> bool:
    """Returns True if the broker of a recipe is installed."""
    if name == "artemis":
        return HOME.exists()
    if name in PROGRAMS:
        return shutil.which(PROGRAMS[name], path=PATH) is not None
    return name == "embedded" or (BROKERS / name / "VERSION").exists()


def played(recipe: Recipe, **variant: bool) -> dict[str, Any]:
    """Returns a scenario with pairs of each QoS."""
    login = {} if recipe.login is None else recipe.login.model_dump()
    populations = {
        f"qos{qos}": {
            "clients": CLIENTS,
            "subscriptions": [{"topic": f"{qos}/{{n}}", "qos": qos}],
            "publications": [
                {"topic": f"{qos}/{{n}}", "qos": qos, "rate": f"{RATE_PER_S}/s", "size": "64B"}
            ],
            **login,
        }
        for qos in range(recipe.qos + 1)
    }
    return {
        "topology": {"brokers": {"main": recipe.entry(**variant)}},
        "populations": populations,
        "stages": ["connect", {"publish": f"{SPAN_S}s"}, "disconnect"],
        "drain": "30s",
    }


@pytest.mark.slow("a broker starts up to three times, some on a JVM")
@pytest.mark.parametrize("name", TRIED)
def test_a_recipe_starts_a_broker_that_passes_messages(
    start: RunMaker, tmp_path: Path, name: str
) -> None:
    recipe = TRIED[name]
    if not is_installed(name):
        pytest.skip(f"{recipe.name} is not installed: {recipe.install}")
    variants = [{}, {"persistent": recipe.persistent is not None, "websocket": recipe.websocket}]
    variants += [{"tls": True}] if recipe.tls else []
    for number, variant in enumerate(variants):
        scenario = tmp_path / f"{name}-{number}.yaml"
        scenario.write_text(json.dumps(played(recipe, **variant)))
        run = start(scenario)
        code = run.finish()
        result = run.result()
        assert code == 0, run.stderr
        assert result["brokers"][0]["version"], name
        received = {name: each["received_total"] for name, each in result["populations"].items()}
        assert received == {f"qos{qos}": SENT for qos in range(recipe.qos + 1)}, variant

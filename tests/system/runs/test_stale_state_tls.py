"""Looking for stale state under TLS: as the plan's clients verify it, and where Python cannot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import Plan, PlannedPsk, PlannedTls
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.play.clean_start.observer import Deadline, TargetFindings, look_before
from pubstorm.scenario import parse_scenario

pytestmark = pytest.mark.xdist_group("stale_state_tls")
MosquittoMaker = Callable[..., Any]
NAME = "broker.test"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for `NAME` that vouches for itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("keys")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout b.key -out b.crt -batch"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    subprocess.run([*command.split(), *subject], cwd=folder, check=True, capture_output=True)
    return folder


def plan_of(broker: Any, tls: PlannedTls) -> Plan:
    text = f"""\
target: {broker.url}
populations: {{c: {{clients: 1, subscriptions: ["up/#"]}}}}
stages: [connect]
"""
    scenario = parse_scenario(text, "s.yaml")
    plan = compile_plan(scenario, planned_targets(scenario), run_tag=0)
    targets = tuple(target.model_copy(update={"tls": True}) for target in plan.targets)
    populations = tuple(p.model_copy(update={"tls": tls}) for p in plan.populations)
    return plan.model_copy(update={"targets": targets, "populations": populations})


@pytest.fixture(scope="module")
def look(shared_mosquitto: MosquittoMaker, keys: Path) -> Callable[[PlannedTls], TargetFindings]:
    """Looks at a broker under TLS that keeps one message."""
    broker = shared_mosquitto(certfile=keys / "b.crt", keyfile=keys / "b.key")
    publisher = shutil.which("mosquitto_pub")
    if publisher is None:
        pytest.skip("mosquitto_pub is not installed (apt-get install mosquitto-clients)")
    secured = ["--cafile", str(keys / "b.crt"), "--insecure", "-p", str(broker.port)]
    message = ["-t", "up/x", "-r", "-m", "old", "-q", "1"]
    subprocess.run([publisher, *secured, *message], check=True, timeout=15)
    return lambda tls: look_before(plan_of(broker, tls), 0, Deadline(10))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"server_name": NAME}, None),
        ({"ca": None, "verify": False}, None),
        ({"server_name": "other.test"}, "Hostname mismatch"),
        ({"ca": None, "server_name": NAME}, "certificate verify failed"),
        ({"ca": "/nonexistent"}, "TLS files"),
        ({"psk": PlannedPsk(file="psk", identity="c")}, "pre-shared keys"),
    ],
)
def test_only_what_is_verified_or_need_not_be_is_looked_at(
    look: Callable[[PlannedTls], TargetFindings],
    keys: Path,
    change: dict[str, Any],
    problem: str | None,
) -> None:
    found = look(PlannedTls(ca=str(keys / "b.crt")).model_copy(update=change))
    (stale_state,) = found.stale_state
    expected = ("retained", 1) if problem is None else ("unknown", 0)
    assert (stale_state.what, stale_state.total) == expected
    assert (problem or "up/x") in stale_state.text
    assert found.retained == ({"up/x": b"old"} if problem is None else {})

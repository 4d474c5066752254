"""Boundaries of ARCHITECTURE.md that `make lint` does not hold: libraries, and crates of Rust."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "python" / "pubstorm"
FOREIGN = {
    "click": {
        "cli.record",
        "cli.run",
        "cli",
        "cli.options",
        "cli.broker",
        "cli.change",
        "cli.compare",
        "cli.datasheet",
        "cli.check",
        "cli.init",
        "cli.stored",
        "cli.imports",
        "cli.view",
        "cli.outcome",
        "cli.keys",
    },
    "cryptography": {"host.keys.certificates"},
    "jinja2": {"report.page"},
    "pandas": {"api.stored"},
    "pyarrow": {"report.data"},
    "paho": {"cli.record.subscription", "topology.observer", "topology.proxy_header"},
    "google": {"scenario.encodings", "web.metrics"},
    "fastavro": {"scenario.encodings"},
    "backports": {"scenario.encodings"},
    "opentelemetry": {"exports.otlp"},
    "prometheus_client": {"web.metrics"},
    "psutil": {
        "host.environment",
        "measure.monitors.process",
        "measure.monitors.profiling",
        "host.preflight.host",
        "topology.broker",
        "web.monitors",
    },
    "pika": {"play.clean_start.declared"},
    "pyroute2": {"host.sockets"},
    "redis": {"topology.identities.seeding"},
    "ray": {
        "fleet.ray.cluster",
        "fleet.ray.hosts",
        "fleet.ray.runner",
        "fleet.ray.site",
        "fleet.ray.choice",
    },
    "yaml": {"scenario.document"},
    "starlette": {"web.server", "web.live", "web.start", "web.metrics", "web.monitors"},
    "uvicorn": {"web.server"},
    "rich": {
        "cli.run",
        "report.text",
        "play.display",
        "play.display.terminal",
        "report",
        "report.search",
        "report.series",
    },
    "confluent_kafka": {"fleet.kafka_agent.consumers"},
    "proton": {"fleet.amqp1_agent.session"},
    "zmq": {
        "fleet.programs",
        "fleet.zmq_agent.__main__",
        "fleet.zmq_agent.publisher",
        "fleet.zmq_agent.sockets",
        "fleet.zmq_agent.subscribers",
    },
}
PURE_CRATES = ("plan", "mqtt", "nats", "sparkplug", "websocket", "zmtp")
EVENT_LOOP = {"mio"}
EVENT_LOOP_USERS = {"agent", "engine", "proxy", "sink", "zmq"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = dict(modules())


@pytest.mark.parametrize("library", FOREIGN)
def test_a_library_is_known_in_its_place_only(library: str) -> None:
    users = {
        name
        for name, tree in MODULES.items()
        if any(module.split(".")[0] == library for module in imported(tree))
    }
    assert users <= FOREIGN[library]


def test_only_command_line_and_display_print() -> None:
    for name, tree in MODULES.items():
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        prints = [f for f in calls if isinstance(f, ast.Name) and f.id == "print"]
        assert not prints or name.startswith(("cli", "play.display")), name


def manifests() -> dict[str, dict[str, object]]:
    paths = ROOT.glob("crates/*/Cargo.toml")
    return {path.parent.name: tomllib.loads(path.read_text()) for path in paths}


def test_pure_crates_depend_on_no_socket() -> None:
    for name in PURE_CRATES:
        dependencies = manifests()[name].get("dependencies", {})
        assert isinstance(dependencies, dict)
        assert not set(dependencies) & {"mio", "nix", "rustix", "libc", "tokio", "log"}, name


def test_pure_crates_forbid_clocks_sockets_and_files() -> None:
    for name in PURE_CRATES:
        rules = tomllib.loads((ROOT / "crates" / name / "clippy.toml").read_text())
        assert "disallowed-types" in rules or "disallowed-methods" in rules, name


def test_only_agents_and_proxy_know_the_event_loop() -> None:
    for name, manifest in manifests().items():
        dependencies = manifest.get("dependencies", {})
        assert isinstance(dependencies, dict)
        assert name in EVENT_LOOP_USERS or not set(dependencies) & EVENT_LOOP, name


def test_only_its_protocol_names_the_crate_mqtt_in_the_engine() -> None:
    source = ROOT / "crates" / "engine" / "src"
    for path in sorted(source.rglob("*.rs")):
        name = str(path.relative_to(source))
        if not name.startswith(("seam/mqtt.rs", "seam/mqtt/")):
            assert not re.search(r"(?<![\w:])(?:::)?mqtt::", path.read_text()), name


def test_the_test_kit_is_for_tests() -> None:
    for name, manifest in manifests().items():
        assert "testkit" not in manifest.get("dependencies", {}), name  # type: ignore[operator]


def test_an_agent_of_pyzmq_loads_nothing_of_what_the_controller_does() -> None:
    code = "import sys, pubstorm.fleet.zmq_agent.__main__; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in found.stdout.split() if name.startswith("pubstorm.")}
    assert loaded == {"contract", "errors", "files", "fleet", "quantities"}

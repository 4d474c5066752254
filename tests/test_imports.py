"""The boundaries of ARCHITECTURE.md: which module may know which."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "pubstorm"
FLOW = ("scenario", "plan", "fleet", "merge", "result", "verdict", "report")
REPORT_KNOWS = {
    "console",
    "errors",
    "histogram",
    "metrics",
    "quantity",
    "report",
    "result",
    "samples",
    "snapshot",
    "value",
}
FOREIGN = {
    "click": {
        "cli",
        "cli.asked",
        "cli.broker",
        "cli.calibrate",
        "cli.change",
        "cli.check",
        "cli.down",
        "cli.lazy",
        "cli.report",
        "cli.run",
        "cli.scenarios",
        "identities.command",
        "keys.command",
    },
    "cryptography": {"keys.authority", "keys.certificates"},
    "hdrh": {"report.hdr_log"},
    "jinja2": {"report.page"},
    "plotly": {"report.page"},
    "paho": {
        "monitor.bridges",
        "monitor.login",
        "monitor.sys_topics",
        "polling",
        "residue.observer",
    },
    "prometheus_client": {"monitor.prometheus"},
    "psutil": {
        "environment",
        "memory",
        "monitor.host",
        "monitor.process",
        "monitor.profiling",
        "preflight.host",
        "topology.ports",
    },
    "redis": {"identities.store"},
    "ray": {
        "fleet.ray.cluster",
        "fleet.ray.runner",
        "fleet.ray.site",
        "fleet.ray.slot",
        "fleet.ray.words",
    },
    "yaml": {"scenario.document", "scenario.secrets"},
    "rich": {
        "cli.run",
        "console",
        "live",
        "live.terminal",
        "report",
        "report.search",
        "report.series",
        "report.text",
    },
    "zmq": {
        "fleet.curve",
        "zmq_agent.__main__",
        "zmq_agent.publisher",
        "zmq_agent.sockets",
        "zmq_agent.stages",
        "zmq_agent.subscribers",
    },
}
MONITORS_KNOW_NOTHING_OF = {"conduct", "fleet", "live", "merge", "run", "topology", "watch"}
PURE_CRATES = ("plan", "mqtt")
EVENT_LOOP = {"mio"}
EVENT_LOOP_USERS = {"engine", "proxy", "zmq"}


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


def known(tree: ast.AST) -> set[str]:
    """The first part under `pubstorm` of everything imported."""
    own = (name.removeprefix("pubstorm.") for name in imported(tree) if "pubstorm." in name)
    return {name.split(".")[0] for name in own}


MODULES = dict(modules())


def test_nobody_imports_the_command_line() -> None:
    users = {name for name, tree in MODULES.items() if "cli" in known(tree)}
    assert {name for name in users if name.split(".")[0] != "cli"} <= {"__main__"}


def test_no_arrow_of_the_data_flow_points_back() -> None:
    for name, tree in MODULES.items():
        place = name.split(".")[0]
        if place in FLOW:
            later = set(FLOW[FLOW.index(place) + 1 :])
            assert not known(tree) & later, name


def test_reports_know_stored_results_and_nothing_else() -> None:
    for name, tree in MODULES.items():
        if name.split(".")[0] == "report":
            assert known(tree) <= REPORT_KNOWS, name


def test_a_monitor_knows_neither_run_nor_fleet() -> None:
    for name, tree in MODULES.items():
        if name.split(".")[0] == "monitor":
            assert not known(tree) & MONITORS_KNOW_NOTHING_OF, name


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
        assert not prints or name.split(".")[0] in {"cli", "live"}, name


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


def test_the_test_kit_is_for_tests() -> None:
    for name, manifest in manifests().items():
        assert "testkit" not in manifest.get("dependencies", {}), name  # type: ignore[operator]

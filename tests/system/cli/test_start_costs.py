"""Costs of a plain run, held without a clock: modules, compiled plans and programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SCENARIO = """
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device: {clients: 1, publications: [{topic: "some/{n}", interval: 100ms}]}
stages: [connect: {}, publish: 200ms]
"""
PROGRAM = """
import json, subprocess, sys
from pubstorm import plan
from pubstorm.plan import compile

compiled, asked = [], []
compile_plan, run = compile.compile_plan, subprocess.run

def counted(scenario, *arguments, **settings):
    compiled.append(scenario.name)
    return compile_plan(scenario, *arguments, **settings)

def noted(command, *arguments, **settings):
    asked.append(str(command[1]))
    return run(command, *arguments, **settings)

plan.compile_plan = compile.compile_plan = counted
subprocess.run = noted

from pubstorm.play import one_run

play, under_load = one_run._Run.play, []

async def played(self):
    output = await play(self)
    under_load.extend(sys.modules)
    return output

one_run._Run.play = played
from pubstorm.cli import main

code = main(sys.argv[1:])
found = {"code": code, "compiled": len(compiled), "asked": asked, "under_load": under_load}
print(json.dumps({**found, "at_the_end": list(sys.modules)}))
"""
OF_OTHER_RUNS = {
    "cryptography",
    "google",
    "opentelemetry",
    "paho",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pubstorm.api",
    "pubstorm.experiment.search",
    "pubstorm.experiment.series",
    "pubstorm.fleet.ray",
    "pubstorm.fleet.agents",
    "pubstorm.fleet.kafka_agent",
    "pubstorm.fleet.zmq_agent",
    "pubstorm.host.preflight.tuning",
    "pubstorm.measure.monitors.redis",
    "pubstorm.measure.monitors.remote.client",
    "pubstorm.report.of_comparison",
    "pubstorm.report.of_experiments",
    "pubstorm.topology.adapters.nats",
    "pubstorm.topology.adapters.rabbitmq",
    "pubstorm.topology.identities.seeding",
    "pubstorm.web.server",
    "ray",
    "redis",
    "starlette",
    "uvicorn",
    "zmq",
}
"""Modules that a run of this scenario needs at no time."""
OF_REPORTS = {
    "jinja2",
    "pubstorm.play.record",
    "pubstorm.report.files",
    "pubstorm.report.text",
    "pubstorm.result.verdict.findings",
    "rich",
}
"""Modules that it needs when the load is over: none of them takes memory beside the load."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    folder: Path = tmp_path_factory.mktemp("costs")
    (folder / "scenario.yaml").write_text(SCENARIO)
    command = [sys.executable, "-c", PROGRAM, "run", "scenario.yaml", "--out", "run", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    values: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert values["code"] in {0, 3}, done.stderr  # 3: on a busy host the figures are no evidence
    assert (folder / "run" / "report.html").exists()
    return values


def test_a_run_loads_nothing_of_what_other_runs_need(found: Mapping[str, Any]) -> None:
    assert OF_OTHER_RUNS & {*found["at_the_end"]} == set()


def test_what_makes_reports_is_not_loaded_beside_the_load(found: Mapping[str, Any]) -> None:
    assert OF_REPORTS & {*found["under_load"]} == set()
    assert {*found["at_the_end"]} >= OF_REPORTS


def test_a_plan_is_compiled_once(found: Mapping[str, Any]) -> None:
    assert found["compiled"] == 1


def test_the_engine_is_asked_once_for_the_load_and_git_once_for_the_commit(
    found: Mapping[str, Any],
) -> None:
    assert sorted(found["asked"]) == ["--explain", "rev-parse"]

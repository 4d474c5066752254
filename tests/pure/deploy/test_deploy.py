"""The files in deploy/ against the schemas of the programs that read them, and against each
other."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.validators import validator_for

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = ("pubstorm-ray.service", "pubstorm-ray-head.service")
KEYS = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        *("User", "EnvironmentFile", "ExecStart", "RuntimeDirectory", "RuntimeDirectoryMode"),
        *("LimitNOFILE", "TasksMax", "KillMode", "TimeoutStopSec", "Restart", "RestartSec"),
    },
    "Install": {"WantedBy"},
}
"""Keys of the units that systemd knows (systemd.unit, .service, .exec and .kill)."""
PORTS = ("6379", "6380", "6381", "6382", "6383", "6384", "6385", "10002", "10031")
"""Ports that the commands give to Ray."""


def text(name: str) -> str:
    return (DEPLOY / name).read_text()


def loaded(name: str) -> Any:
    return yaml.safe_load(text(name))


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def aws_schema() -> Any:
    """That of `ray up`, which comes with Ray."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        pytest.skip("ray is not installed: deploy/aws.yaml is not checked against its schema")
    path = Path(found.origin).parent / "autoscaler" / "ray-schema.json"
    return json.loads(path.read_text())


def rayjob_schema() -> Any:
    """A part of KubeRay's, stored beside this file; its comment says where it is from."""
    return json.loads(Path(__file__).with_name("rayjob-schema.json").read_text())


@pytest.mark.parametrize(
    ("name", "schema"), [("aws.yaml", aws_schema), ("rayjob.yaml", rayjob_schema)]
)
def test_a_file_fits_the_schema_of_its_program(name: str, schema: Callable[[], Any]) -> None:
    jsonschema.validate(loaded(name), schema())


def keys_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of the keys of a document."""
    for key, below in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        if isinstance(key, str):
            yield (*path, key)
        yield from keys_of(below, (*path, key))


FREE = {"rayStartParams", "labels", "requests", "limits", "matchLabels", "metadata"}
"""Paths at which a user chooses the keys."""


def misspelt(name: str, path: tuple[str | int, ...]) -> Any:
    """A file with one letter more at the end of a key."""
    wrong = place = loaded(name)
    for key in path[:-1]:
        place = place[key]
    place[f"{path[-1]}s"] = place.pop(path[-1])
    return wrong


def test_a_typo_anywhere_in_the_job_is_refused() -> None:
    validator = validator_for(rayjob_schema())(rayjob_schema())
    paths = [path for path in keys_of(loaded("rayjob.yaml")) if not FREE & set(path[:-1])]
    assert len(paths) > 50
    for path in paths:
        assert not validator.is_valid(misspelt("rayjob.yaml", path)), path


@pytest.mark.parametrize(
    "path",
    [("max_workers",), ("auth", "ssh_user"), ("available_node_types", "agent", "resources")],
)
def test_a_typo_in_the_cluster_on_aws_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(misspelt("aws.yaml", path), aws_schema())


def unit(name: str) -> configparser.RawConfigParser:
    """A unit's sections; of keys that stand twice the last one."""
    joined = text(name).replace("\\\n", " ")
    found = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(joined)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_the_keys_that_systemd_knows(name: str) -> None:
    found = unit(name)
    assert {section: {*found[section]} - KEYS[section] for section in found.sections()} == {
        section: set() for section in KEYS
    }
    assert found["Service"]["KillMode"] == "control-group"
    assert int(found["Service"]["LimitNOFILE"]) == 1_048_576


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_taken_by_systemd(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed: units are not verified by it")
    # It looks for the program that is started, which is not here.
    copy = tmp_path / name
    copy.write_text(text(name).replace("/opt/pubstorm/bin/ray", "/bin/true"))
    command = [program, "verify", "--man=no", str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in found.stderr.splitlines() if name in line]
    assert (found.returncode, complaints) == (0, [])


@pytest.mark.parametrize("name", UNITS)
def test_words_of_a_unit_are_options_of_ray(name: str) -> None:
    ray = pytest.importorskip("ray.scripts.scripts", reason="ray is not installed")
    known = {word for option in ray.start.params for word in option.opts + option.secondary_opts}
    command = unit(name)["Service"]["ExecStart"].split()
    options = [word for word in command if word.startswith("--")]
    assert len(options) > 10
    assert {*options} <= known


def test_ports_of_ray_are_pinned_and_no_outgoing_connection_takes_them() -> None:
    low, high = re.findall(r"ip_local_port_range = (\d+) (\d+)", text("sysctl.conf"))[0]
    assert int(high) == 65_535
    assert all(int(port) < int(low) for port in PORTS)
    for name in UNITS:
        words = " ".join(unit(name)["Service"]["ExecStart"].split())
        assert all(re.search(rf"\b{port}\b", words) for port in PORTS)
    sysctls = loaded("rayjob.yaml")["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"][
        "spec"
    ]["securityContext"]["sysctls"]
    assert sysctls == [{"name": "net.ipv4.ip_local_port_range", "value": f"{low} {high}"}]


def test_versions_are_those_of_the_project() -> None:
    (ray,) = re.findall(r"^ray==([\d.]+)", (ROOT / "requirements-dev.txt").read_text(), re.M)
    version = project()["version"]
    job = loaded("rayjob.yaml")["spec"]["rayClusterSpec"]
    assert job["rayVersion"] == ray
    every = " ".join(text(path.name) for path in sorted(DEPLOY.iterdir()))
    assert {*re.findall(r"\bray==([\d.]+\d)", every)} == {ray}
    assert {*re.findall(r"rayproject/ray:([\d.]+\d)", every)} == {ray}
    assert {*re.findall(r"pubstorm[:-](\d+\.\d+\.\d+)", every)} == {version}
    needed = re.findall(r">=(\d+)\.(\d+)", project()["requires-python"])[0]
    for python in re.findall(r"Python (\d+)\.(\d+)|-py(\d)(\d\d)\b", every):
        assert [int(part) for part in python if part] >= [int(part) for part in needed]


def test_nothing_has_a_dashboard_for_others_and_nothing_is_reported() -> None:
    assert "--include-dashboard false" in text("pubstorm-ray-head.service")
    assert text("aws.yaml").count("--disable-usage-stats") == 2
    assert text("rayjob.yaml").count("name: RAY_USAGE_STATS_ENABLED, value: ") == 2
    for name in UNITS:
        assert "--disable-usage-stats" in text(name)


def test_agents_are_one_on_each_host_and_none_is_on_the_head() -> None:
    types = loaded("aws.yaml")["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["agent"]["resources"]["pubstorm_agent"] == 1
    cluster = loaded("rayjob.yaml")["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    resources = cluster["workerGroupSpecs"][0]["rayStartParams"]["resources"]
    assert json.loads(json.loads(resources)) == {"pubstorm_agent": 1}
    assert """--resources '{"pubstorm_agent": 1}'""" in text("pubstorm-ray.service")
    assert "--num-cpus 0" in text("pubstorm-ray-head.service")

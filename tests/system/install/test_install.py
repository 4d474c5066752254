"""The sdist and the wheel: complete, small, and enough for a first run in an empty environment. The
programs are those that are built already, because a build of their own takes minutes."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.binaries import broker_path, engine_path, proxy_path, zmq_path
from pubstorm.host.sockets import RANGE_VARIABLE
from tests.kit.runs import ANY_SPEED, brokers_in

ROOT = Path(__file__).parents[3]
WHEEL_BYTES_MAX = 18_000_000
"""Size of a wheel with the programs of the gate, which are built without LTO and take more than
those of a release. `scripts/build-wheels` allows 15 MB for these."""
PLATFORM = "manylinux_2_17_x86_64"
BESIDE = (
    "click==8.1.8",
    "pydantic==2.11.7",
    "protobuf==5.29.5",
    "rich==13.9.4",
    "starlette==0.46.2",
    "uvicorn==0.35.0",
)
BUILDS = "it builds and installs packages"
pytestmark = [pytest.mark.xdist_group("install")]


@dataclass(frozen=True)
class Built:
    """The packages, and the sdist as it is unpacked."""

    source: Path
    wheel: Path


def ended(
    *words: str | Path, cwd: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with its output. It imports what is installed where it runs."""
    own = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words, cwd=cwd, env=own, capture_output=True, text=True, timeout=500, check=False
    )


def call(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Runs a command, which succeeds. Returns its output."""
    done = ended(*words, cwd=cwd, environment={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An sdist, and a wheel from that sdist with the programs that are built, stripped."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("packages")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    call("tar", "-xf", sdist, cwd=folder)
    source = folder / sdist.name.removesuffix(".tar.gz")
    programs = folder / "programs"
    programs.mkdir()
    for program in (engine_path(), broker_path(), proxy_path(), zmq_path()):
        call("strip", "-o", programs / program.name, program, cwd=folder)
    options = ("build", "-t", "wheel", "-d", folder)
    environment = {"PUBSTORM_PROGRAMS": str(programs), "PUBSTORM_PLATFORM": PLATFORM}
    call(sys.executable, "-m", "hatchling", *options, cwd=source, **environment)
    (wheel,) = folder.glob("*.whl")
    return Built(source, wheel)


@pytest.mark.slow(BUILDS)
def test_the_sdist_has_all_that_a_build_needs(built: Built) -> None:
    for folder in ("crates", "contract", "scenarios", "python"):
        wanted = {
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        there = {path.relative_to(built.source) for path in (built.source / folder).rglob("*")}
        assert wanted <= there
    command = ("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1")
    members = json.loads(call(*command, cwd=built.source).splitlines()[-1])["packages"]
    assert {f"pubstorm-{name}" for name in ("engine", "broker", "proxy", "zmq")} <= {
        member["name"] for member in members
    }
    assert not [path for path in built.source.iterdir() if path.name in {"target", ".venv", "runs"}]


@pytest.mark.slow(BUILDS)
def test_the_wheel_is_small_and_complete(built: Built) -> None:
    assert built.wheel.name.endswith(f"-py3-none-{PLATFORM}.whl")
    assert built.wheel.stat().st_size <= WHEEL_BYTES_MAX
    with zipfile.ZipFile(built.wheel) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        (path,) = (name for name in infos if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    for program in ("engine", "broker", "proxy", "zmq"):
        assert infos[f"pubstorm/bin/pubstorm-{program}"].external_attr >> 16 & 0o111
    ready = {f"pubstorm/scenarios/{path.name}" for path in (ROOT / "scenarios").iterdir()}
    assert ready <= {*infos}
    assert "pubstorm/py.typed" in infos
    assert not [name for name in infos if name.startswith(("tests", "crates"))]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*metadata.get_all("Provides-Extra", [])} == {*project["optional-dependencies"]}


def test_the_folder_of_the_programs_must_have_them_all(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    words = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    programs = {**os.environ, "PUBSTORM_PROGRAMS": str(tmp_path)}
    done = ended(*words, cwd=ROOT, environment=programs)
    assert done.returncode != 0
    assert f"{tmp_path}/pubstorm-engine is missing: build pubstorm-engine first" in done.stderr


@pytest.fixture(scope="module")
def bin_folder(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but the wheel and what it needs, beside older
    packages that a project has already. The newest ones are those of development."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    found = folder / "venv" / "bin"
    # To compile modules that no test imports takes half of the time.
    pip = (sys.executable, "-m", "pip", "--python", found / "python", "install", "--no-compile")
    call(*pip, "--quiet", "--only-binary", ":all:", built.wheel, *BESIDE, cwd=folder)
    return found


def played_alone(bin_folder: Path, folder: Path, *line: str) -> dict[str, Any]:
    """Plays a run with the installed program, in an environment with nothing else; its result."""
    own_ports = {RANGE_VARIABLE: os.environ[RANGE_VARIABLE]}
    alone = {"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8", **own_ports}
    words = (*line, "--out", "run", *ANY_SPEED)
    done = ended(bin_folder / "pubstorm", *words, cwd=folder, environment=alone)
    assert "Traceback" not in done.stderr
    result: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    status = result["verdict"]["status"]
    assert done.returncode == {"pass": 0, "fail": 1, "invalid": 3}[status], done.stderr
    assert status.upper() in done.stdout
    return result


@pytest.mark.slow(BUILDS)
def test_a_first_run_needs_nothing_but_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    result = played_alone(bin_folder, tmp_path, "run", "quickstart", "--no-report")
    assert [broker["kind"] for broker in result["brokers"]] == ["embedded"]
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert device["connected_max"] == 300
    assert backend["received_total"] == backend["expected_total"] > 0
    assert backend["lost_total"] == device["lost_total"] == 0


@pytest.mark.slow(BUILDS)
def test_a_new_user_gets_a_verdict_about_a_broker_with_one_line(
    bin_folder: Path, tmp_path: Path
) -> None:
    with brokers_in(tmp_path) as mosquitto:
        line = ("bench", "pub", mosquitto().url, "--for", "1s")
        result = played_alone(bin_folder, tmp_path, *line)
    publisher = result["populations"]["publisher"]
    assert publisher["connected_max"] == publisher["clients"]
    assert publisher["sent_total"] > 0


@pytest.mark.slow(BUILDS)
def test_the_installed_programs_are_those_of_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    find = "from pubstorm.host.binaries import *; print(engine_path(), zmq_path())"
    found = call(bin_folder / "python", "-c", find, cwd=tmp_path, PUBSTORM_PROGRAMS="").split()
    assert all(Path(path).is_relative_to(bin_folder.parent) for path in found)
    for path in found:
        assert "Usage" in call(path, "--help", cwd=tmp_path)
    assert shutil.which("pubstorm", path=str(bin_folder))

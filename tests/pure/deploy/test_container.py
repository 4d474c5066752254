"""The image and the composed services: what they copy, name and run exists. No container is made,
because a test machine has no container engine."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.kit import program

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "deploy" / "compose.yaml"
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "VOLUME", "ENTRYPOINT", "CMD"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its words."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in joined if line.strip()]
    return [(name, " ".join(words.split())) for name, _, words in found]


def image() -> list[tuple[str, str]]:
    return instructions(ROOT / "Dockerfile")


def words_of(name: str) -> list[str]:
    return [words for each, words in image() if each == name]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def ignored(name: str) -> bool:
    """True if a build does not see a file or folder of the repository."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    return f"!{name}" not in rules


@pytest.mark.parametrize("path", [ROOT / "Dockerfile", ROOT / "deploy" / "Dockerfile"])
def test_each_instruction_is_one_that_dockerfiles_have(path: Path) -> None:
    found = instructions(path)
    assert {name for name, _ in found} <= INSTRUCTIONS
    for name, words in found:
        if name == "RUN":
            subprocess.run(["/bin/sh", "-n", "-c", words], check=True, timeout=60)
        if name in {"ENTRYPOINT", "CMD"}:
            assert all(isinstance(word, str) for word in json.loads(words))


def test_what_the_image_copies_is_there_and_is_not_ignored() -> None:
    stages = {words.split(" AS ")[1] for words in words_of("FROM") if " AS " in words}
    sources: set[str] = set()
    for words in words_of("COPY"):
        options = re.findall(r"--from=(\S+)", words)
        assert {*options} <= stages
        if not options:
            sources |= {*words.split()[:-1]}
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_the_image_has_all_that_a_wheel_is_built_from() -> None:
    copied = " ".join(words for words in words_of("COPY") if "--from" not in words).split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {path.split("/")[0] for path in (*wheel["packages"], *wheel["force-include"])}
    needed |= {"Cargo.toml", "Cargo.lock", "crates", "hatch_build.py", "pyproject.toml"}
    needed |= {project["project"]["readme"], "requirements.txt"}
    assert needed <= {*copied}


def test_the_tools_of_the_image_are_new_enough() -> None:
    images = dict(re.findall(r"\b(rust|python):(\d+\.\d+)", " ".join(words_of("FROM"))))
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        "rust": cargo["workspace"]["package"]["rust-version"],
        "python": project["requires-python"].removeprefix(">="),
    }
    for name, version in wanted.items():
        assert numbers(images[name]) >= numbers(version)
    # Programs that one stage builds run in another: both have one version of glibc.
    assert {words.split()[0].partition("bookworm")[1] for words in words_of("FROM")} == {"bookworm"}


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def test_the_image_runs_pubstorm_and_not_as_root() -> None:
    last = max(n for n, (name, _) in enumerate(image()) if name == "FROM")
    final = image()[last:]
    (user,) = (words for name, words in final if name == "USER")
    assert int(user) > 0
    assert f"useradd --uid {user} " in " ".join(words_of("RUN"))
    (entry,) = (json.loads(words) for name, words in final if name == "ENTRYPOINT")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry[0] in scripts
    assert f"/usr/local/bin/{entry[0]}" in " ".join(words_of("RUN"))


def schema() -> Any:
    return json.loads(Path(__file__).with_name("compose-schema.json").read_text())


def test_the_services_fit_the_schema_of_compose() -> None:
    composed = yaml.safe_load(COMPOSE.read_text())
    jsonschema.validate(composed, schema())
    for name in services():
        wrong = yaml.safe_load(COMPOSE.read_text())
        wrong["services"][name]["ulimit"] = wrong["services"][name].pop("ulimits")
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema())


def test_the_services_name_folders_volumes_and_services_that_exist() -> None:
    composed = yaml.safe_load(COMPOSE.read_text())
    for service in services().values():
        if "build" in service:
            assert (COMPOSE.parent / service["build"] / "Dockerfile").is_file()
        for volume in service.get("volumes", []):
            name, _, path = volume.partition(":")
            assert name in composed["volumes"]
            # A volume takes the owner of the image's folder, and the run writes into it.
            assert path in words_of("VOLUME")
        assert {*service.get("depends_on", {})} <= {*services()}


def test_the_composed_load_is_a_line_that_pubstorm_plays() -> None:
    load = services()["pubstorm"]
    words = (*load["command"], "--print")
    done = program.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "mqtt://broker:1883" in done.stdout
    assert "broker" in services()


@pytest.mark.parametrize("path", [ROOT / "Dockerfile", COMPOSE])
def test_the_commands_in_the_comments_name_files_that_exist(path: Path) -> None:
    lines = [line.removeprefix("#").strip() for line in path.read_text().splitlines()]
    commands = [line for line in lines if line.startswith("docker ")]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        files = [after for word, after in pairwise(words) if word == "--file"]
        assert all((ROOT / file).is_file() for file in files)

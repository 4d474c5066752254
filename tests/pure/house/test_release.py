"""A release: its workflows name what exists, its notes are cut from the changelog, and its site has
a folder for each version. No workflow has run: a test machine is no host of workflows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.release_notes import ReleaseError, changes, release_notes
from scripts.site_versions import add_version

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*"))
PINNED = re.compile(r"uses: ([\w.-]+/[\w.-]+@[0-9a-f]{40}) # v\d+\.\d+\.\d+$")
PROGRAMS = {"apt-get", "docker", "echo", "gh", "git", "rustup", "test"}
"""Programs that runners of workflows and their containers have."""
BASE = "https://code.example/pubstorm/blob/v1.2.0"


def loaded(path: Path) -> dict[str, Any]:
    """Returns a workflow. The key `on` is a word for true in YAML 1.1."""
    found: dict[object, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else str(key): value for key, value in found.items()}


JOBS = [
    (f"{path.name}:{name}", job) for path in WORKFLOWS for name, job in loaded(path)["jobs"].items()
]


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for place, job in JOBS:
        yield from ((place, step) for step in job.get("steps", ()))


def commands(script: str) -> Iterator[list[str]]:
    """Yields the words of each command of a script for the shell."""
    for line in script.replace("\\\n", " ").replace("||\n", "|| ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line), "|"]:
            if word in {"|", "||", "&&"}:
                yield words
                words = []
            else:
                words.append(word)


COMMANDS = [
    (place, words) for place, step in steps() for words in commands(step.get("run", "")) if words
]


def makes(target: str) -> bool:
    return re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M) is not None


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=lambda value: str(value)[:60])
def test_each_command_of_a_workflow_exists(place: str, words: list[str]) -> None:
    program, *rest = words
    match program:
        case "make":
            assert rest and all(makes(target) for target in rest), place
        case "python3":
            assert (ROOT / rest[0]).is_file(), place
        case _:
            is_assignment = re.fullmatch(r"\w+=\S*", program) is not None
            assert is_assignment or program in PROGRAMS or (ROOT / program).is_file(), place


def test_workflows_gate_and_build_before_they_publish() -> None:
    ran = {" ".join(words[:2]) for _, words in COMMANDS}
    assert {".ci/run", "make wheel", "make docs-site", "docker push", "gh release"} <= ran
    jobs = loaded(FOLDER / "release.yaml")["jobs"]
    needed = {
        name: {*([job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", ()))}
        for name, job in jobs.items()
    }
    assert jobs["gate"]["uses"] == "./.github/workflows/gate.yaml"
    assert {name for name, needs in needed.items() if not needs} == {"gate", "build"}
    assert needed["publish"] == {"gate", "build"}
    assert set().union(*needed.values()) <= set(jobs)


def test_each_script_of_a_workflow_is_one_for_the_shell() -> None:
    for place, step in steps():
        script = step.get("run", "")
        assert "${{" not in script, f"{place}: values come by variables, which no shell expands"
        subprocess.run(["/bin/sh", "-n", "-c", script], check=True, timeout=60)


def test_actions_are_named_by_the_hash_of_one_version() -> None:
    lines = [
        line.strip().removeprefix("- ")
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    pinned = [found[1] for line in lines if (found := PINNED.match(line))]
    local = [line for line in lines if line.startswith("uses: ./")]
    assert len(pinned) + len(local) == len(lines) > 10
    assert len({name.partition("@")[0] for name in pinned}) == len({*pinned})
    assert all((ROOT / line.removeprefix("uses: ")).is_file() for line in local)


def test_only_jobs_that_publish_may_write() -> None:
    for path in WORKFLOWS:
        assert loaded(path)["permissions"] == {"contents": "read"}, path
    granted = {
        place.partition(":")[2]: {
            name for name, right in job["permissions"].items() if right == "write"
        }
        for place, job in JOBS
        if "permissions" in job
    }
    assert granted == {
        "publish": {"id-token", "attestations"},
        "image": {"packages"},
        "image-index": {"packages", "id-token", "attestations"},
        "release": {"contents"},
        "site": {"contents"},
    }


def test_jobs_fetch_what_another_job_has_stored() -> None:
    def named(action: str) -> set[str]:
        return {
            step["with"]["name"] for _, step in steps() if f"/{action}@" in step.get("uses", "")
        }

    assert named("download-artifact") == named("upload-artifact") == {"packages", "notes", "site"}


def test_containers_of_workflows_have_the_rust_of_the_image() -> None:
    image = re.search(r"^FROM rust:(\S+)-slim-(\S+) ", (ROOT / "Dockerfile").read_text(), re.M)
    assert image is not None
    used = {job["container"]["image"] for _, job in JOBS if "container" in job}
    assert used == {f"rust:{image[1]}-{image[2]}"}


def project(folder: Path, version: str, changelog: str) -> Path:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    return folder


CHANGELOG = """# Changelog

## 1.10.0 (2026-12-01)

- Later.

## 1.2.0 (2026-11-29)

### Changed

- A [guide](docs/guide.md#part) and a
  second line, and [a page
  elsewhere](https://other.example/page).
- Next.

Older versions: [1.1](CHANGELOG-1.1.md).
"""


def test_notes_are_the_part_of_a_version_with_links_to_its_files(tmp_path: Path) -> None:
    root = project(tmp_path, "1.2.0", CHANGELOG)
    assert release_notes(root, "1.2.0", BASE) == (
        "### Changed\n\n"
        f"- A [guide]({BASE}/docs/guide.md#part) and a second line, and "
        "[a page elsewhere](https://other.example/page).\n"
        "- Next.\n"
    )


@pytest.mark.parametrize(
    ("version", "changelog", "found"),
    [
        ("1.3.0", CHANGELOG, "found version 1.3.0, pyproject.toml has 1.2.0"),
        ("1.2.0", "# Changelog\n", "no changelog has a part of version 1.2.0"),
        ("1.2.0", CHANGELOG.replace("2026-11-29", "unreleased"), "1.2.0 (unreleased)"),
    ],
)
def test_a_version_that_is_not_released_has_no_notes(
    tmp_path: Path, version: str, changelog: str, found: str
) -> None:
    root = project(tmp_path, "1.2.0", changelog)
    with pytest.raises(ReleaseError, match=re.escape(found)):
        release_notes(root, version, BASE)


def test_the_changelog_has_a_part_of_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading, notes = changes(ROOT, version)
    assert heading.startswith(version)
    assert notes.count("\n- ") > 10


def test_a_wrong_tag_ends_in_words() -> None:
    script = [sys.executable, "scripts/release_notes.py", "v0.0.0", "--base", BASE]
    ended = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.match(r"error: .*\n  hint: ", ended.stderr)


def test_each_version_of_the_site_has_a_folder_and_the_newest_one_is_first(tmp_path: Path) -> None:
    built, pages = tmp_path / "site", tmp_path / "pages"
    built.mkdir()
    pages.mkdir()
    (built / "old.html").write_text("")
    for version in ("0.9.0", "0.10.0", "0.2.0"):
        (built / "index.html").write_text(version)
        add_version(built, pages, version)
    (built / "old.html").unlink()
    add_version(built, pages, "0.9.0")
    listed = json.loads((pages / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["0.10.0", "0.9.0", "0.2.0"]
    assert 'url=0.10.0/"' in (pages / "index.html").read_text()
    assert not (pages / "0.9.0" / "old.html").exists()
    assert (pages / "0.2.0" / "old.html").exists()


@pytest.mark.parametrize(("built", "version"), [("site", "latest"), ("nothing", "0.2.0")])
def test_a_site_without_version_or_pages_is_refused(
    tmp_path: Path, built: str, version: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").touch()
    script = [sys.executable, str(ROOT / "scripts/site_versions.py")]
    ended = subprocess.run(
        [*script, built, ".", version], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


def test_the_menu_of_versions_reads_the_list_of_the_script() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["extra"] == {"version": {"provider": "mike"}}

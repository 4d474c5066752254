"""Later versions of Python, where the machine has them: loops, children and servers differ in each.
The package is installed as its lock says, and what depends on the version is tested."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSIONS = ("3.12", "3.13")
TOOLS = ("attrs", "hypothesis", "iniconfig", "packaging", "pluggy", "pygments", "pytest")
MORE_TOOLS = ("pytest-timeout", "sortedcontainers")
TESTED = (
    "tests/pure/fleet",
    "tests/pure/host/test_children.py",
    "tests/pure/host/test_deputy_link.py",
    "tests/pure/play/test_agent_failure.py",
    "tests/pure/play/test_closers.py",
    "tests/pure/play/test_control_socket.py",
    "tests/pure/play/test_faults.py",
    "tests/pure/play/test_stages.py",
    "tests/pure/web/test_endpoint.py",
    "tests/pure/web/test_server.py",
    "tests/system/monitors/test_remote.py",
)
OF_RAY = "tests/pure/fleet/test_ray_security.py"


def python(version: str) -> str:
    """The program of a version on PATH or of pyenv. Skips the test if there is none."""
    found = shutil.which(f"python{version}")
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    if found is None and not of_pyenv:
        pytest.skip(f"this machine has no Python {version}")
    return str(of_pyenv[-1]) if of_pyenv else str(found)


def locked(names: tuple[str, ...]) -> list[str]:
    """The versions of packages in the lock of the tests."""
    lines = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([\w-]+)==[\w.]+", line) for line in lines)
    return [each[0] for each in found if each is not None and each[1] in names]


@pytest.mark.concerns(
    "requirements.txt", "python/pubstorm/host/children.py", "python/pubstorm/host/ends.py"
)
@pytest.mark.concerns("python/pubstorm/web/server.py", "python/pubstorm/web/guard.py")
@pytest.mark.slow("an installation and 250 tests")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_depends_on_the_version_passes(version: str, tmp_path: Path) -> None:
    program, folder = python(version), tmp_path / "venv"
    own = str(folder / "bin" / "python")
    tools = locked((*TOOLS, *MORE_TOOLS))
    assert len(tools) == len(TOOLS) + len(MORE_TOOLS)
    install = (own, "-m", "pip", "install", "--quiet")
    words = ("-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--ignore", OF_RAY)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"}
    for command in (
        (program, "-m", "venv", str(folder)),
        (*install, "--requirement", str(ROOT / "requirements.txt")),
        (*install, "--no-deps", *tools),
        (own, *words, *TESTED),
    ):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=290
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-5000:]}{done.stderr}"

"""Starts `python -m pubstorm`: forked from the zygote where that is the same, else for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.kit.zygote import ForkedPopen, can_fork
from tests.kit.zygote_server import note_start

PUBSTORM = (sys.executable, "-m", "pubstorm")
"""The program as a command, for tests that start it themselves."""
NEW_PROCESS = ("env",)
"""A prefix that asks for a real start, and for nothing else."""
FORKABLE = {
    *("stdin", "stdout", "stderr", "cwd", "env", "start_new_session"),
    *("text", "encoding", "errors", "bufsize", "universal_newlines"),
}
"""Options of `subprocess.Popen` with which a run can be forked."""


def popen(
    words: Sequence[str | os.PathLike[str]],
    *,
    prefix: Sequence[str] = (),
    real: bool = False,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Starts `pubstorm` with these words, as `subprocess.Popen` does. It is forked unless a prefix,
    an option or `real` asks for a new process."""
    if (spent := os.environ.get("PUBSTORM_TESTS_SPENT")) is not None:
        note_start(spent, os.environ.get("PYTEST_CURRENT_TEST"), "pubstorm")
    if real or prefix or not FORKABLE.issuperset(options) or not can_fork(options.get("env")):
        return subprocess.Popen([*prefix, *PUBSTORM, *words], **options)
    return ForkedPopen(list(words), **options)


def run(
    words: Sequence[str | os.PathLike[str]],
    *,
    input: str | bytes | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Runs `pubstorm` with these words to its end, as `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with popen(words, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess([*PUBSTORM, *words], process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done

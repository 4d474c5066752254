"""Wrong command lines: `transcript.golden` has them all, `UPDATE_GOLDEN=1` writes what they print.

`--- FILE` begins a file of the folder in which the commands run, and `$ ` a command. Its stdout
follows, then its stderr after `! `, and its exit code where that is not 2. The folder also has a
run and a series.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubstorm import cli
from tests.kit import golden
from tests.kit.example_run import Shape, write_run
from tests.kit.example_series import write_series

GOLDEN = Path(__file__).parent / "transcript.golden"


def test_the_command_line_prints_what_the_golden_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("stored"), Shape(duration_s=20))
    write_series(Path("series"))
    stored = GOLDEN.read_text(encoding="utf-8")
    found = "".join(played(stored, capsys)).replace(str(tmp_path), "FOLDER")
    assert not {"k", "ca", "ray-keys", "runs"} & {path.name for path in tmp_path.iterdir()}
    golden.agree(GOLDEN, found)


def played(stored: str, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Makes the files and runs the commands; yields the parts of the golden file of today."""
    for part in stored.replace("\n--- ", "\n\0--- ").replace("\n$ ", "\n\0$ ").split("\0"):
        head, _, text = part.partition("\n")
        if head.startswith("--- "):
            path = Path(head.removeprefix("--- "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            yield part
        else:
            code = cli.main(shlex.split(head.removeprefix("$ pubstorm")))
            out, err = capsys.readouterr()
            errors = "".join(f"! {line}" for line in err.splitlines(keepends=True))
            yield f"{head}\n{out}{errors}" + ("" if code == 2 else f"[{code}]\n")

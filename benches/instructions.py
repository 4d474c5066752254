"""Counts the engine's instructions by callgrind, where other work hides a difference of CPU time.

`python -m benches.instructions CASE... [--programs FOLDER]` plays each case twice, of 1 s and of
2 s, and prints the instructions of the further second. Callgrind is some 50 times slower than the
machine, so a case of a fixed rate may read many messages at once: compare two builds only.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benches.bench import ALL_CASES, BUILT, QUICK
from benches.programs import Programs

WRAPPER = """#!/bin/sh
exec valgrind --tool=callgrind --callgrind-out-file={out} --quiet {engine} "$@"
"""


@dataclass(frozen=True)
class Counted(Programs):
    """Programs whose engine runs in callgrind."""

    folder: Path

    @property
    def engine(self) -> Path:
        """The engine in callgrind, as a script."""
        script = self.folder / "engine"
        script.write_text(WRAPPER.format(out=self.out, engine=super().engine.resolve()))
        script.chmod(0o755)
        return script

    @property
    def out(self) -> Path:
        """File of the counts."""
        return self.folder / "callgrind.out"

    def instructions(self) -> int:
        """Instructions of the last run."""
        lines = self.out.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("totals:")).split()[1])


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each case; returns the exit code."""
    parser = argparse.ArgumentParser(prog="instructions", description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="+", choices=[case.name for case in ALL_CASES])
    parser.add_argument("--programs", type=Path, default=BUILT, help="where they were built")
    options = parser.parse_args(arguments)
    chosen = [case for case in ALL_CASES if case.name in options.case]
    with tempfile.TemporaryDirectory() as folder:
        programs = Counted(options.programs, Path(folder))
        for case in chosen:
            counts = []
            for seconds in (1.0, 2.0):
                case.engine(programs, replace(QUICK, seconds=seconds))
                counts.append(programs.instructions())
            print(
                f"{case.name}: {counts[1] - counts[0]:,} ({counts[0]:,} in the first)", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

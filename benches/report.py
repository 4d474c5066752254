"""Measures what the reports of a long run cost: an hour at 1 Hz with 5 populations and 100 monitor
series. `python -m benches.report` prints CPU time and sizes; both are of this machine."""

import sys
import tempfile
import time
from pathlib import Path

from pubstorm.quantities import bytes_text
from pubstorm.report.files import run_files
from pubstorm.report.stored import load_run
from tests.kit.example_run import Shape, write_run

HOUR = Shape(duration_s=3600, populations=5, other_series=100)
CPU_MAX_S = 5.0
BYTES_MAX = 8_000_000


def main() -> int:
    """Makes the run, then each of its files; 1 where a target is missed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write_run(path, HOUR)
        began_s = time.process_time()
        run = load_run(path)
        print(f"{'read':16} {time.process_time() - began_s:6.2f} s CPU")
        sizes = {}
        for file, rendered in run_files(run).items():
            file_began_s = time.process_time()
            sizes[file] = len(rendered().encode())
            cost_s = time.process_time() - file_began_s
            print(f"{file:16} {cost_s:6.2f} s CPU {bytes_text(sizes[file]):>10}")
        cpu_s = time.process_time() - began_s
    is_met = cpu_s <= CPU_MAX_S and sizes["report.html"] <= BYTES_MAX
    print(f"{'together':16} {cpu_s:6.2f} s CPU")
    print(
        f"targets: {CPU_MAX_S:g} s, report.html {bytes_text(BYTES_MAX)}: "
        f"{'met' if is_met else 'missed'}"
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())

"""Makes docs/brokers.md: a data sheet of each broker on one processor, in two passes of which the
second has the opposite order, and their comparison. What was measured before is kept, also half a
sheet, so that it can be made in parts.

    python scripts/measure_brokers.py [--for 8min] [--passes 2] [RECIPE...]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from pubstorm.scenario.recipes import find_recipe, load_recipe, recipe_names

ROOT = Path(__file__).parents[1]
SHEETS = ROOT / "target" / "brokers"
PAGE = ROOT / "docs" / "brokers.md"
PUBSTORM = (sys.executable, "-m", "pubstorm")


def main() -> int:
    """Plays the sheets that are missing, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--for", dest="length", default="8min")
    parser.add_argument("--passes", type=int, default=2)
    asked = parser.parse_args()
    tried = [name for name in recipe_names() if load_recipe(find_recipe(name)).untried is None]
    names = asked.recipes or tried
    for number in range(1, asked.passes + 1):
        for name in names if number % 2 else reversed(names):
            measure(name, SHEETS / f"pass-{number}" / name, asked.length)
    folders = sorted(path.parent for path in SHEETS.glob("pass-*/*/datasheet.json"))
    if len(folders) < 2:
        return 0
    out = SHEETS / "comparison"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run((*PUBSTORM, "datasheet", "compare", *folders, "--out", out), check=True)
    return 0


def measure(name: str, folder: Path, length: str) -> None:
    """Plays a sheet, or the rest of it."""
    stored = folder / "datasheet.json"
    if stored.exists() and json.loads(stored.read_text())["complete"]:
        return
    words = ["--resume", str(folder)]
    if not stored.exists():
        shutil.rmtree(folder, ignore_errors=True)
        words = [name, "--for", length, "--cpus", "0", "--out", str(folder)]
    done = subprocess.run((*PUBSTORM, "datasheet", *words, "--quiet"), check=False)
    if done.returncode not in {0, 3}:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())

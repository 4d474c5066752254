"""Adds the site of a version to the folder that has the sites of all versions.

    scripts/site_versions.py site pages 0.2.0

`pages` then has a folder `0.2.0`, a list of versions, which the menu of each site reads, and a
first page that leads to the newest one. The site of a version replaces an earlier one. Exit code 2:
the version is no version, or the site was not built."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

VERSION = re.compile(r"\d+(?:\.\d+)+")
FIRST_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Pubstorm</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<p><a href="{newest}/">Pubstorm {newest}</a></p>
</html>
"""


def add_version(built: Path, pages: Path, version: str) -> None:
    """Puts the site in `built` into the folder of its version, and lists all versions again."""
    folder = pages / version
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder)
    versions = sorted(
        (path.name for path in pages.iterdir() if VERSION.fullmatch(path.name)),
        key=lambda name: [int(part) for part in name.split(".")],
        reverse=True,
    )
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    (pages / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (pages / "index.html").write_text(FIRST_PAGE.format(newest=versions[0]), encoding="utf-8")
    # Without this file, the host of the pages leaves out names that begin with an underscore.
    (pages / ".nojekyll").touch()


def main() -> int:
    """Adds the version that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("built", type=Path, help="site that `make docs-site` has built")
    parser.add_argument("pages", type=Path, help="folder with the sites of all versions")
    parser.add_argument("version", help="version of the site, such as 0.2.0")
    given = parser.parse_args()
    if VERSION.fullmatch(given.version) is None:
        allowed = "allowed are numbers with dots, such as 0.2.0"
        print(f"error: found version {given.version!r}, {allowed}", file=sys.stderr)
        return 2
    if not (given.built / "index.html").is_file():
        print(f"error: {given.built} has no index.html\n  hint: make docs-site", file=sys.stderr)
        return 2
    add_version(given.built, given.pages, given.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Prints the notes of a release: the part of the changelog about one version.

    scripts/release_notes.py v0.2.0 --base https://HOST/OWNER/NAME/blob/v0.2.0 >notes.md

The page of a release is elsewhere, so relative links get the address of `--base` in front. It shows
each line break, so the lines of a paragraph are joined. Exit code 2: nothing can be released."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
"""The target of a link that has no scheme."""
WRAPPED = re.compile(r"(?<=\S)\n +(?![-*\s])")
"""A line break inside an item of a list."""
UNRELEASED = "unreleased"


class ReleaseError(Exception):
    """A version cannot be released; its text says what was found, and what to do."""


def release_notes(root: Path, version: str, base: str) -> str:
    """Returns the notes of a version, with links below `base`.

    Raises ReleaseError if the version is not that of pyproject.toml, or no part of a changelog in
    `root` is about it, or the heading of that part says that it is not released.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if version != project["version"]:
        raise ReleaseError(
            f"found version {version}, pyproject.toml has {project['version']}\n"
            f"  hint: tag the commit whose pyproject.toml has {version}"
        )
    heading, notes = changes(root, version)
    if UNRELEASED in heading:
        raise ReleaseError(
            f"the changelog says {heading!r}\n  hint: write the date of the release there"
        )
    joined = WRAPPED.sub(" ", notes)
    return RELATIVE.sub(rf"]({base.rstrip('/')}/\1)", joined)


def changes(root: Path, version: str) -> tuple[str, str]:
    """Returns heading and text of the part of a version in the changelogs. Raises ReleaseError."""
    part = re.compile(
        rf"^## ({re.escape(version)}(?: [^\n]*)?)\n(.*?)(?=^## |^Older versions:|\Z)", re.M | re.S
    )
    for path in sorted(root.glob("CHANGELOG*.md"), reverse=True):
        found = part.search(path.read_text(encoding="utf-8"))
        if found is not None:
            return found[1], f"{found[2].strip()}\n"
    raise ReleaseError(
        f"no changelog has a part of version {version}\n"
        f"  hint: write it below the heading '## {version} (date)' in CHANGELOG.md"
    )


def main() -> int:
    """Prints the notes of the version of a tag."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tag", help="tag of the release, such as v0.2.0")
    parser.add_argument("--base", required=True, help="address of the files of the tag")
    given = parser.parse_args()
    try:
        notes = release_notes(ROOT, given.tag.removeprefix("v"), given.base)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(notes, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

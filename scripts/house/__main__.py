"""Prints the figures of the tree beside the values that are held and the targets, and draws the
picture of its rooms.

    python -m scripts.house               the table, repeated names of classes, circles
    python -m scripts.house --store       the same, and improvements become held values
    python -m scripts.house "a counter"   what a figure counts

It runs in the root of a checkout. Exit code 1: a figure is not at its held value."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.house import python_tree
from scripts.house.figures import Figure, Tree, figures, store
from scripts.house.picture import FILE as PICTURE


def main(words: Sequence[str]) -> int:
    """Prints what is asked for, and stores improvements if that is."""
    tree = Tree(Path())
    measured = figures(tree)
    counted = {each.key: each.items for each in measured}
    if not set(words) <= {"--store", *counted}:
        print(__doc__, file=sys.stderr)
        return 2
    if words and words[0] in counted:
        print("\n".join(counted[words[0]]))
        return 0
    stored = store(tree.root, measured) if words else []
    (tree.root / PICTURE).write_text(tree.picture, encoding="utf-8")
    print("\n".join((*table(measured), "", *rooms(tree), "", *names(tree), *stored)))
    problems = [each.problem for each in figures(tree) if each.problem]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def table(measured: Sequence[Figure]) -> Iterator[str]:
    """Yields a line for each figure."""
    width = max(len(each.title) for each in measured)
    yield f"{'':{width}} {'now':>7} {'held':>7} {'grown':>7} {'target':>7}"
    for each in measured:
        numbers = (each.now, each.held, each.grown, each.target)
        yield f"{each.title:{width}} {' '.join(f'{number:7,}' for number in numbers)}"


def rooms(tree: Tree) -> Iterator[str]:
    """Yields files and lines of each room."""
    yield f"{'room':12} {'files':>6} {'lines':>7}"
    for name, (files, lines) in sorted(python_tree.rooms(tree.package).items()):
        yield f"{name:12} {files:6} {lines:7,}"


def names(tree: Tree) -> Iterator[str]:
    """Yields the classes with one name, and the files of each circle."""
    repeated = ", ".join(f"{name} ×{count}" for name, count in tree.classes.items())
    yield f"Class names declared twice or more: {repeated or 'none'}."
    for crate, circles in tree.circles.items():
        for circle in circles:
            yield f"Circle of {len(circle)} files in {crate}: {', '.join(circle)}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

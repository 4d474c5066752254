"""Draws the rooms and their imports, from the imports, as an SVG.

A room lies above all rooms that it imports, in the lowest row possible. Where a path of arrows
leads to an imported room, the import has no arrow of its own. An arrow that crosses rows has a
place in each. The same imports give the same picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

FILE = Path("docs/images/rooms.svg")
Imports = Mapping[str, set[str]]
Point = tuple[str, int]
"""A place in a row: a room, or an arrow that crosses the row, named FROM>TO."""

WIDTH = 600
ROW_HEIGHT = 54
BOX_HEIGHT = 30
LETTER_WIDTH = 8.4
MARGIN = 16
ROOM_GAP = 150
CROSSING_GAP = 56
SWEEPS = 9
"""Passes that put what is connected near each other."""
STYLE = (
    "text{font:14px monospace;text-anchor:middle;fill:#1f2430}"
    "rect.room{fill:#e8effa;stroke:#4a6fa5}rect.file{fill:#f6f3e6;stroke:#a08c4a}"
    "path{fill:none;stroke:#6b7280;stroke-width:1.3;marker-end:url(#tip)}"
)


def picture(imports: Imports) -> str:
    """Returns the drawing of rooms, named `room/`, and of single modules."""
    arrows = reduced(imports)
    heights = rows(imports)
    chains = [_chain(start, end, heights) for start, ends in arrows.items() for end in ends]
    places = _placed(heights, chains)
    top = max(heights.values())
    lines = [*_drawn(places, chains, heights, top)]
    height = (top + 1) * ROW_HEIGHT + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return "\n".join((head, *lines, "</svg>", ""))


def reduced(imports: Imports) -> dict[str, list[str]]:
    """Returns the imports without those that a path of others makes."""
    below: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in below:
            below[room] = set().union(*({end} | reached(end) for end in imports.get(room, ())))
        return below[room]

    return {
        room: sorted(
            end for end in ends if not any(end in reached(other) for other in ends - {end})
        )
        for room, ends in sorted(imports.items())
    }


def rows(imports: Imports) -> dict[str, int]:
    """Returns the row of each room, counted from below."""
    found: dict[str, int] = {}

    def row(room: str) -> int:
        if room not in found:
            found[room] = 1 + max((row(end) for end in imports.get(room, ())), default=-1)
        return found[room]

    for room in sorted(imports):
        row(room)
    return found


def _chain(start: str, end: str, heights: Mapping[str, int]) -> list[Point]:
    """Returns the places of an arrow in each row, from above."""
    first, last = heights[start], heights[end]
    between = [(f"{start}>{end}", row) for row in range(first - 1, last, -1)]
    return [(start, first), *between, (end, last)]


def _placed(heights: Mapping[str, int], chains: list[list[Point]]) -> dict[Point, float]:
    """Returns the distance of each place from the left."""
    levels: dict[int, list[Point]] = {}
    for point in sorted({*heights.items(), *(point for chain in chains for point in chain)}):
        levels.setdefault(point[1], []).append(point)
    neighbours: dict[Point, list[Point]] = {}
    for chain in chains:
        for above, below in pairwise(chain):
            neighbours.setdefault(above, []).append(below)
            neighbours.setdefault(below, []).append(above)
    found: dict[Point, float] = {}
    for level in levels.values():
        found.update(_spread(level))
    for sweep in range(SWEEPS):
        for row in sorted(levels, reverse=sweep % 2 == 0):
            ends = {point: neighbours.get(point, [point]) for point in levels[row]}
            middle = {
                point: sum(found[end] for end in ends[point]) / len(ends[point]) for point in ends
            }
            levels[row].sort(key=lambda point: (middle[point], point))
            found.update(_spread(levels[row]))
    return found


def _spread(level: list[Point]) -> Iterator[tuple[Point, float]]:
    """Yields the places of a row, centred in the picture."""
    gaps = [CROSSING_GAP if ">" in name else ROOM_GAP for name, _ in level]
    at = (WIDTH - sum(gaps)) / 2
    for point, gap in zip(level, gaps, strict=True):
        yield point, at + gap / 2
        at += gap


def _drawn(
    places: Mapping[Point, float],
    chains: list[list[Point]],
    heights: Mapping[str, int],
    top: int,
) -> Iterator[str]:
    def y(row: int) -> float:
        return MARGIN + (top - row) * ROW_HEIGHT

    yield f"<style>{STYLE}</style>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" '
        'style="fill:#6b7280;stroke:none;marker-end:none"/></marker></defs>'
    )
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    for chain in chains:
        line = [f"M{places[chain[0]]:.0f} {y(chain[0][1]) + BOX_HEIGHT:.0f}"]
        for above, below in pairwise(chain):
            start, end = y(above[1]) + BOX_HEIGHT, y(below[1])
            middle = (start + end) / 2
            line.append(
                f"C{places[above]:.0f} {middle:.0f} {places[below]:.0f} {middle:.0f} "
                f"{places[below]:.0f} {end:.0f}"
            )
            if below is not chain[-1]:
                line.append(f"V{end + BOX_HEIGHT:.0f}")
        yield f'<path d="{"".join(line)}"/>'
    for room, row in sorted(heights.items()):
        width = LETTER_WIDTH * len(room) + 2 * MARGIN
        kind, left = "room" if room[-1] == "/" else "file", places[room, row] - width / 2
        yield (
            f'<rect class="{kind}" x="{left:.0f}" y="{y(row):.0f}" width="{width:.0f}" '
            f'height="{BOX_HEIGHT}" rx="5"/>'
        )
        yield f'<text x="{places[room, row]:.0f}" y="{y(row) + 20:.0f}">{room}</text>'

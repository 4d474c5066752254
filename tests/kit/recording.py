"""Records the terminal of a command as an animated SVG, for the docs:
`python -m tests.kit.recording FILE.svg COLUMNS COMMAND...`."""

from __future__ import annotations

import io
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.kit.terminal import on_terminal

Frame = tuple[float, list[str]]
"""The second in which a screen appears, and its lines with their colours."""

PROMPT_S = 1.0
"""A reader sees the command alone for so many seconds."""
SEEN_S = 0.2
"""A screen lasts so many seconds at least."""
REST_S = 10.0
"""The last screen stays for so many seconds, before the first one comes again."""
# Rich names fonts on another host. The picture takes those that its reader has.
WINDOW = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
SCREEN = """<g class="window-matrix {unique_id}"><style>{styles}</style>{backgrounds}{matrix}</g>"""
CLIPPED = re.compile(r' clip-path="[^"]*"')
LINE_ENDS = re.compile(r"<text[^>]*>\n</text>")
ANIMATION = """<style>
    {rules}
    @media (prefers-reduced-motion: reduce) {{ g {{ animation: none !important }} }}
</style>"""
MOVES = re.compile(r"(\x1b\[1A|\x1b\[2K|\x1b\[\?25[lh]|\r|\n)")


def main() -> None:
    """Plays the command, and writes the picture."""
    file, columns, *command = sys.argv[1:]
    prompt = f"\x1b[1m$ {shlex.join(['pubstorm', *command[1:]])}\x1b[0m"
    screens = [(0.0, [prompt])]
    for at_s, lines in played(command, int(columns)):
        # A screen that the next one follows at once is part of that one.
        if PROMPT_S + at_s - screens[-1][0] < SEEN_S:
            screens.pop()
        screens.append((PROMPT_S + at_s, [prompt, *lines]))
    Path(file).write_text(drawn(screens, int(columns)))


def played(command: Sequence[str], columns: int) -> Iterator[Frame]:
    """Yields the screens of a command. A display of Rich goes up a line and erases it; nothing else
    moves the cursor."""
    with on_terminal(command, Path.cwd(), columns) as terminal:
        start_s, seen, lines = time.monotonic(), 0, [""]
        while terminal.process.poll() is None or len(terminal.text) > seen:
            text, seen = terminal.text[seen:], len(terminal.text)
            for piece in MOVES.split(text):
                move(lines, piece)
            if text:
                yield time.monotonic() - start_s, list(lines)
            terminal.read_for(0.1)


def move(lines: list[str], piece: str) -> None:
    """Changes the lines of a screen as a piece of output does."""
    match piece:
        case "\n":
            lines.append("")
        case "\x1b[1A":
            lines.pop()
        case "\x1b[2K":
            lines[-1] = ""
        case "\r" | "\x1b[?25l" | "\x1b[?25h":
            pass
        case _:
            lines[-1] += piece


def drawn(frames: Sequence[Frame], columns: int) -> str:
    """The SVG of the frames. Each is visible until the next one; the last one, where a reader wants
    no motion."""
    end_s = frames[-1][0] + REST_S
    rules, screens = [], []
    for number, (at_s, lines) in enumerate(frames):
        name = f"screen{number}"
        until_s = frames[number + 1][0] if number + 1 < len(frames) else end_s
        shown, hidden = 100 * at_s / end_s, 100 * until_s / end_s
        visible = number + 1 == len(frames)
        rules.append(
            f"@keyframes {name} {{ 0%, {hidden:.2f}% {{ visibility: hidden }}"
            f" {shown:.2f}% {{ visibility: visible }} }}"
            f" .{name} {{ visibility: {'visible' if visible else 'hidden'};"
            f" animation: {name} {end_s:.2f}s step-end infinite }}"
        )
        screens.append(exported(lines, columns, name, SCREEN))
    height = max(len(lines) for _, lines in frames)
    window = exported([""] * height, columns, "window", WINDOW)
    inside = window.rindex("</g>")
    animation = ANIMATION.format(rules="\n    ".join(rules))
    return f"{window[:inside]}{animation}{''.join(screens)}{window[inside:]}"


def exported(lines: Sequence[str], columns: int, name: str, shape: str) -> str:
    """Lines with their colours as SVG of Rich, without what it draws of line ends."""
    console = Console(record=True, file=io.StringIO(), width=columns, force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    picture = console.export_svg(title="pubstorm", theme=MONOKAI, code_format=shape, unique_id=name)
    if shape is SCREEN:
        picture = CLIPPED.sub("", picture)
    return LINE_ENDS.sub("", picture)


if __name__ == "__main__":
    main()

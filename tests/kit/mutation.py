"""Scenarios with random mistakes: lines of others, odd values, bytes and indents. A seed gives the
same scenario each time."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

from tests.kit.bounded import called

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "scenarios", ROOT / "tests" / "stored")
CHARS_MAX = 2000
"""Longest scenario that is changed: long ones take longer to check, and have the same keys."""

ODD = (
    *("", "null", "~", "-1", "0", "1e400", "1e308", ".inf", ".nan", "-.inf", "true", "[]", "{}"),
    *("18446744073709551616", "9" * 400, "0x7fffffffffffffff", "1/0", "1/0s", "1e30/s", "1e-30/s"),
    *("1000000000000h", "0s", "-5s", "[[]]", "{a: 1}", "'\\0'", '"\\ud800"', '"\\U0010ffff"'),
    *("!!python/object/apply:os.system [id]", "!!binary aGk=", "!!set {a}", "2001-01-01"),
    *("!!timestamp 2001-01-01", "&a [*a]", "*a", "<<: *b", "? [a]\n: b", "0o17", "1_000", "1:30"),
    *("${env:HOME}", "${env:NOPE}", "${file:/etc/passwd}", "${file:/dev/zero}", "${file:..}"),
    *("$${env:X}", "{n}", "{each device}", "{each {each x}}", "{n:99999999999d}", "x" * 70_000),
    *("\u202e", "\x1b[31m", "<script>alert(1)</script>", "a/../../b", "#", "+/+", "$share/g/#"),
    *("$SYS/#", "/" * 3000, "=", "%", "@", "`", "mqtt://[::1", "mqtt://a:99999999", "unix:///x"),
    *("mqtt://a:b@c:1/x", "mqtt://\u00e4.example", "10..1", "1..1e9", "0.1..0", "{vary: x}"),
    *("{from: 1, to: 1e12, step: 1e-9}", "100%", "-100%", "1e9%", "101%", "1GB", "1e20GB"),
    *("((((((((((((((((1", "a == b == c", "not", "p99.9999", "lost@", "@load", "1 < 2"),
)
ENDS = (" #", ":", " - ", "\t", ",", "}", "]", '"', "'", "|", ">", "&a", "\r", "\u2028", "\ufeff")
PARTS = re.compile(r"(\s+|[:,\[\]{}])")
WORDS = re.compile(r"[A-Za-z_.{}%/0-9]+")


def survive(seed: int, count: int, scratch: Path) -> None:
    """Checks many scenarios with mistakes. Raises AssertionError and whatever else a check raises;
    its notes say which scenario it was."""
    chance = random.Random(seed)
    texts = [path.read_text() for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))]
    texts = [text for text in texts if len(text) < CHARS_MAX]
    words = words_of(texts)
    path = scratch / "mutated.yaml"
    for number in range(count):
        path.write_bytes(mutated(chance, texts, words))
        try:
            called("check", str(path))
        except BaseException as error:
            kept = path.rename(scratch / f"kept-{seed}-{number}.yaml")
            error.add_note(f"check of {kept}, number {number} of seed {seed}")
            raise


def mutated(rng: random.Random, texts: Sequence[str], words: Sequence[str]) -> bytes:
    """Returns one of some scenarios with mistakes; `words` are those of all."""
    lines = rng.choice(texts).split("\n")
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _mutate(rng, lines, texts, words)
    return "\n".join(lines).encode(errors="surrogateescape")


def words_of(texts: Sequence[str]) -> list[str]:
    """Returns the words of some scenarios, in the order of letters."""
    return sorted({word for text in texts for word in WORDS.findall(text)})


def _mutate(
    rng: random.Random, lines: list[str], texts: Sequence[str], words: Sequence[str]
) -> None:
    place = rng.randrange(len(lines))
    line = lines[place]
    match rng.randrange(11):
        case 0:
            lines.insert(place, rng.choice(lines))
        case 1:
            lines[place : place + 1] = [] if len(lines) > 1 else lines
        case 2:
            lines[place] = f"{line.split(':')[0]}: {rng.choice(ODD)}"
        case 3:
            parts = PARTS.split(line)
            parts[rng.randrange(len(parts))] = rng.choice((*ODD, *words))
            lines[place] = "".join(parts)
        case 4:
            lines[place] = " " * rng.randrange(9) + line.strip()
        case 5:
            changed = bytearray(line.encode(errors="surrogateescape") or b" ")
            changed[rng.randrange(len(changed))] = rng.randrange(256)
            lines[place] = changed.decode(errors="surrogateescape")
        case 6:
            lines[place] = line + rng.choice(ENDS)
        case 7:
            others = rng.choice(texts).split("\n")
            start = rng.randrange(len(others))
            lines[place:place] = others[start : start + rng.randrange(1, 12)]
        case 8:
            number = rng.choice(("", "99999999999", "-", "e9", "."))
            lines[place] = line.replace(rng.choice("0123456789"), number)
        case 9:
            indent = rng.choice(("", "  ", "    "))
            lines[place] = f"{indent}{rng.choice(words)}: {rng.choice((*ODD, *words))}"
        case _:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], line

"""Limits that Python and Rust both declare: one name has one value. The page of limits derives from
Python's, so it is true for both."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pubstorm.contract import histogram
from pubstorm.scenario import shares
from pubstorm.scenario.fields import MESSAGE_BYTES_MAX

ROOT = Path(__file__).parents[3]
CONSTANT = re.compile(
    r"^ *(?:pub(?:\([a-z]+\))? )?const ([A-Z][A-Z0-9_]+): [^=;]+ = ([^;{\"']+);", re.M
)
NOT_PYTHON = re.compile(r"\b(?:Self|[a-z_]+)::|\bas [a-z0-9]+|(?<=\d)_?(?:[ui]\d+|f64)\b")
"""Paths of names, casts, and types of numbers."""
OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: lambda a, b: int(a) << int(b),
}
LIMIT = re.compile(r"(?:^|_)(?:MAX|MIN)(?:_|$)")
Declared = Mapping[str, Mapping[str, float]]
"""Values of each name, by file."""
OTHERS = {
    "DEPTH_MAX": "of tables of AMQP, or of documents",
    "BYTES_MAX": "answers that a client has not sent, and answers of monitors",
    "WAITING_MAX": "snapshots of an agent, messages of a client, and lines of an export",
    "KEPT_MAX": "samples of clocks, and histograms of a timeline",
    "ROOM_MIN": "ports, and entries of a table",
    "PAYLOAD_BYTES_MAX": "messages of $SYS, and those of clients: MESSAGE_BYTES_MAX in Python",
    "POINTS_MAX": "points of a plot, beside those of a rate profile",
    "MAX_NS": "timer coalescing, beside the histogram",
}
"""Names that a file uses for something of its own, with what."""


def value_of(node: ast.expr, known: Mapping[str, float]) -> float:
    """Returns the value of a sum of numbers and names; KeyError if it is something else."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return known[name]
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](value_of(left, known), value_of(right, known))
        case _:
            raise KeyError(ast.dump(node))


def of_python(text: str) -> Iterator[tuple[str, ast.expr]]:
    """Yields the constants of a module."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=True)
                yield from ((n.id, value) for n, value in pairs if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def of_rust(text: str) -> Iterator[tuple[str, ast.expr]]:
    """Yields the constants of a file whose values are sums that Python can read, too."""
    for name, value in CONSTANT.findall(text):
        plain = NOT_PYTHON.sub("", value)
        try:
            yield name, ast.parse(plain.strip(), mode="eval").body
        except SyntaxError:
            continue


def declared(
    files: Iterator[Path], read: Callable[[str], Iterator[tuple[str, ast.expr]]]
) -> Declared:
    """Returns the limits that files declare."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for path in files:
        expressions = [*read(path.read_text(encoding="utf-8"))]
        known: dict[str, float] = {}
        for name, expression in expressions * 2:
            with contextlib.suppress(KeyError):
                known[name] = value_of(expression, known)
        for name in filter(LIMIT.search, known):
            found[name][str(path.relative_to(ROOT))] = known[name]
    return found


def sources(folder: str, suffix: str) -> Iterator[Path]:
    """Yields the files of a folder that are no tests and no simulator."""
    return (
        path
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
        if not {"tests", "simulator", "testkit"} & {*path.parts}
    )


PYTHON = declared(sources("python/pubstorm", "py"), of_python)
RUST = declared(sources("crates", "rs"), of_rust)


def test_a_limit_that_both_languages_declare_has_one_value() -> None:
    both = PYTHON.keys() & RUST.keys()
    assert {"PUBLICATIONS_MAX", "RANGE_VALUES_MAX", "FACTOR_MAX", "STALLS_MAX"} <= both
    assert OTHERS.keys() <= both
    found = {name: {**PYTHON[name], **RUST[name]} for name in sorted(both - OTHERS.keys())}
    assert {name: by_file for name, by_file in found.items() if len({*by_file.values()}) > 1} == {}


def test_limits_with_a_name_of_their_own_in_each_language_are_equal() -> None:
    assert RUST["PAYLOAD_BYTES_MAX"]["crates/plan/src/check.rs"] == MESSAGE_BYTES_MAX
    assert RUST["MAX_NS"]["crates/plan/src/record/histogram.rs"] == histogram.MAX_NS
    points_max = RUST["POINTS_MAX"]["crates/plan/src/schedule/rate_profile.rs"]
    assert points_max == shares.POINTS_MAX


def test_the_page_of_limits_says_what_a_client_of_the_engine_takes_at_most() -> None:
    asserted = re.findall(r"^const _: .*<= (\d+)\);", text_of("crates/engine/src/client.rs"), re.M)
    page = text_of("docs/reference/limits.md")
    assert re.findall(r"^\| memory of an idle client \| (\S+) kB in the agent", page, re.M) == [
        f"{int(asserted[0]) / 1000}"
    ]


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")

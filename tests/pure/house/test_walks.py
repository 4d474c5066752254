"""Walks of the Python half: a traced run confirms their stops, and misses none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.house.figures import walk_file
from tests.kit.golden import agree
from tests.kit.marked_run import MARKS, play_marked
from tests.kit.trace import Marks, Trace

pytestmark = pytest.mark.xdist_group("marked_run")
ROOT = Path(__file__).parents[3]
PROGRAM = '''\
class Reading:
    def __init__(self, at_s, value):
        self.at_s, self.value = at_s, value

def passes_on(reading):
    return [converts(each) for each in [reading]]

def converts(reading):
    return formats(reading.value / 2)

def formats(number):
    return f"found {number}"

def makes(value):
    return Reading(1, value)

def counts(readings):
    return len(readings)

def walk():
    """Has the value inside an object only."""
    readings = [makes(20481)]
    counts(readings)
    passes_on(readings[0])
'''


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        return play_marked(tmp_path_factory.mktemp("marked"), patch)


@pytest.mark.parametrize("walk", MARKS)
def test_a_walk_is_what_the_marked_run_goes_through(trace: Trace, walk: str) -> None:
    agree(walk_file(ROOT, walk), "".join(f"{stop}\n" for stop in trace.stops(walk)))


def traced(folder: Path, marks: Marks) -> list[str]:
    """The stops of a small program."""
    file, names = folder / "program.py", dict[str, object]()
    exec(compile(PROGRAM, file, "exec"), names)
    trace, walk = Trace(folder, {"value": marks}), names["walk"]
    assert callable(walk)
    with trace.running():
        walk()
    return [stop.removeprefix("program.py:") for stop in trace.stops("value")]


def test_a_stop_has_the_value_in_hand_or_makes_what_holds_it(tmp_path: Path) -> None:
    stops = traced(tmp_path, Marks(numbers=(20481, 10240.5), texts=("10240.5",)))
    # `passes_on` returns what it made of the value; `walk` and `counts` only pass it on.
    assert stops == ["makes", "Reading.__init__", "passes_on", "converts", "formats"]


def test_a_form_without_a_mark_hides_the_rest_of_the_walk(tmp_path: Path) -> None:
    assert traced(tmp_path, Marks(numbers=(20481,), texts=("20481",))) == [
        "makes",
        "Reading.__init__",
    ]

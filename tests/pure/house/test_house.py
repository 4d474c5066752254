"""Figures of the tree: each is at its held value, and the script counts what it says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.house.__main__ import main
from scripts.house.figures import (
    COUNTED,
    CRATES,
    FILE,
    PACKAGE,
    Figure,
    Tree,
    figures,
    stops,
    walk_file,
)
from scripts.house.picture import FILE as PICTURE
from scripts.house.picture import picture, reduced, rows
from scripts.house.python_tree import (
    modules,
    repeated_classes,
    room_imports,
    rooms,
    single_importers,
)
from scripts.house.rust_tree import circles, imports, repeated_types

ROOT = Path(__file__).parents[3]
HELD = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
RUST_WALKS = {
    walk for walk in HELD["walks"] if ".rs:" in walk_file(ROOT, walk).read_text(encoding="utf-8")
}
PATH = r"`(\w+(?:/\w+)+)`"
ARCHITECTURE_LINES_MAX = 150
STOPS_MAX = 8
DOCUMENTED = {
    "A publish": "publish",
    "A delivery": "delivery",
    "A snapshot": "snapshot",
    "A rate": "rate",
    "A latency histogram": "histogram",
    "A CPU reading": "cpu",
}
"""Walks of ARCHITECTURE.md that have a list of stops."""


def test_each_figure_of_the_tree_is_at_its_held_value() -> None:
    assert [each.problem for each in figures(Tree(ROOT)) if each.problem] == []


def test_growth_names_a_figure_and_a_reason() -> None:
    known = {*HELD["counted"], *HELD["named"], *HELD["walks"]}
    for entry in HELD.get("growth", ()):
        assert set(entry) == {"figure", "by", "reason"}
        assert entry["figure"] in known
        assert entry["by"] > 0
        assert entry["reason"].strip()


@pytest.mark.parametrize("walk", sorted(RUST_WALKS))
def test_the_stops_of_a_walk_in_rust_exist(walk: str) -> None:
    missing = []
    for stop in stops(ROOT, walk):
        file, _, function = stop.partition(":")
        path = ROOT / CRATES / file
        if not path.exists() or not re.search(rf"\bfn {function}\b", path.read_text("utf-8")):
            missing.append(stop)
    assert missing == []


@pytest.mark.parametrize("title", DOCUMENTED)
def test_the_architecture_names_files_of_a_walk_in_their_order(title: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    paragraph = text.partition(f"- **{title}**")[2].partition("\n- ")[0].partition("\n\n")[0]
    named = re.findall(PATH, paragraph)
    files = [stop.partition(":")[0].rpartition(".")[0] for stop in stops(ROOT, DOCUMENTED[title])]
    passed = [name for name in dict.fromkeys(files) if name in named]
    assert named
    assert named == passed


def test_the_picture_shows_the_rooms_as_they_are() -> None:
    drawn = (ROOT / PICTURE).read_text(encoding="utf-8")
    assert drawn == Tree(ROOT).picture, "run: make house"


def test_the_picture_has_an_arrow_for_each_import_that_no_path_makes() -> None:
    imports = {"cli/": {"plan/", "host/", "errors"}, "host/": {"plan/"}, "plan/": {"errors"}}
    assert reduced(imports) == {"cli/": ["host/"], "host/": ["plan/"], "plan/": ["errors"]}
    assert rows(imports) == {"errors": 0, "plan/": 1, "host/": 2, "cli/": 3}
    backwards = {room: imports[room] for room in reversed(imports)}
    assert picture(imports) == picture(backwards)
    assert picture(imports).count('<path d="M') == 1 + 3


def test_the_architecture_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= ARCHITECTURE_LINES_MAX
    walks = text.partition("## Walks")[2].partition("\n## ")[0].split("\n- **")[1:]
    assert len(walks) > 6
    stops_of = {walk.partition("**")[0]: len(re.findall(PATH, walk)) for walk in walks}
    assert {walk: count for walk, count in stops_of.items() if count > STOPS_MAX} == {}


def made(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes a tree of files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_modules_with_one_importer_and_repeated_classes_are_counted(tmp_path: Path) -> None:
    package = modules(
        made(
            tmp_path / "pubstorm",
            {
                "__init__.py": "",
                "errors.py": "class Load: ...\nclass Error: ...\n",
                "plan/__init__.py": "from pubstorm.errors import Error\n",
                "plan/stages.py": "from pubstorm import errors, plan\nclass Load: ...\n",
                "plan/once.py": "class Outer:\n    class Load: ...\n",
                "cli.py": "def f():\n    import pubstorm.plan.stages\n",
            },
        )
    )
    assert single_importers(package) == {
        "pubstorm.plan": "pubstorm.plan.stages",
        "pubstorm.plan.stages": "pubstorm.cli",
    }
    assert repeated_classes(package) == {"Load": 2}
    assert room_imports(package) == {"errors": set(), "plan/": {"errors"}, "cli": {"plan/"}}
    assert rooms(package) == {"loose": (3, 4), "plan": (3, 5)}


def test_repeated_types_of_rust_are_counted(tmp_path: Path) -> None:
    files = {
        "a/src/lib.rs": "pub struct Load;\nenum Error {}\nmod tests {\n    struct Own;\n}\n",
        "a/src/tests.rs": "struct Error;\n",
        "b/src/own.rs": "pub(super) type Load = u8;\nstruct Own;\n",
        "b/tests/main.rs": "struct Error;\n",
    }
    assert repeated_types(made(tmp_path, files)) == {"Load": ["a/src/lib.rs", "b/src/own.rs"]}


CRATE = {
    "lib.rs": "mod a;\nmod b;\nmod c;\npub use b::{Deep, Thing as Other};\n",
    "a.rs": "use crate::Other;\nuse crate::b::{self, *};\n",
    "b.rs": "mod inner;\npub use inner::Deep;\npub struct Thing;\nfn f() { inner::g() }\n",
    "b/inner.rs": "use super::Thing;\npub struct Deep;\n",
    "c.rs": '// use crate::a::X;\nconst TEXT: &str = "use crate::a::X;";\n',
}


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, []),
        ({"b.rs": CRATE["b.rs"] + "use crate::a;\n"}, [["a.rs", "b.rs"]]),
        # An item that a module exports again lies in the file that declares it.
        (
            {"a.rs": "use crate::Deep;\n", "b/inner.rs": "use crate::a::Item;\n"},
            [["a.rs", "b/inner.rs"]],
        ),
        ({"c.rs": "fn f() { crate::a::g() }", "a.rs": "use crate::c::f;"}, [["a.rs", "c.rs"]]),
        ({"c.rs": "#[cfg(test)]\nuse crate::a;\n", "a.rs": "use crate::c::f;"}, []),
        ({"c.rs": "#[cfg(test)]\nmod tests { use crate::a; }", "a.rs": "use crate::c::f;"}, []),
        ({"c.rs": "use ::a::X;\nfn f() { ::a::g() }\n", "a.rs": "use crate::c::f;"}, []),
        # A module written inside another belongs to its file.
        (
            {"c.rs": "mod d { use crate::a; }\nuse std::{a, b};\n", "a.rs": "use crate::c::d;\n"},
            [["a.rs", "c.rs"]],
        ),
    ],
)
def test_circles_of_rust_files_are_found(
    tmp_path: Path, changes: Mapping[str, str], groups: list[list[str]]
) -> None:
    assert circles(imports(made(tmp_path, {**CRATE, **changes}))) == groups


@pytest.mark.parametrize(
    ("now", "grown", "advice"),
    [
        (7, 0, None),
        (9, 2, None),
        (8, 0, 'with figure = "files", by = 1 and a reason'),
        (6, 0, "make house STORE=yes"),
        (8, 2, "held = 6"),
    ],
)
def test_growth_needs_a_reason_and_an_improvement_is_written_down(
    now: int, grown: int, advice: str | None
) -> None:
    problem = Figure("files", "Python files", now, [], 7, grown, 2).problem
    assert advice in problem if advice else problem == ""


NAMING = ("__init__", "other")
FIGURES = """\
[counted]
"Python files" = { held = 3, target = 1 }
"Python lines" = { held = 500, step = 500, target = 1 }

[named]
"a counter" = { held = 1, target = 1, pattern = 'sent', below = ["python"], but = ["python/x"] }

[walks]
rate = { held = 2, target = 1 }

[[growth]]
figure = "rate"
by = 1
reason = "one more stop"
"""


def test_an_improvement_is_stored_and_growth_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / PACKAGE, {"__init__.py": "sent = 1\n", "other.py": "unsent = 1\n"})
    made(tmp_path, {str(FILE): FIGURES, "tests/house/rate.walk": "a.py:f\na.py:g\n"})
    made(tmp_path, {str(PICTURE): "stale"})
    (tmp_path / CRATES).mkdir()
    monkeypatch.chdir(tmp_path)
    measured = figures(Tree(tmp_path))
    assert [(each.now, each.allowed) for each in measured] == [(2, 3), (500, 500), (2, 1), (1, 3)]
    assert main([]) == 1
    assert (tmp_path / FILE).read_text() == FIGURES
    assert (tmp_path / PICTURE).read_text() == Tree(tmp_path).picture
    assert main(["--store"]) == 1
    stored = FIGURES.replace('files" = { held = 3', 'files" = { held = 2')
    assert (tmp_path / FILE).read_text() == stored.replace("rate = { held = 2", "rate = { held = 0")
    assert [each.key for each in figures(Tree(tmp_path)) if each.problem] == ["a counter"]
    capsys.readouterr()
    assert main(["a counter"]) == 0
    assert capsys.readouterr().out.split() == [f"{PACKAGE}/{name}.py" for name in NAMING]
    assert main(["another"]) == 2


def test_every_figure_that_the_script_counts_is_held() -> None:
    assert set(HELD["counted"]) == set(COUNTED)

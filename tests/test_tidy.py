"""What can be counted of STYLE.md: sizes, names, words, headers, versions."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("python", "crates", "tests", "docs", "scripts", "scenarios", "benches", "fuzz", ".ci")
SUFFIXES = {".py", ".rs", ".toml", ".yaml", ".md", ""}
GENERATED = ("docs/reference/", "contract/")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LINE_CHARS_MAX = 100
PARAMETERS_MAX = 5
BANNED_NAMES = {"util", "utils", "helper", "helpers", "manager", "common", "misc"}
BANNED_WORDS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")
REGISTRIES = re.compile(r"\b(?:pypi\.org|pythonhosted\.org|static\.crates\.io|index\.crates\.io)\b")


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT)
            hidden = {"__pycache__", "target", "corpus", "artifacts"} & set(relative.parts)
            if path.is_file() and path.suffix in SUFFIXES and not hidden:
                yield relative
    for pattern in ("*.toml", "*.md", "*.py", "Makefile"):
        yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern)))


SOURCES = [path for path in sources() if not str(path).startswith(GENERATED)]
PYTHON = [path for path in SOURCES if path.suffix == ".py"]
RUST = [path for path in SOURCES if path.suffix == ".rs"]


def lines_of(path: Path) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def ids(path: Path) -> str:
    return str(path)


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_files_and_lines_are_short(path: Path) -> None:
    lines = lines_of(path)
    own = lines
    if path.suffix == ".rs" and "#[cfg(test)]" in lines:
        own = lines[: lines.index("#[cfg(test)]")]
    assert len(own) <= FILE_LINES_MAX
    if path.suffix not in {".md", ".toml"}:
        long = [n for n, line in enumerate(lines, 1) if len(line) > LINE_CHARS_MAX]
        assert not long, f"lines {long} have more than {LINE_CHARS_MAX} characters"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_word_or_path_stands_where_it_does_not_belong(path: Path) -> None:
    for number, line in enumerate(lines_of(path), 1):
        for banned in (BANNED_WORDS, MACHINE_PATHS, REGISTRIES):
            assert not banned.search(line), f"line {number}: {line.strip()}"


@pytest.mark.parametrize("path", [*PYTHON, *RUST], ids=ids)
def test_no_file_or_function_has_an_empty_name(path: Path) -> None:
    assert not set(re.split(r"[_.]", path.stem)) & BANNED_NAMES
    text = (ROOT / path).read_text()
    for name in re.findall(r"\b(?:def|fn|class|struct|enum|trait|mod) (\w+)", text):
        words = set(re.findall(r"[A-Z]?[a-z0-9]+", name))
        assert not {word.lower() for word in words} & BANNED_NAMES, name
        assert not name.startswith("get_"), name


@pytest.mark.parametrize("path", [*PYTHON, *RUST], ids=ids)
def test_a_file_opens_with_what_it_is(path: Path) -> None:
    if path.stem == "tests":
        return
    if path.suffix == ".rs":
        assert lines_of(path)[0].startswith(("//!", "#!")), "begin with //!"
    else:
        assert ast.get_docstring(ast.parse((ROOT / path).read_text())), "begin with a docstring"


@pytest.mark.parametrize("path", PYTHON, ids=ids)
def test_python_functions_are_short_and_take_few_parameters(path: Path) -> None:
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        assert (node.end_lineno or node.lineno) - node.lineno < FUNCTION_LINES_MAX, node.name
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        own = [p for p in parameters if p.arg not in {"self", "cls"}]
        assert len(own) <= PARAMETERS_MAX, node.name


@pytest.mark.parametrize("path", RUST, ids=ids)
def test_rust_functions_are_short(path: Path) -> None:
    """rustfmt closes a function with a brace at the indentation of its first line."""
    lines = lines_of(path)
    start = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn (\w+)")
    for number, line in enumerate(lines):
        found = start.match(line)
        if found is None:
            continue
        close = f"{found[1]}}}"
        body = lines[number:]
        length = next((n for n, text in enumerate(body, 1) if text.rstrip(",;") == close), 1)
        assert length <= FUNCTION_LINES_MAX, found[2]


def test_recipes_are_at_most_three_lines() -> None:
    recipe = 0
    for line in lines_of(Path("Makefile")):
        recipe = recipe + 1 if line.startswith("\t") else 0
        assert recipe <= 3, line


def test_every_part_has_the_same_version() -> None:
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert python == rust


def test_locked_requirements_carry_hashes_and_no_address() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for file, extras in (("requirements.txt", ["build"]), ("requirements-dev.txt", ["dev"])):
        text = (ROOT / file).read_text()
        assert "://" not in text
        entries = [line for line in text.splitlines() if "==" in line]
        assert text.count("--hash=sha256:") >= len(entries)
        wanted = [*pyproject["dependencies"]]
        wanted += [each for extra in extras for each in pyproject["optional-dependencies"][extra]]
        locked = {line.split()[0].lower() for line in entries}
        assert {each.lower() for each in wanted} <= locked

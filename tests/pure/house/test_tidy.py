"""Countable rules of STYLE.md: sizes, names, words, headers, versions."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
FOLDERS = (
    "python",
    "crates",
    "tests",
    "docs",
    "scripts",
    "scenarios",
    "benches",
    "deploy",
    "fuzz",
    ".ci",
    ".github",
)
SUFFIXES = {".py", ".rs", ".toml", ".yaml", ".md", ""}
GENERATED = ("docs/reference/", "contract/")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LINE_CHARS_MAX = 100
PARAMETERS_MAX = 5
BANNED_NAMES = {"util", "utils", "helper", "helpers", "manager", "common", "misc"}
BANNED_WORDS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")
REGISTRIES = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|static\.crates\.io|index\.crates\.io|ghcr\.io|quay\.io"
    r"|docker\.io|npmjs\.(?:org|com)|maven\.org|proxy\.golang\.org)\b"
)


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


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def lines_of(path: Path) -> list[str]:
    return text_of(path).splitlines()


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_files_are_short() -> None:
    found = []
    for path in SOURCES:
        lines = lines_of(path)
        if path.suffix == ".rs" and "#[cfg(test)]" in lines:
            lines = lines[: lines.index("#[cfg(test)]")]
        if len(lines) > FILE_LINES_MAX:
            found.append(f"{path}: {len(lines)} lines")
    assert found == []


def test_lines_are_short() -> None:
    found = [
        f"{path}:{number}"
        for path in SOURCES
        for number, line in enumerate(lines_of(path), 1)
        if path.suffix not in {".md", ".toml"} and len(line) > LINE_CHARS_MAX
    ]
    assert found == []


@pytest.mark.parametrize("banned", [BANNED_WORDS, MACHINE_PATHS, REGISTRIES])
def test_no_word_or_path_stands_where_it_does_not_belong(banned: re.Pattern[str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(lines_of(path), 1)
        if banned.search(line)
    ]
    assert found == []


def test_no_name_says_nothing() -> None:
    found = []
    for path in (*PYTHON, *RUST):
        names = re.findall(r"\b(?:def|fn|class|struct|enum|trait|mod) (\w+)", text_of(path))
        for name in (path.stem, *names):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+", name)}
            if words & BANNED_NAMES or name.startswith("get_"):
                found.append(f"{path}: {name}")
    assert found == []


def test_a_file_opens_with_what_it_is() -> None:
    found = [path for path in PYTHON if not ast.get_docstring(ast.parse(text_of(path)))]
    found += [path for path in RUST if path.stem != "tests" and not opens(path, "//!", "#!")]
    assert found == []


def opens(path: Path, *starts: str) -> bool:
    return text_of(path).startswith(starts)


def test_python_functions_are_short_and_take_few_parameters() -> None:
    found = []
    for path in PYTHON:
        for node in functions_of(path):
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            own = [p for p in parameters if p.arg not in {"self", "cls"}]
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX or len(own) > PARAMETERS_MAX:
                found.append(f"{path}: {node.name}: {length} lines, {len(own)} parameters")
    assert found == []


def test_rust_functions_are_short() -> None:
    """rustfmt closes a function with a brace at the indentation of its first line."""
    start = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn (\w+)")
    found = []
    for path in RUST:
        lines = lines_of(path)
        for number, line in enumerate(lines):
            match = start.match(line)
            if match is None or line.rstrip().endswith((";", "}")):
                continue
            close = f"{match[1]}}}"
            body = enumerate(lines[number:], 1)
            length = next((n for n, text in body if text.rstrip(",;") == close), 1)
            if length > FUNCTION_LINES_MAX:
                found.append(f"{path}: {match[2]}: {length} lines")
    assert found == []


def test_recipes_are_at_most_three_lines() -> None:
    recipe = 0
    for line in lines_of(Path("Makefile")):
        recipe = recipe + 1 if line.startswith("\t") else 0
        assert recipe <= 3, line


def test_every_part_has_the_same_version() -> None:
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert python == rust


def locked(file: str) -> dict[str, str]:
    """Returns the packages of a lock file with their versions."""
    entries = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.M)
    return {canonicalize_name(name): version for name, version in entries}


def wanted(*extras: str) -> list[Requirement]:
    """Returns the packages that Pubstorm and some of its extras ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [
        Requirement(each)
        for each in (
            *project["dependencies"],
            *(each for extra in extras for each in optional[extra]),
        )
    ]


EXTRAS = {
    "requirements.txt": ["build"],
    "requirements-dev.txt": ["build", "dev", "otlp", "pandas", "parquet", "ray"],
    "requirements-wheel.txt": ["build", "wheel"],
    "requirements-lowest.txt": ["otlp", "pandas", "parquet"],
}


@pytest.mark.parametrize("file", EXTRAS)
def test_locked_requirements_fit_carry_hashes_and_no_address(file: str) -> None:
    text, versions = (ROOT / file).read_text(), locked(file)
    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(versions)
    for each in wanted(*EXTRAS[file]):
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each


def test_the_lowest_versions_are_the_lower_ends_of_the_ranges() -> None:
    lowest = locked("requirements-lowest.txt")
    for each in wanted(*EXTRAS["requirements-lowest.txt"]):
        (low,) = each.specifier
        assert low.operator == ">="
        assert Version(lowest[canonicalize_name(each.name)]) == Version(low.version), each

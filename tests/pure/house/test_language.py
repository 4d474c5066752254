"""Holds what can be counted of the rules of language: openings, retired terms, long sentences."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.pure.house.test_tidy import PYTHON, ROOT, RUST, text_of

SENTENCE_WORDS_MAX = 30
OPENINGS = re.compile(r"\W*(?:What|Whether|Which|Who|Whom|Whose|Whoever|How|When|Where)\b")
RETIRED = re.compile(
    r"\b(?:conductor|comeback|turnout|residue|unjudged?|judged?|judges|judging|owed?|owes"
    r"|whoever|nobody|doorkeeper|mend(?:s|ed|ing)?|told|tells?|telling|bulletin|cohorts?"
    r"|staffing|herdsman|good again|goes on|went on|go on|going on|hears?|heard|stands? in"
    r"|(?:is|are|was|were|be) there(?! room)|again_ns)\b",
    re.IGNORECASE,
)
"""Terms that the glossary replaces."""
QUOTING = {"test_language.py", "STYLE.md", "results.md"}
"""Files that quote retired terms: the rule itself, and reports of earlier versions."""

DECISIONS = ROOT / "docs" / "decisions"
DOCS = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if DECISIONS not in path.parents
]
PAGES = [
    *DOCS,
    *sorted(DECISIONS.glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "recipes").glob("*.yaml")),
    *sorted((ROOT / "scenarios").glob("*.yaml")),
]
NAMES = (ast.Name, ast.arg, ast.Attribute, ast.FunctionDef, ast.ClassDef)


@cache
def prose_of(path: Path) -> list[tuple[int, str]]:
    """Returns docstrings and comments of a source file, each with its line."""
    if path.suffix == ".rs":
        return [*rust_prose(text_of(path))]
    return [*python_prose(text_of(path))]


def python_prose(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.lineno, str(each.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def rust_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yields the comments of a Rust file: neighbouring lines of one kind are one comment."""
    comment, first, kind = "", 0, ""
    for number, line in enumerate([*source.splitlines(), ""], 1):
        found = re.match(r"\s*(//[/!]?)(?!/)\s?(.*)", line)
        if found is None or (comment and found[1] != kind):
            if comment:
                yield first, comment
            comment = ""
        if found is not None:
            first, kind = (first if comment else number), found[1]
            comment += f"{found[2]} " if comment or kind != "//" else f"// {found[2]} "


@cache
def strings_of(path: Path) -> list[tuple[int, str]]:
    """Returns the texts in the code of a source file, each with its line."""
    if path.suffix == ".rs":
        return [
            (number, found[0])
            for number, line in enumerate(text_of(path).splitlines(), 1)
            for found in re.finditer(r'"[^"]*"', line)
        ]
    tree = ast.walk(ast.parse(text_of(path)))
    constants = (node for node in tree if isinstance(node, ast.Constant))
    return [(each.lineno, each.value) for each in constants if isinstance(each.value, str)]


def names_of(path: Path) -> Iterator[str]:
    """Yields the names that a source file uses."""
    if path.suffix == ".rs":
        code = re.sub(r'//.*|"[^"]*"', "", text_of(path))
        yield from re.findall(r"\b[a-zA-Z_]\w+", code)
        return
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, NAMES):
            yield str(
                vars(node).get("id")
                or vars(node).get("arg")
                or vars(node).get("attr")
                or vars(node).get("name")
            )


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yields the sentences of a Markdown page, each with the line at which its paragraph begins.

    A table cell, a list item and a heading end a sentence. Code, front matter and links count as
    the words that a reader sees.
    """
    text = re.sub(
        r"^```.*?^```", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S
    )
    paragraph, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_code = line.startswith("    ") and not paragraph
        starts = re.match(r"\s*(?:[-*+]|\d+\.|#+|\||:  |!!!|>)\s*", line)
        if not line.strip() or is_code or starts:
            yield from ((first, each) for each in split(paragraph))
            paragraph = ""
        if is_code or not line.strip():
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, each) for cell in line.split("|") for each in split(cell))
        else:
            first = first if paragraph else number
            paragraph += line.strip() + " "


def split(paragraph: str) -> list[str]:
    seen = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    seen = re.sub(r"`[^`]*`", "code", seen)
    return re.split(r"(?<=[.!?:;])[*_)\"]*\s+", seen)


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+", name)}


def test_no_docstring_or_comment_opens_with_a_question_word() -> None:
    found = [
        f"{path}:{line}: {text.strip().splitlines()[0][:60]}"
        for path in (*PYTHON, *RUST)
        for line, text in prose_of(path)
        if OPENINGS.match(text)
    ]
    assert found == []


def test_no_heading_opens_with_a_question_word() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path in PAGES
        if path.suffix == ".md" and path.name not in QUOTING
        for line, text in enumerate(text_of(path).splitlines(), 1)
        if text.startswith("#") and OPENINGS.match(text)
    ]
    assert found == []


def test_no_prose_uses_a_retired_term() -> None:
    found = [
        f"{path}:{line}: {term[0]}"
        for path in (*PYTHON, *RUST)
        for line, text in (*prose_of(path), *strings_of(path))
        if (term := RETIRED.search(text)) and path.name not in QUOTING
    ]
    found += [
        f"{path.relative_to(ROOT)}:{number}: {term[0]}"
        for path in PAGES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (term := RETIRED.search(line)) and path.name not in QUOTING
    ]
    assert found == []


def test_no_name_is_a_retired_term() -> None:
    found = {
        f"{path}: {name}"
        for path in (*PYTHON, *RUST)
        for name in (path.stem, *names_of(path))
        if any(RETIRED.fullmatch(word) for word in words_of(name))
    }
    assert found == set()


def test_sentences_of_the_docs_are_short() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {len(sentence.split())} words: {sentence[:50]}"
        for path in DOCS
        for line, sentence in sentences(path.read_text(encoding="utf-8"))
        if len(sentence.split()) > SENTENCE_WORDS_MAX
    ]
    assert found == []

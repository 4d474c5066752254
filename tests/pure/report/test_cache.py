"""Compiled templates, kept between commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pubstorm.report import page
from pubstorm.report.page import keep, kept


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pubstorm"


def fresh() -> str:
    """Returns a template's source as a new process makes it."""
    page._environment.cache_clear()
    template = page._environment().get_template("experiment.html.j2")
    return template.root_render_func.__code__.co_filename


def test_a_second_command_reads_what_the_first_has_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fresh()
    made = sorted(path.name.partition("-")[0] for path in folder.iterdir())
    assert made == ["template"]
    monkeypatch.setattr("jinja2.Environment.compile", None)
    assert fresh() == first


def test_a_file_of_another_user_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("some", b"content")
    assert kept("some") == b"content"
    monkeypatch.setattr(os, "geteuid", lambda: 1 + os.getuid())
    assert kept("some") is None


def test_where_nothing_can_be_kept_all_is_made_again(folder: Path) -> None:
    expected = fresh()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    assert fresh() == expected


def test_what_is_cut_off_is_made_again(folder: Path) -> None:
    expected = fresh()
    template = next(folder.glob("template-*"))
    template.write_bytes(template.read_bytes()[:100])
    assert fresh() == expected

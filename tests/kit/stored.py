"""A stored run with its reports, for tests of reports and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from pubstorm.report.files import run_files
from pubstorm.report.stored import load_run
from pubstorm.result import RunResult
from tests.kit.example_run import Shape, write_run
from tests.kit.reading import Page


@pytest.fixture(scope="session")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed, with everything that a report can show, and its reports."""
    path = tmp_path_factory.mktemp("runs") / "failed"
    write_run(path, Shape(carries=False))
    assert list(write_reports(path, RunDirectory(path).write)) == []
    return path


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A short run that passed. Its files are those of all tests that look at it."""
    return write_run(tmp_path_factory.mktemp("runs") / "plain", Shape(duration_s=20))


@pytest.fixture(scope="session")
def plain_page(plain_run: RunResult) -> Page:
    """The page of the short run."""
    return Page(run_files(load_run(Path(plain_run.run_directory)))["report.html"]())

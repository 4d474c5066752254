"""A stored run with its reports, for tests of reports and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from tests.kit.example_run import Shape, write_run


@pytest.fixture(scope="session")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed, with everything that a report can show, and its reports."""
    path = tmp_path_factory.mktemp("runs") / "failed"
    write_run(path, Shape(carries=False))
    assert list(write_reports(path, RunDirectory(path).write)) == []
    return path

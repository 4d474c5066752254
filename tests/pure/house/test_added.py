"""A new counter takes two files, a histogram three, a monitor three: a copy of the package gets one
of each, and they appear wherever users look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.house.figures import FILE
from tests.kit.added import COUNTER, HISTOGRAM, MONITOR, Files, add_to

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The places in which the additions appear, each with its content."""
    folder = tmp_path_factory.mktemp("added")
    add_to(folder)
    found = subprocess.run(
        [sys.executable, "-m", "tests.kit.added", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        check=True,
    )
    places: Mapping[str, Any] = json.loads(found.stdout)
    return places


@pytest.mark.parametrize(
    ("figure", "files"),
    [("a counter", COUNTER), ("a histogram", HISTOGRAM), ("a monitor", MONITOR)],
)
def test_an_addition_takes_as_many_files_as_the_tree_is_held_at(figure: str, files: Files) -> None:
    held = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))["named"][figure]["held"]
    assert len(files) == held


def test_a_new_counter_is_everywhere(seen: Mapping[str, Any]) -> None:
    assert int(seen["throttled > 0"]) > int(seen["throttled@" + _stage(seen)]) > 0
    for place in ("tables", "problems", "series", "live page"):
        assert "throttled" in seen[place], place
    assert seen["data"].count("throttled_total") == 2
    assert "pubstorm_throttled_total" in seen["exports"]
    assert "`throttled`" in seen["reference"]


def _stage(seen: Mapping[str, Any]) -> str:
    (text,) = (each for each in seen if each.startswith("throttled@"))
    return text.removeprefix("throttled@")


def test_a_new_histogram_is_everywhere(seen: Mapping[str, Any]) -> None:
    assert seen["auth_time.p99 > 0ms"].endswith("s")
    assert {"AUTH p50", "AUTH p99"} <= {*seen["tables"]}
    assert seen["data"].count("auth_time_us.p99") == 2
    assert "pubstorm_auth_time_seconds" in seen["exports"]
    assert seen["log"] > 0
    assert "`auth_time`" in seen["reference"]


def test_a_new_monitor_is_everywhere(seen: Mapping[str, Any]) -> None:
    assert seen["readings"] == [["flow_bytes_per_s", 7]]
    assert "found 'flaw'" in seen["error"]
    assert "flow_bytes_per_s" in seen["chart"]
    assert "`flow_bytes_per_s`" in seen["reference"]

"""The cluster of all tests of this folder that ask for it: up once, mended after each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.cluster import PREFIX, Cluster, why_not


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """A cluster that the last test may have broken."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no cluster on this machine: {reason}")
    made = Cluster(Path(tempfile.mkdtemp(prefix=f"{PREFIX}-")))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """A cluster that is whole."""
    nodes.restore()
    return nodes

"""Agents on a Ray cluster of one node, with the fake agent and with real engines."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install pubstorm[ray]")

from pubstorm.fleet.ray import RaySite
from pubstorm.fleet.site import Site
from tests.fleet.conftest import fake_engine as fake_engine
from tests.fleet.conftest import plan_named as plan_named
from tests.fleet.contract import SiteContract
from tests.ray.node import node as node


class TestRaySite(SiteContract):
    site_imports = "import os; from pubstorm.fleet.ray import RaySite"
    site_code = 'RaySite(os.environ["PUBSTORM_TEST_RAY"], "pack", folder)'

    @pytest.fixture(autouse=True)
    def cluster(self, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PUBSTORM_TEST_RAY", node)
        self.address = node

    def new_site(self, folder: Path) -> Site:
        return RaySite(self.address, "pack", folder)

"""Guarantees of every site, on this host."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pubstorm.errors import FleetError
from pubstorm.fleet.local import LocalSite, engine_command
from pubstorm.fleet.site import Site
from tests.kit.site_contract import SiteContract


class TestLocalSite(SiteContract):
    site_imports = "from pubstorm.fleet.local import LocalSite"
    site_code = "LocalSite(folder)"

    def new_site(self, folder: Path) -> Site:
        return LocalSite(folder)


def test_a_missing_engine_is_an_error(tmp_path: Path) -> None:
    async def play() -> None:
        (slot,) = await LocalSite(tmp_path).place([engine_command(tmp_path / "none", 0, 1)])
        await slot.spawn()

    with pytest.raises(FleetError, match=r"cannot start .*/none"):
        asyncio.run(play())


def test_no_other_program_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="agent 3 is no engine"):
        asyncio.run(LocalSite(tmp_path).replace(3))


def test_it_is_one_host_without_an_address(tmp_path: Path) -> None:
    (host,) = LocalSite(tmp_path).hosts(None)
    assert host.address == ""
    assert host.cores > 0
    assert host.descriptors > 0
    assert host.memory_bytes > 0

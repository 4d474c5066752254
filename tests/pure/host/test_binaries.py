"""Finding the four programs."""

from pathlib import Path

import pytest

from pubstorm.errors import BinaryError
from pubstorm.host import binaries


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    packaged, checkout = tmp_path / "bin", tmp_path / "release"
    packaged.mkdir()
    checkout.mkdir()
    monkeypatch.setattr(binaries, "PACKAGED", packaged)
    monkeypatch.setattr(binaries, "CHECKOUT", checkout)
    for name in ("PROGRAMS", "ENGINE", "BROKER", "PROXY", "ZMQ"):
        monkeypatch.delenv(f"PUBSTORM_{name}", raising=False)
    return packaged, checkout


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_environment_comes_first_then_the_package_then_the_checkout(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged, checkout = folders
    built = program(checkout / "pubstorm-engine")
    assert binaries.engine_path() == built
    packed = program(packaged / "pubstorm-engine")
    assert binaries.engine_path() == packed
    (tmp_path / "all").mkdir()
    together = program(tmp_path / "all" / "pubstorm-engine")
    monkeypatch.setenv("PUBSTORM_PROGRAMS", str(together.parent))
    assert binaries.engine_path() == together
    named = program(tmp_path / "mine")
    monkeypatch.setenv("PUBSTORM_ENGINE", str(named))
    assert binaries.engine_path() == named


def test_each_program_has_its_own_name_and_variable(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for find, name in (
        (binaries.engine_path, "engine"),
        (binaries.broker_path, "broker"),
        (binaries.proxy_path, "proxy"),
        (binaries.zmq_path, "zmq"),
    ):
        built = program(folders[1] / f"pubstorm-{name}")
        assert find() == built
        named = program(tmp_path / name)
        monkeypatch.setenv(f"PUBSTORM_{name.upper()}", str(named))
        assert find() == named


def test_what_is_not_built_says_how_to_build_it(folders: tuple[Path, Path]) -> None:
    (folders[1] / "pubstorm-broker").write_text("no program")
    with pytest.raises(BinaryError, match="pubstorm-broker is not built") as caught:
        binaries.broker_path()
    assert "make build" in str(caught.value.hint)


def test_a_wrong_variable_is_named(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(folders[1] / "pubstorm-broker")
    monkeypatch.setenv("PUBSTORM_BROKER", "/nowhere/broker")
    with pytest.raises(BinaryError, match="PUBSTORM_BROKER names '/nowhere/broker'"):
        binaries.broker_path()

"""Demands on a cluster that others reach: a token and TLS.

Messages name each missing thing, and contain no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from pubstorm.errors import FleetError
from pubstorm.fleet.ray.choice import demand_security
from pubstorm.host.keys.certificates import CertificateDates, ClusterKeys
from pubstorm.host.keys.files import write_files

ADDRESS = "10.77.0.1:6379"
MONTH = CertificateDates.of_days(30)

Environment = dict[str, str]


def keys_in(folder: Path) -> Environment:
    """The environment of a node with keys of its own."""
    at = PurePosixPath(folder, "node-10.77.0.1")
    write_files(ClusterKeys.of(folder, MONTH).files(["10.77.0.1"], at, MONTH))
    lines = (folder / "node-10.77.0.1" / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return {**keys_in(tmp_path / "keys"), "HOME": str(tmp_path)}


def refused(environment: Mapping[str, str], address: str = ADDRESS) -> str:
    with pytest.raises(FleetError) as caught:
        demand_security(address, environment)
    assert "pubstorm ray-keys" in (caught.value.hint or "")
    return caught.value.message


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "localhost:6379", "[::1]:6379", "::1:6379"])
def test_a_loopback_cluster_needs_nothing(address: str) -> None:
    demand_security(address, {})


def test_a_node_with_its_keys_may_join(environment: Environment) -> None:
    demand_security(ADDRESS, environment)


@pytest.mark.parametrize("address", [ADDRESS, "head.example:6379", "[fd00::1]:6379", "ray"])
def test_any_other_cluster_needs_token_and_tls(tmp_path: Path, address: str) -> None:
    assert refused({"HOME": str(tmp_path)}, address) == (
        f"the cluster {address} is open to others, and this host is not ready to join it:\n"
        "  no token is asked for: RAY_AUTH_MODE must be token\n"
        f"  no token: found no file {tmp_path}/.ray/auth_token; RAY_AUTH_TOKEN_PATH names its "
        "file\n"
        "  no TLS: RAY_USE_TLS must be 1\n"
        "  no certificates: RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY, RAY_TLS_CA_CERT must name "
        "files"
    )


@pytest.mark.parametrize("how", ["variable", "home"])
def test_ray_finds_a_token_in_other_places_too(environment: Environment, how: str) -> None:
    token = Path(environment.pop("RAY_AUTH_TOKEN_PATH")).read_text()
    if how == "variable":
        environment["RAY_AUTH_TOKEN"] = token
    else:
        Path(environment["HOME"], ".ray").mkdir()
        Path(environment["HOME"], ".ray", "auth_token").write_text(token)
    demand_security(ADDRESS, environment)


ANOTHER = "that of another cluster"


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("RAY_AUTH_TOKEN_PATH", "\n", "found an empty token in {RAY_AUTH_TOKEN_PATH}"),
        ("RAY_TLS_SERVER_KEY", None, "found no file {RAY_TLS_SERVER_KEY}"),
        (
            "RAY_TLS_SERVER_CERT",
            "nonsense",
            "found no certificate in PEM form in {RAY_TLS_SERVER_CERT}",
        ),
        (
            "RAY_TLS_SERVER_KEY",
            ANOTHER,
            "found the key {RAY_TLS_SERVER_KEY}, which is not that of {RAY_TLS_SERVER_CERT}",
        ),
        (
            "RAY_TLS_CA_CERT",
            ANOTHER,
            "found {RAY_TLS_SERVER_CERT}, for which {RAY_TLS_CA_CERT} does not vouch",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_named_alone(
    environment: Environment, name: str, content: str | None, wrong: str
) -> None:
    if content is ANOTHER:
        environment[name] = keys_in(Path(environment["HOME"], "other"))[name]
    elif content is None:
        Path(environment[name]).unlink()
    else:
        Path(environment[name]).write_text(content)
    assert refused(environment).splitlines()[1:] == [f"  {wrong.format(**environment)}"]


def test_tls_that_is_switched_off_is_named_alone(environment: Environment) -> None:
    environment["RAY_USE_TLS"] = "0"
    assert refused(environment).splitlines()[1:] == ["  no TLS: RAY_USE_TLS must be 1"]


def test_no_secret_is_said(environment: Environment) -> None:
    token = environment["RAY_AUTH_TOKEN"] = environment["RAY_AUTH_MODE"] = "very-secret"
    assert token not in refused(environment)

"""Requirements of a Ray cluster before Pubstorm joins it: anyone who reaches an open cluster can
run programs on its hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from pubstorm.contract.target import Target
from pubstorm.errors import FleetError, KeysError
from pubstorm.host.keys.certificates import check_authorities, check_credential, check_issued
from pubstorm.host.keys.files import read_file

Environment = Mapping[str, str]

CERTIFICATE, KEY, CA = "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"
DEFAULT_TOKEN = Path(".ray", "auth_token")
"""Ray's default file for the token, in the user's home."""
YES = ("1", "true")
HINT = (
    "pubstorm ray-keys --node ADDRESS makes a token and certificates for every node; on each: "
    "set -a; . /etc/pubstorm/environment; set +a"
)


def demand_security(address: str, environment: Environment) -> None:
    """FleetError names all that is missing to join the cluster whose GCS has this address
    (`HOST:PORT`). A cluster on a loopback address needs nothing."""
    if is_loopback(address):
        return
    lacks = [*_lacking_token(environment), *_lacking_tls(environment)]
    if lacks:
        message = f"the cluster {address} is open to others, and this host is not ready to join it"
        raise FleetError("\n  ".join([f"{message}:", *lacks]), HINT)


def is_loopback(address: str) -> bool:
    """True if `HOST:PORT` can be reached from this host only."""
    return Target(host=address.rpartition(":")[0].strip("[]"), port=0).is_loopback


def _lacking_token(environment: Environment) -> Iterator[str]:
    """Ray takes the token itself, then a file that is named, then the one in the user's home."""
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        yield "no token is asked for: RAY_AUTH_MODE must be token"
    if environment.get("RAY_AUTH_TOKEN"):
        return
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    path = named or Path(environment.get("HOME", "/")) / DEFAULT_TOKEN
    try:
        if not read_file(path).strip():
            yield f"found an empty token in {path}"
    except KeysError as error:
        yield f"no token: {error.message}; RAY_AUTH_TOKEN_PATH names its file"


def _lacking_tls(environment: Environment) -> Iterator[str]:
    if environment.get("RAY_USE_TLS", "").lower() not in YES:
        yield "no TLS: RAY_USE_TLS must be 1"
    unset = [name for name in (CERTIFICATE, KEY, CA) if not environment.get(name)]
    if unset:
        yield f"no certificates: {', '.join(unset)} must name files"
        return
    certificate, key, authorities = (environment[name] for name in (CERTIFICATE, KEY, CA))
    found: dict[str, None] = {}
    for check in (
        partial(check_authorities, authorities),
        partial(check_credential, certificate, key),
        partial(check_issued, certificate, authorities),
    ):
        try:
            check()
        except KeysError as error:
            found[error.message] = None
    yield from found

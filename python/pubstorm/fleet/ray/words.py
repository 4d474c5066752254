"""Explains Ray's errors to users: Ray's own texts are many lines of addresses and ids."""

from __future__ import annotations

import re

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    AuthenticationError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)

from pubstorm.errors import FleetError

_MEMORY = re.compile(r"\(IP: ([^,)]+).*?was ([\d.]+ ?\w+ */ *[\d.]+ ?\w+)", re.DOTALL)
_VERSIONS = re.compile(r"(Ray|Python): ?([\w.+]+)")


def loss_in_words(error: RayError) -> str:
    """Why a place cannot be reached any more."""
    if isinstance(error, OutOfMemoryError):
        found = _MEMORY.search(str(error))
        used = f": {found[2]} used on {found[1]}" if found else ""
        return f"Ray ended its worker since the host ran out of memory{used}"
    if isinstance(error, ActorUnavailableError):
        return "its host, or the worker on it, cannot be reached"
    if isinstance(error, ActorDiedError):
        return "the worker on its host died" if is_worker_lost(error) else "its host died"
    return f"Ray says: {_first_line(str(error))}"


def is_worker_lost(error: RayError) -> bool:
    """True if a worker is gone from a host that still answers."""
    if isinstance(error, ActorDiedError):
        return any(words in str(error) for words in ("worker process has died", "`ray.kill`"))
    return isinstance(error, OutOfMemoryError | WorkerCrashedError)


def joining_in_words(address: str, error: Exception) -> FleetError:
    """Why a cluster cannot be joined."""
    text = str(error)
    message = f"cannot join the Ray cluster {address}: "
    if isinstance(error, AuthenticationError) or "InvalidAuthToken" in _with_causes(error):
        hint = "RAY_AUTH_TOKEN_PATH must name the file with the token that the cluster has"
        return FleetError(f"{message}it refused the token of this host", hint)
    if "ersion mismatch" in text:
        versions = [f"{name} {version}" for name, version in _VERSIONS.findall(text)]
        there, here = " and ".join(versions[:2]), " and ".join(versions[2:4])
        hint = "all hosts need the same versions of Ray and Python"
        return FleetError(f"{message}it has {there}, this host has {here}", hint)
    if "No node info found" in text:
        hint = f"ray start --address {address} on this host; --num-cpus 0 keeps agents off it"
        return FleetError(f"{message}this host is no part of it", hint)
    hint = "is it the address of its head (GCS), with the same RAY_USE_TLS? ray status shows it"
    return FleetError(message + _first_line(text), hint)


def _with_causes(error: BaseException) -> str:
    """Yields the text of an error, then those of its causes."""
    cause = error.__cause__
    return str(error) if cause is None else f"{error}\n{_with_causes(cause)}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason")

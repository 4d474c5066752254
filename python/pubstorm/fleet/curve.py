"""Keys of CURVE for the ZeroMQ sockets of a run: a pair for each publisher's population, and one
for each population of subscribers. Programs get them in their environment; they are never
stored."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.contract.plan import Plan

PUBLIC_KEY = "PUBSTORM_CURVE_PUBLIC_KEY"
"""Variable with a program's own public key, in the 40 characters of Z85."""
SECRET_KEY = "PUBSTORM_CURVE_SECRET_KEY"
"""Variable with its secret key."""
SERVER_KEY = "PUBSTORM_CURVE_SERVER_KEY"
"""Variable with the public key of the publisher, for subscribers."""
CLIENT_KEYS = "PUBSTORM_CURVE_CLIENT_KEYS"
"""Variable with the public keys of all subscribers, for publishers; spaces between them."""


class CurveKeys:
    """The keys of one run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pairs = {
            index: _new_pair()
            for index, population in enumerate(plan.populations)
            if population.zmtp is not None and population.zmtp.security == "curve"
        }

    def environment(self, population: int) -> Mapping[str, str]:
        """The variables of a program of the population with this index."""
        if population not in self._pairs:
            return {}
        public, secret = self._pairs[population]
        own = {PUBLIC_KEY: public, SECRET_KEY: secret}
        if self._plan.populations[population].publications:
            clients = (self._pairs[index][0] for index in self._subscribers(population))
            return {**own, CLIENT_KEYS: " ".join(clients)}
        return {**own, SERVER_KEY: self._server_key(population)}

    def _subscribers(self, publisher: int) -> list[int]:
        return [
            index
            for index in self._pairs
            if self._plan.populations[index].subscriptions and self._meets(index, publisher)
        ]

    def _server_key(self, subscriber: int) -> str:
        """Empty where its publisher is none of the run's."""
        found = (
            public
            for index, (public, _) in self._pairs.items()
            if self._plan.populations[index].publications and self._meets(subscriber, index)
        )
        return next(found, "")

    def _meets(self, one: int, other: int) -> bool:
        """True if two populations have targets in common."""
        a, b = (self._plan.populations[index].at for index in (one, other))
        return a.first < b.first + b.count and b.first < a.first + a.count


def _new_pair() -> tuple[str, str]:
    """A public key and its secret key."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()

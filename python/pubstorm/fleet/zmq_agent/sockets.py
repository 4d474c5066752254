"""Sockets of libzmq as the plan has them: publishers that listen, subscribers with their prefixes,
and the credentials of both."""

from __future__ import annotations

import os

import zmq
from zmq.auth.thread import ThreadAuthenticator

from pubstorm.contract.commands import (
    CURVE_CLIENT_KEYS,
    CURVE_PUBLIC_KEY,
    CURVE_SECRET_KEY,
    CURVE_SERVER_KEY,
)
from pubstorm.contract.offered_load import template_of
from pubstorm.contract.protocol import Zmtp
from pubstorm.fleet.agents.frame import AgentError, AgentShard

LIBRARY = f"pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()})"


def options_of(part: AgentShard) -> Zmtp:
    """Returns the options of the sockets of an agent."""
    options = part.population.zmtp
    assert options is not None, "the program plays sockets"
    return options


DOMAIN = "pubstorm"
"""Domain of the credentials, which libzmq asks for."""


class Gate:
    """Authenticates subscribers: answers libzmq's requests in a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], part: AgentShard) -> None:
        self._keys = frozenset(os.environ.get(CURVE_CLIENT_KEYS, "").split())
        self._authenticator: ThreadAuthenticator | None = None
        population = part.population
        security = options_of(part).security
        if security == "null":
            return
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        if security == "curve":
            self._authenticator.configure_curve_callback(DOMAIN, self)
            return
        texts = (population.username or "", population.password or "")
        user, password = (template_of(population, text).text(population.first) for text in texts)
        self._authenticator.configure_plain(DOMAIN, {user: password})

    def callback(self, _domain: str, key: bytes) -> bool:
        """True if a public key is that of a subscriber of the run."""
        return key.decode(errors="replace") in self._keys

    def close(self) -> None:
        """Ends its thread."""
        if self._authenticator is not None:
            self._authenticator.stop()


def publisher_socket(
    context: zmq.Context[zmq.Socket[bytes]], part: AgentShard, client: int
) -> zmq.Socket[bytes]:
    """A PUB socket that listens at its target."""
    socket = context.socket(zmq.PUB)
    socket.linger = 0
    socket.setsockopt(zmq.SNDHWM, options_of(part).high_water_mark)
    security = options_of(part).security
    if security != "null":
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
    if security == "plain":
        socket.setsockopt(zmq.PLAIN_SERVER, 1)
    elif security == "curve":
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, _key(CURVE_SECRET_KEY))
    target = part.target(client)
    address = f"tcp://{target.host}:{target.port}"
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise AgentError(
            f"cannot listen on {address}: {error.strerror}",
            "choose another port with publisher.port, or leave it out: then free ones are taken",
        ) from error
    return socket


def subscriber_socket(
    context: zmq.Context[zmq.Socket[bytes]], part: AgentShard, client: int
) -> zmq.Socket[bytes]:
    """A SUB socket with its subscriptions, connected to nothing yet."""
    population = part.population
    n = population.first + client
    socket = context.socket(zmq.SUB)
    socket.linger = 0
    # Subscriptions are messages to the publisher: beyond a mark, libzmq would drop them.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, options_of(part).high_water_mark)
    if population.reconnect is None:
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
    else:
        millisecond_ns = 10**6
        socket.setsockopt(zmq.RECONNECT_IVL, max(population.reconnect.min_ns // millisecond_ns, 1))
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, population.reconnect.max_ns // millisecond_ns)
    if options_of(part).security == "curve":
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, _key(CURVE_SERVER_KEY))
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, _key(CURVE_PUBLIC_KEY))
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, _key(CURVE_SECRET_KEY))
    for subscription in population.subscriptions:
        prefix = template_of(population, subscription.filter)
        for variant in range(prefix.variants):
            socket.setsockopt_string(zmq.SUBSCRIBE, prefix.text(n, variant))
    return socket


def filters(part: AgentShard) -> int:
    """Number of prefixes that each client subscribes to."""
    population = part.population
    return sum(template_of(population, s.filter).variants for s in population.subscriptions)


def check_security(part: AgentShard) -> None:
    """Raises AgentError where libzmq cannot speak the mechanism."""
    if options_of(part).security == "curve" and not zmq.has("curve"):
        raise AgentError(
            "this pyzmq has no CURVE", "install pyzmq with libsodium, or use security: plain"
        )


def _key(variable: str) -> str:
    if key := os.environ.get(variable):
        return key
    raise AgentError(f"found no {variable} in the environment", "the run gives it the key")

"""The options of every socket: high-water mark, security, no lingering."""

from __future__ import annotations

import os

import zmq
from zmq.auth.thread import ThreadAuthenticator

from pubstorm.contract.texts import template_of
from pubstorm.fleet.curve import CLIENT_KEYS, PUBLIC_KEY, SECRET_KEY, SERVER_KEY
from pubstorm.fleet.zmq_agent.part import AgentError, AgentShard

DOMAIN = "pubstorm"
"""Domain of the credentials, which libzmq asks for."""


class Gate:
    """Authenticates subscribers: answers libzmq's requests in a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], part: AgentShard) -> None:
        self._keys = frozenset(os.environ.get(CLIENT_KEYS, "").split())
        self._authenticator: ThreadAuthenticator | None = None
        population = part.population
        security = part.options.security
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
    socket.setsockopt(zmq.SNDHWM, part.options.high_water_mark)
    security = part.options.security
    if security != "null":
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
    if security == "plain":
        socket.setsockopt(zmq.PLAIN_SERVER, 1)
    elif security == "curve":
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, _key(SECRET_KEY))
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
    socket.setsockopt(zmq.RCVHWM, part.options.high_water_mark)
    if population.reconnect is None:
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
    else:
        millisecond_ns = 10**6
        socket.setsockopt(zmq.RECONNECT_IVL, max(population.reconnect.min_ns // millisecond_ns, 1))
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, population.reconnect.max_ns // millisecond_ns)
    if part.options.security == "curve":
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, _key(SERVER_KEY))
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, _key(PUBLIC_KEY))
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, _key(SECRET_KEY))
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
    if part.options.security == "curve" and not zmq.has("curve"):
        raise AgentError(
            "this pyzmq has no CURVE", "install pyzmq with libsodium, or use security: plain"
        )


def _key(variable: str) -> str:
    if key := os.environ.get(variable):
        return key
    raise AgentError(f"found no {variable} in the environment", "the run gives it the key")

"""Drives a client of paho's step by step, by `poll`: paho itself waits by `select`, which takes no
descriptor from 1024 on, and a process that watches a thousand brokers has none left below."""

from __future__ import annotations

import select
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import MQTTErrorCode

OK = 0
"""Paho's code of success."""


def step(client: Client, wait_s: float) -> MQTTErrorCode:
    """Reads and writes what there is, after at most so long a wait, and keeps the connection alive.
    Anything but success means that the connection is over."""
    from paho.mqtt.enums import MQTTErrorCode

    connection = client.socket()
    if connection is None:
        return MQTTErrorCode.MQTT_ERR_NO_CONN
    # TLS may have taken from the socket what is not read yet.
    holds_more = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
    poller = select.poll()
    poller.register(connection, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
    happened = dict(poller.poll(0 if holds_more else wait_s * 1000))
    code = MQTTErrorCode.MQTT_ERR_SUCCESS
    if holds_more or any(bits & ~select.POLLOUT for bits in happened.values()):
        code = client.loop_read()
    if code == OK and client.want_write():
        code = client.loop_write()
    return client.loop_misc() if code == OK else code

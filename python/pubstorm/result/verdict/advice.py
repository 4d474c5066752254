"""Advice about outcomes that need some: the meaning of a reason, and what to look at."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.contract.snapshot import Reason

ADVICE: Mapping[Reason, str] = {
    Reason.BAD_CREDENTIALS: (
        "the broker or publisher knows another password for these users, or does not know them; "
        "pubstorm seed TARGET SCENARIO --verify lists users that are missing in Redis"
    ),
    Reason.BAD_PROTOCOL_VERSION: (
        "the broker does not speak this version of MQTT: set version of the population to another"
    ),
    Reason.PROTOCOL_ERROR: (
        "the target sent bytes that the protocol of the clients does not allow: look whether this "
        "port speaks that protocol; ports of TLS take mqtts://, ports of WebSocket ws:// or wss://"
    ),
    Reason.PACKET_TOO_LARGE: (
        "the broker sent a packet above max_packet of the scenario, and the client closed the "
        "connection: raise max_packet, or make the messages smaller"
    ),
    Reason.SUBSCRIBE_TIMEOUT: (
        "the broker accepted the clients and did not answer SUBSCRIBE within connect_timeout, so "
        "the clients closed the connections: its log says more"
    ),
    Reason.PATH_TIMEOUT: (
        "nothing acknowledged what the kernel had sent, and it gave the connections up: the path "
        "to the broker, or its host, was gone"
    ),
    Reason.TLS_BROKEN: (
        "the bytes of established connections were none of TLS, or the broker ended them with an "
        "alert: look at the broker's log, and at what lies between"
    ),
    Reason.AUTHENTICATION_INVALID: (
        "the broker's AUTH is not a step of the method of the clients: compare authentication in "
        "the population with the broker's settings"
    ),
    Reason.SERVER_UNPROVED: (
        "the broker accepted clients without the proof that it has their passwords: look whether "
        "the target is the right one, and whether it plays SCRAM-SHA-256 to the end"
    ),
    Reason.MESSAGE_TOO_LARGE: (
        "the messages are larger than the Maximum Packet Size in the broker's CONNACK, or than "
        "MQTT allows: make them smaller or raise the broker's limit"
    ),
    Reason.QOS_UNSUPPORTED: (
        "the broker's CONNACK allows a lower Maximum QoS: lower qos of the publication"
    ),
    Reason.RETAIN_UNSUPPORTED: (
        "the broker's CONNACK says that it retains no messages: leave retain out"
    ),
    Reason.CERTIFICATE_EXPIRED: (
        "the broker's certificate, or one above it, is out of its dates: renew it, and look at the "
        "clocks of both sides"
    ),
    Reason.CERTIFICATE_UNTRUSTED: (
        "no authority that the clients trust vouches for the broker's certificate: name its "
        "authority in tls.ca; clients with pre-shared keys trust none"
    ),
    Reason.CERTIFICATE_NAME: (
        "the broker's certificate is for another name: connect to a name that it has, or name one "
        "in tls.server_name"
    ),
    Reason.TLS_REFUSED: (
        "the broker ended the handshake: look whether it speaks TLS at this port, knows these "
        "identities with these keys or the authority of these client certificates, and shares a "
        "version and a cipher with them; its log says more"
    ),
    Reason.TLS_FAILED: (
        "the clients failed in the handshake: look whether the broker speaks TLS at "
        "this port and shares a version and a cipher with them"
    ),
    Reason.UPGRADE_CLOSED: (
        "the target closed the connection instead of answering the upgrade: look whether it has a "
        "WebSocket listener at this port; ports of MQTT itself take mqtt:// or mqtts://, ports of "
        "TLS wss://"
    ),
    Reason.UPGRADE_INVALID: (
        "the target answered the upgrade with something that is not HTTP: look whether it has a "
        "WebSocket listener at this port; ports of TLS take wss://"
    ),
    Reason.UPGRADE_IGNORED: (
        "the target answered the request and did not upgrade to WebSocket: a web server or a proxy "
        "without WebSocket has this port or path"
    ),
    Reason.WRONG_ACCEPT_KEY: (
        "the accept key of the answer does not follow from the request's: a proxy answered, or the "
        "target breaks RFC 6455"
    ),
    Reason.NO_SUBPROTOCOL: (
        "the target upgraded without the subprotocol mqtt: its WebSocket is for something else, or "
        "a proxy drops the header Sec-WebSocket-Protocol"
    ),
    Reason.HTTP_REDIRECT: (
        "the target redirects the upgrade (HTTP 3xx), which clients do not follow: write the "
        "address that it leads to, often wss:// instead of ws://"
    ),
    Reason.HTTP_BAD_REQUEST: (
        "the target refused the upgrade (HTTP 400): look whether it serves WebSocket with the "
        "subprotocol mqtt at this path; its log says more"
    ),
    Reason.HTTP_UNAUTHORIZED: (
        "the upgrade needs a login (HTTP 401): write it under headers of the population"
    ),
    Reason.HTTP_FORBIDDEN: (
        "the target forbids the upgrade (HTTP 403): look at its rules, and at headers of the "
        "population such as Origin"
    ),
    Reason.HTTP_NOT_FOUND: (
        "the target has no such path (HTTP 404): write the path of its WebSocket behind the port, "
        "often /mqtt"
    ),
    Reason.HTTP_UPGRADE_REQUIRED: (
        "the target refused this upgrade (HTTP 426): it does not speak version 13 of WebSocket"
    ),
    Reason.HTTP_TOO_MANY_REQUESTS: (
        "the target limits the rate of upgrades (HTTP 429): lower the rate of connections, or "
        "raise its limit"
    ),
    Reason.HTTP_SERVER_ERROR: "the target failed at the upgrade (HTTP 5xx): its log says more",
    Reason.HTTP_BAD_GATEWAY: (
        "a proxy did not reach the broker behind it (HTTP 502): look whether that runs"
    ),
    Reason.HTTP_UNAVAILABLE: (
        "the target or a proxy takes no more upgrades (HTTP 503): look at its limits"
    ),
    Reason.HTTP_OTHER: "the target refused the upgrade with another status: its log says more",
    Reason.WEBSOCKET_GOING_AWAY: "close code 1001: the broker, or a proxy, shut down",
    Reason.WEBSOCKET_PROTOCOL_ERROR: "close code 1002: the broker found a fault in the frames",
    Reason.WEBSOCKET_UNSUPPORTED_DATA: "close code 1003: the broker takes no binary frames",
    Reason.WEBSOCKET_INVALID_DATA: "close code 1007: the broker found wrong data in a frame",
    Reason.WEBSOCKET_POLICY_VIOLATION: "close code 1008: a rule of the broker, or of a proxy",
    Reason.WEBSOCKET_TOO_BIG: (
        "close code 1009: a frame was larger than the broker takes; clients put up to 128 KiB of "
        "packets into a frame"
    ),
    Reason.WEBSOCKET_SERVER_ERROR: "close code 1011: the broker failed; its log says more",
    Reason.WEBSOCKET_SERVICE_RESTART: "close code 1012: the broker restarts",
    Reason.WEBSOCKET_TRY_AGAIN_LATER: "close code 1013: the broker is overloaded",
    Reason.WEBSOCKET_OTHER_CODE: "the broker closed with a code that has no name here",
    Reason.WEBSOCKET_INVALID: (
        "the broker sent frames that MQTT over WebSocket does not allow: text, masked, or with an "
        "extension"
    ),
}
ACCEPTED: Mapping[Reason, str] = {
    Reason.PROTOCOL_ERROR: (
        "the broker had accepted the clients, and then sent what the protocol does not allow, so "
        "the clients closed the connections: the detail beside it names the packet and the rule"
    ),
}
"""Advice where the broker had accepted the clients."""

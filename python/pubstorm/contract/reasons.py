"""Reasons of problems, as agents count them: each with its family, and with advice where its name
does not say it all. Tables of problems and findings of verdicts follow from them."""

from __future__ import annotations

from enum import Enum, StrEnum


class ReasonFamily(Enum):
    """The end that a reason is about, in words."""

    ATTEMPT = "an attempt to connect"
    CONNECTION = "an established connection"
    EITHER = "an attempt or a connection"
    FILTER = "nothing: the broker refuses a filter"
    ASKING = "a connection, or nothing: a filter is left out for a limit of the broker"
    STORE = "nothing: JetStream refuses a message, a stream or a consumer"
    REPLY = "an attempt or a connection, or nothing: a broker of AMQP refuses a queue or a message"
    NACK = "nothing: a broker of AMQP refuses a message"
    RETURN = "nothing: a message comes back, since no queue takes it"
    MESSAGE = "nothing: a message is left out for a limit of the broker"
    BREACH = "nothing: the peer breaks a rule, and the connection continues"
    EXPIRY = "nothing: a retained message has a wrong Message Expiry Interval"


class Reason(StrEnum):
    """Reason of a problem. A problem is an outcome with a count, not an error."""

    family: ReasonFamily
    advice: str
    """Its meaning, and what to look at; empty if the name says it."""

    def __new__(cls, word: str, family: ReasonFamily, advice: str = "") -> Reason:
        """Returns the reason with this word in snapshots and results."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.family, reason.advice = family, advice
        return reason

    CONNECT_REFUSED = "connect_refused", ReasonFamily.ATTEMPT
    CONNECT_RESET = "connect_reset", ReasonFamily.ATTEMPT
    CONNECT_CLOSED = "connect_closed", ReasonFamily.ATTEMPT
    CONNECT_TIMEOUT = "connect_timeout", ReasonFamily.ATTEMPT
    CONNECT_UNREACHABLE = "connect_unreachable", ReasonFamily.ATTEMPT
    CERTIFICATE_EXPIRED = (
        "certificate_expired",
        ReasonFamily.ATTEMPT,
        "the broker's certificate, or one above it, is out of its dates: renew it, and look at "
        "the clocks of both sides",
    )
    CERTIFICATE_UNTRUSTED = (
        "certificate_untrusted",
        ReasonFamily.ATTEMPT,
        "no authority that the clients trust vouches for the broker's certificate: name its "
        "authority in tls.ca; clients with pre-shared keys trust none",
    )
    CERTIFICATE_NAME = (
        "certificate_name",
        ReasonFamily.ATTEMPT,
        "the broker's certificate is for another name: connect to a name that it has, or name one "
        "in tls.server_name",
    )
    TLS_REFUSED = (
        "tls_refused",
        ReasonFamily.ATTEMPT,
        "the broker ended the handshake: look whether it speaks TLS at this port, knows these "
        "identities with these keys or the authority of these client certificates, and shares a "
        "version and a cipher with them; its log says more",
    )
    TLS_FAILED = (
        "tls_failed",
        ReasonFamily.ATTEMPT,
        "the clients failed in the handshake: look whether the broker speaks TLS at this port and "
        "shares a version and a cipher with them",
    )
    ALPN_REFUSED = (
        "alpn_refused",
        ReasonFamily.ATTEMPT,
        "the broker ended the handshake because it speaks none of the offered protocols: those of "
        "tls.alpn, or mqtt over QUIC: name one that it speaks, or look whether the port is right",
    )
    QUIC_VERSION = (
        "quic_version",
        ReasonFamily.ATTEMPT,
        "the target speaks no QUIC of version 1",
    )
    QUIC_REFUSED = (
        "quic_refused",
        ReasonFamily.ATTEMPT,
        "the target ended the handshake of QUIC with an error: details has its code, and the "
        "broker's log says more",
    )
    QUIC_FAILED = (
        "quic_failed",
        ReasonFamily.ATTEMPT,
        "the clients ended the handshake of QUIC because the target broke its rules",
    )
    UPGRADE_CLOSED = (
        "upgrade_closed",
        ReasonFamily.ATTEMPT,
        "the target closed the connection instead of answering the upgrade: look whether it has a "
        "WebSocket listener at this port; ports of MQTT itself take mqtt:// or mqtts://, ports "
        "of TLS wss://",
    )
    UPGRADE_INVALID = (
        "upgrade_invalid",
        ReasonFamily.ATTEMPT,
        "the target answered the upgrade with something that is not HTTP: look whether it has a "
        "WebSocket listener at this port; ports of TLS take wss://",
    )
    UPGRADE_IGNORED = (
        "upgrade_ignored",
        ReasonFamily.ATTEMPT,
        "the target answered the request and did not upgrade to WebSocket: a web server or a "
        "proxy without WebSocket has this port or path",
    )
    WRONG_ACCEPT_KEY = (
        "wrong_accept_key",
        ReasonFamily.ATTEMPT,
        "the accept key of the answer does not follow from the request's: a proxy answered, or "
        "the target breaks RFC 6455",
    )
    NO_SUBPROTOCOL = (
        "no_subprotocol",
        ReasonFamily.ATTEMPT,
        "the target upgraded without the subprotocol mqtt: its WebSocket is for something else, "
        "or a proxy drops the header Sec-WebSocket-Protocol",
    )
    HTTP_REDIRECT = (
        "http_redirect",
        ReasonFamily.ATTEMPT,
        "the target redirects the upgrade (HTTP 3xx), which clients do not follow: write the "
        "address that it leads to, often wss:// instead of ws://",
    )
    HTTP_BAD_REQUEST = (
        "http_bad_request",
        ReasonFamily.ATTEMPT,
        "the target refused the upgrade (HTTP 400): look whether it serves WebSocket with the "
        "subprotocol mqtt at this path; its log says more",
    )
    HTTP_UNAUTHORIZED = (
        "http_unauthorized",
        ReasonFamily.ATTEMPT,
        "the upgrade needs a login (HTTP 401): write it under headers of the population",
    )
    HTTP_FORBIDDEN = (
        "http_forbidden",
        ReasonFamily.ATTEMPT,
        "the target forbids the upgrade (HTTP 403): look at its rules, and at headers of the "
        "population such as Origin",
    )
    HTTP_NOT_FOUND = (
        "http_not_found",
        ReasonFamily.ATTEMPT,
        "the target has no such path (HTTP 404): write the path of its WebSocket after the port, "
        "often /mqtt",
    )
    HTTP_UPGRADE_REQUIRED = (
        "http_upgrade_required",
        ReasonFamily.ATTEMPT,
        "the target refused this upgrade (HTTP 426): it does not speak version 13 of WebSocket",
    )
    HTTP_TOO_MANY_REQUESTS = (
        "http_too_many_requests",
        ReasonFamily.ATTEMPT,
        "the target limits the rate of upgrades (HTTP 429): lower the rate of connections, or "
        "raise its limit",
    )
    HTTP_SERVER_ERROR = (
        "http_server_error",
        ReasonFamily.ATTEMPT,
        "the target failed at the upgrade (HTTP 5xx): its log says more",
    )
    HTTP_BAD_GATEWAY = (
        "http_bad_gateway",
        ReasonFamily.ATTEMPT,
        "a proxy did not reach the broker behind it (HTTP 502): look whether that runs",
    )
    HTTP_UNAVAILABLE = (
        "http_unavailable",
        ReasonFamily.ATTEMPT,
        "the target or a proxy takes no more upgrades (HTTP 503): look at its limits",
    )
    HTTP_OTHER = (
        "http_other",
        ReasonFamily.ATTEMPT,
        "the target refused the upgrade with another status: its log says more",
    )
    JETSTREAM_NO_RESPONDERS = (
        "jetstream_no_responders",
        ReasonFamily.STORE,
        "no stream has the subjects of messages or requests: write the stream under "
        "topology.streams with these subjects, or look whether the server has JetStream",
    )
    JETSTREAM_UNAVAILABLE = "jetstream_unavailable", ReasonFamily.STORE
    JETSTREAM_CONSUMER_EXISTS = (
        "jetstream_consumer_exists",
        ReasonFamily.STORE,
        "the server has a consumer of this name with other settings, from an earlier run: delete "
        "it",
    )
    JETSTREAM_NO_RESOURCES = "jetstream_no_resources", ReasonFamily.STORE
    JETSTREAM_NO_MEMORY = "jetstream_no_memory", ReasonFamily.STORE
    JETSTREAM_NOT_FOR_ACCOUNT = "jetstream_not_for_account", ReasonFamily.STORE
    JETSTREAM_NO_STORAGE = "jetstream_no_storage", ReasonFamily.STORE
    JETSTREAM_STREAM_EXISTS = (
        "jetstream_stream_exists",
        ReasonFamily.STORE,
        "the server has a stream of this name with other settings: leave it out of "
        "topology.streams, or write its settings there",
    )
    JETSTREAM_NO_STREAM = "jetstream_no_stream", ReasonFamily.STORE
    JETSTREAM_SUBJECTS_OVERLAP = "jetstream_subjects_overlap", ReasonFamily.STORE
    JETSTREAM_NOT_ENABLED = "jetstream_not_enabled", ReasonFamily.STORE
    JETSTREAM_STORE_FAILED = "jetstream_store_failed", ReasonFamily.STORE
    JETSTREAM_FILTER_OUTSIDE_STREAM = "jetstream_filter_outside_stream", ReasonFamily.STORE
    JETSTREAM_OTHER = "jetstream_other", ReasonFamily.STORE
    AMQP_CONTENT_TOO_LARGE = (
        "amqp_content_too_large",
        ReasonFamily.REPLY,
        "reply code 311: the messages are larger than the broker takes",
    )
    AMQP_NO_ROUTE = (
        "amqp_no_route",
        ReasonFamily.RETURN,
        "reply code 312: no queue is bound to the exchange with a key that fits, and the messages "
        "are mandatory: look whether subscribers are connected",
    )
    AMQP_NO_CONSUMERS = "amqp_no_consumers", ReasonFamily.RETURN
    AMQP_CONNECTION_FORCED = (
        "amqp_connection_forced",
        ReasonFamily.REPLY,
        "reply code 320: an operator or the end of the broker closed the connections",
    )
    AMQP_INVALID_PATH = "amqp_invalid_path", ReasonFamily.REPLY
    AMQP_ACCESS_REFUSED = (
        "amqp_access_refused",
        ReasonFamily.REPLY,
        "reply code 403: the user may not do this in the virtual host: rabbitmqctl "
        "set_permissions -p VHOST USER '.*' '.*' '.*' allows it",
    )
    AMQP_NOT_FOUND = (
        "amqp_not_found",
        ReasonFamily.REPLY,
        "reply code 404: an exchange or a queue does not exist: write the exchange under "
        "topology.exchanges, so that clients declare it",
    )
    AMQP_RESOURCE_LOCKED = (
        "amqp_resource_locked",
        ReasonFamily.REPLY,
        "reply code 405: another connection has the queue for itself: write {n} in its name, or "
        "exclusive: false",
    )
    AMQP_PRECONDITION_FAILED = (
        "amqp_precondition_failed",
        ReasonFamily.REPLY,
        "reply code 406, and the text of the broker names what it does not take: other settings of "
        "a name that exists, a setting that it does not know, a message above its "
        "max_message_size, or an acknowledgement later than its consumer_timeout: for a name that "
        "exists, write the same settings, or declare: false for a queue, or delete it",
    )
    AMQP_FRAME_ERROR = "amqp_frame_error", ReasonFamily.REPLY
    AMQP_SYNTAX_ERROR = "amqp_syntax_error", ReasonFamily.REPLY
    AMQP_COMMAND_INVALID = "amqp_command_invalid", ReasonFamily.REPLY
    AMQP_CHANNEL_ERROR = "amqp_channel_error", ReasonFamily.REPLY
    AMQP_UNEXPECTED_FRAME = "amqp_unexpected_frame", ReasonFamily.REPLY
    AMQP_RESOURCE_ERROR = "amqp_resource_error", ReasonFamily.REPLY
    AMQP_NOT_ALLOWED = (
        "amqp_not_allowed",
        ReasonFamily.REPLY,
        "reply code 530: the virtual host does not exist, its limits are reached, or the user may "
        "not use it: rabbitmqctl add_vhost VHOST makes it; a run makes those of a RabbitMQ that "
        "it starts",
    )
    AMQP_NOT_IMPLEMENTED = (
        "amqp_not_implemented",
        ReasonFamily.REPLY,
        "reply code 540: the broker does not have what a queue or a consumer asks for: the text of "
        "the broker names it",
    )
    AMQP_INTERNAL_ERROR = (
        "amqp_internal_error",
        ReasonFamily.REPLY,
        "reply code 541: the broker failed; its log says more",
    )
    AMQP_OTHER = "amqp_other", ReasonFamily.REPLY
    NACKED = (
        "nacked",
        ReasonFamily.NACK,
        "the broker refused messages with basic.nack: a queue is full and has overflow: "
        "reject-publish, or could not store them; its log says more",
    )
    CONSUMER_CANCELLED = (
        "consumer_cancelled",
        ReasonFamily.CONNECTION,
        "the broker ended consumers: their queue was deleted, or its node has failed",
    )
    BAD_PROTOCOL_VERSION = (
        "bad_protocol_version",
        ReasonFamily.ATTEMPT,
        "the broker does not speak this version of MQTT: set version of the population to another",
    )
    IDENTIFIER_REJECTED = "identifier_rejected", ReasonFamily.ATTEMPT
    SERVER_UNAVAILABLE = (
        "server_unavailable",
        ReasonFamily.ATTEMPT,
        "the broker took no more clients: look at its limits, such as max_connections, and whether "
        "it is about to end",
    )
    BAD_CREDENTIALS = (
        "bad_credentials",
        ReasonFamily.ATTEMPT,
        "the broker or publisher knows another password for these users, or does not know them; "
        "of users in Redis, pubstorm seed TARGET SCENARIO --verify lists those that are missing",
    )
    NOT_AUTHORIZED = "not_authorized", ReasonFamily.ATTEMPT
    CONNECT_REJECTED = "connect_rejected", ReasonFamily.ATTEMPT
    AUTHENTICATION_INVALID = (
        "authentication_invalid",
        ReasonFamily.ATTEMPT,
        "the broker's AUTH is not a step of the method of the clients: compare authentication in "
        "the population with the broker's settings",
    )
    SERVER_UNPROVED = (
        "server_unproved",
        ReasonFamily.ATTEMPT,
        "the broker accepted clients without the proof that it has their passwords: look whether "
        "the target is the right one, and whether it plays SCRAM-SHA-256 to the end",
    )
    SUBSCRIBE_REFUSED = "subscribe_refused", ReasonFamily.FILTER
    FILTERS_TOO_LARGE = (
        "filters_too_large",
        ReasonFamily.ASKING,
        "SUBSCRIBE or UNSUBSCRIBE of the clients is larger than the Maximum Packet Size in the "
        "broker's CONNACK, so they did not send it: use fewer or shorter filters",
    )
    SUBSCRIBE_TIMEOUT = (
        "subscribe_timeout",
        ReasonFamily.CONNECTION,
        "the broker or publisher accepted the clients and did not answer their subscriptions "
        "within connect_timeout, so the clients closed the connections: its log says more",
    )
    UNSUBSCRIBE_TIMEOUT = "unsubscribe_timeout", ReasonFamily.CONNECTION
    CLOSED_BY_BROKER = "closed_by_broker", ReasonFamily.CONNECTION
    RESET_BY_BROKER = "reset_by_broker", ReasonFamily.CONNECTION
    PATH_TIMEOUT = (
        "path_timeout",
        ReasonFamily.CONNECTION,
        "nothing acknowledged what the kernel had sent, and it gave the connections up: the path "
        "to the broker, or its host, was gone",
    )
    SLOW_CONSUMER = (
        "slow_consumer",
        ReasonFamily.CONNECTION,
        "the NATS server ended the connections of clients that took messages more slowly than "
        "they came: its max_pending says how much may wait for one, its write_deadline for how "
        "long",
    )
    TLS_BROKEN = (
        "tls_broken",
        ReasonFamily.CONNECTION,
        "the bytes of established connections were none of TLS, or the broker ended them with an "
        "alert: look at the broker's log, and at what lies between",
    )
    QUIC_BROKEN = (
        "quic_broken",
        ReasonFamily.CONNECTION,
        "one side ended established connections because the other one broke the rules of QUIC: "
        "details has the code, and the broker's log says more",
    )
    QUIC_IDLE_TIMEOUT = (
        "quic_idle_timeout",
        ReasonFamily.CONNECTION,
        "nothing arrived within the idle timeout of QUIC that the broker has: keep_alive has to "
        "be shorter, or the path to the broker was gone",
    )
    QUIC_CLOSED_WITH_CODE = (
        "quic_closed_with_code",
        ReasonFamily.EITHER,
        "the broker closed connections of QUIC with a code other than 0: details has the code "
        "and its text",
    )
    WEBSOCKET_CLOSED = "websocket_closed", ReasonFamily.EITHER
    WEBSOCKET_GOING_AWAY = (
        "websocket_going_away",
        ReasonFamily.EITHER,
        "close code 1001: the broker, or a proxy, shut down",
    )
    WEBSOCKET_PROTOCOL_ERROR = (
        "websocket_protocol_error",
        ReasonFamily.EITHER,
        "close code 1002: the broker found a fault in the frames",
    )
    WEBSOCKET_UNSUPPORTED_DATA = (
        "websocket_unsupported_data",
        ReasonFamily.EITHER,
        "close code 1003: the broker takes no binary frames",
    )
    WEBSOCKET_INVALID_DATA = (
        "websocket_invalid_data",
        ReasonFamily.EITHER,
        "close code 1007: the broker found wrong data in a frame",
    )
    WEBSOCKET_POLICY_VIOLATION = (
        "websocket_policy_violation",
        ReasonFamily.EITHER,
        "close code 1008: a rule of the broker, or of a proxy",
    )
    WEBSOCKET_TOO_BIG = (
        "websocket_too_big",
        ReasonFamily.EITHER,
        "close code 1009: a frame was larger than the broker takes; clients put up to 128 KiB of "
        "packets into a frame",
    )
    WEBSOCKET_SERVER_ERROR = (
        "websocket_server_error",
        ReasonFamily.EITHER,
        "close code 1011: the broker failed; its log says more",
    )
    WEBSOCKET_SERVICE_RESTART = (
        "websocket_service_restart",
        ReasonFamily.EITHER,
        "close code 1012: the broker restarts",
    )
    WEBSOCKET_TRY_AGAIN_LATER = (
        "websocket_try_again_later",
        ReasonFamily.EITHER,
        "close code 1013: the broker is overloaded",
    )
    WEBSOCKET_OTHER_CODE = (
        "websocket_other_code",
        ReasonFamily.EITHER,
        "the broker closed with a code that has no name here",
    )
    WEBSOCKET_INVALID = (
        "websocket_invalid",
        ReasonFamily.EITHER,
        "the broker sent frames that MQTT over WebSocket does not allow: text, masked, with an "
        "extension, or with a close code that no frame may have",
    )
    KEEP_ALIVE_TIMEOUT = "keep_alive_timeout", ReasonFamily.CONNECTION
    DISCONNECT_TIMEOUT = "disconnect_timeout", ReasonFamily.CONNECTION
    PROTOCOL_ERROR = (
        "protocol_error",
        ReasonFamily.EITHER,
        "the target sent bytes that the protocol of the clients does not allow: look whether this "
        "port speaks that protocol; ports of TLS take mqtts://, natss://, amqps:// or amqp1s://, "
        "ports of WebSocket ws:// or wss://",
    )
    PACKET_TOO_LARGE = (
        "packet_too_large",
        ReasonFamily.EITHER,
        "the broker sent a packet above max_packet of the scenario, and the client closed the "
        "connection: raise max_packet, or make the messages smaller",
    )
    CANNOT_ENCODE = "cannot_encode", ReasonFamily.EITHER
    MESSAGE_TOO_LARGE = (
        "message_too_large",
        ReasonFamily.MESSAGE,
        "the messages are larger than the broker says that it accepts, as Maximum Packet Size in "
        "CONNACK or max_payload in INFO, or than the protocol allows: make them smaller, or raise "
        "the broker's limit",
    )
    QOS_UNSUPPORTED = (
        "qos_unsupported",
        ReasonFamily.MESSAGE,
        "the broker's CONNACK allows a lower Maximum QoS: lower qos of the publication",
    )
    RETAIN_UNSUPPORTED = (
        "retain_unsupported",
        ReasonFamily.MESSAGE,
        "the broker's CONNACK says that it retains no messages: leave retain out",
    )
    UNEXPECTED_ACK = (
        "unexpected_ack",
        ReasonFamily.BREACH,
        "the broker acknowledged messages that were not in flight, or with the wrong packet",
    )
    RECEIVE_MAXIMUM_EXCEEDED = (
        "receive_maximum_exceeded",
        ReasonFamily.BREACH,
        "the broker sent more messages before an acknowledgement than the Receive Maximum of the "
        "clients allows; each is a read with too many [MQTT5-3.3.4-9]",
    )
    PACKET_SIZE_EXCEEDED = (
        "packet_size_exceeded",
        ReasonFamily.BREACH,
        "the broker sent packets above the Maximum Packet Size of the clients, which it should "
        "have discarded [MQTT5-3.1.2-24]",
    )
    NO_CLIENT_ID_ASSIGNED = (
        "no_client_id_assigned",
        ReasonFamily.BREACH,
        "the broker accepted clients without an identifier, and its CONNACK names none that it "
        "assigned [MQTT5-3.2.2-16]",
    )
    PUBCOMP_ERROR = (
        "pubcomp_error",
        ReasonFamily.BREACH,
        "the broker does not know messages whose PUBREC it had sent (PUBCOMP 0x92); they count as "
        "acknowledged",
    )
    OTHER_AUTHENTICATION_METHOD = (
        "other_authentication_method",
        ReasonFamily.BREACH,
        "the broker's AUTH or CONNACK names another authentication method than the clients, or "
        "none [MQTT5-4.12.0-5]",
    )
    UNAVAILABLE_GRANTED = (
        "unavailable_granted",
        ReasonFamily.BREACH,
        "the broker granted filters with wildcards, identifiers or $share, of which its CONNACK "
        "says that they are not available",
    )
    EXPIRY_MISSING = (
        "expiry_missing",
        ReasonFamily.EXPIRY,
        "retained messages came without the Message Expiry Interval that they were published with",
    )
    EXPIRY_WRONG = (
        "expiry_wrong",
        ReasonFamily.EXPIRY,
        "the broker did not lower the Message Expiry Interval of retained messages by the time "
        "that they had waited [MQTT5-3.3.2-6]; or a link was stalled as they were published",
    )
    EXPIRY_PASSED = (
        "expiry_passed",
        ReasonFamily.EXPIRY,
        "retained messages came after their Message Expiry Interval was over [MQTT5-3.3.2-5]",
    )
    NO_DESCRIPTORS = "no_descriptors", ReasonFamily.ATTEMPT
    NO_PORTS = "no_ports", ReasonFamily.ATTEMPT
    NO_MEMORY = "no_memory", ReasonFamily.ATTEMPT
    BAD_SOURCE = "bad_source", ReasonFamily.ATTEMPT
    SOCKET_ERROR = "socket_error", ReasonFamily.EITHER


def reasons_of(*families: ReasonFamily) -> frozenset[Reason]:
    """Returns the reasons of some families."""
    return frozenset(reason for reason in Reason if reason.family in families)

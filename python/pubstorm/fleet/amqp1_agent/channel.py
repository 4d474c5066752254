"""A connection of TCP, with TLS or without, that never waits: bytes in and out, and the reason of
its end."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from pubstorm.contract.plan import PlannedTls
from pubstorm.contract.reasons import Reason
from pubstorm.fleet.agents.frame import AgentError

READ_BYTES = 1 << 16
UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN}
OF_ATTEMPTS = {
    errno.ECONNREFUSED: Reason.CONNECT_REFUSED,
    errno.ETIMEDOUT: Reason.CONNECT_TIMEOUT,
    errno.ECONNRESET: Reason.CONNECT_RESET,
    **dict.fromkeys(UNREACHABLE, Reason.CONNECT_UNREACHABLE),
}
OF_CONNECTIONS = {
    errno.ECONNRESET: Reason.RESET_BY_BROKER,
    errno.ETIMEDOUT: Reason.PATH_TIMEOUT,
    **dict.fromkeys(UNREACHABLE, Reason.PATH_TIMEOUT),
}
"""Reasons of failures by the number of the error; all others are closed connections."""
EXPIRED = {9, 10}
"""Results of OpenSSL's verification: not yet valid, and expired (X509_V_ERR_CERT_*)."""
OTHER_NAME = {62, 63, 64}
"""The same: another host name, mail address or IP address."""
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
"""Family and address of a socket."""


class ChannelError(Exception):
    """Reason why a connection is over, for an attempt and for an established connection."""

    def __init__(self, attempt: Reason, connection: Reason, words: str) -> None:
        super().__init__(words)
        self.attempt = attempt
        self.connection = connection
        self.words = words


@dataclass(frozen=True)
class ChannelTls:
    """TLS of one client."""

    context: ssl.SSLContext
    server_name: str


class Amqp1Channel:
    """One connection."""

    def __init__(self, address: Address, tls: ChannelTls | None) -> None:
        self.is_open = False
        """True after the handshakes."""
        family, where = address
        self._tls = tls
        self._waits_to_write = True
        self._socket: socket.socket | ssl.SSLSocket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = self._socket.fileno()
        number = self._socket.connect_ex(where)
        self._failure = 0 if number in (errno.EINPROGRESS, errno.EAGAIN) else number

    def fileno(self) -> int:
        """Returns the descriptor of its socket, which TLS that cannot begin has closed already."""
        return self._descriptor

    @property
    def step(self) -> str:
        """The step that waits for an answer of the peer, in words."""
        is_tls = isinstance(self._socket, ssl.SSLSocket)
        return "the handshake of TLS" if is_tls else "the connection of TCP"

    @property
    def waits_to_write(self) -> bool:
        """True if the socket has to take bytes before there is more to do."""
        return self._waits_to_write

    def advance(self) -> None:
        """Continues the handshakes of TCP and TLS. Raises ChannelError."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._shake_hands(self._socket)
            return
        failed = self._failure or self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise _failed(OSError(failed, os.strerror(failed)))
        try:
            self._socket.getpeername()
        except OSError:
            return
        self._waits_to_write = False
        if self._tls is None:
            self.is_open = True
            return
        context, name = self._tls.context, self._tls.server_name
        try:
            # ssl would lose the socket over a name that is no name of a host.
            name.encode("idna")
            self._socket = context.wrap_socket(
                self._socket, do_handshake_on_connect=False, server_hostname=name
            )
        except (OSError, ValueError) as error:
            # A name that is no name of a host, or a peer that has gone meanwhile.
            raise ChannelError(Reason.TLS_FAILED, Reason.TLS_BROKEN, str(error)) from error
        self._shake_hands(self._socket)

    def read(self) -> bytes | None:
        """Returns bytes of the peer, none at their end; None if nothing has come. Raises
        ChannelError."""
        try:
            return self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return b""
        except OSError as error:
            raise _failed(error) from error

    def write(self, data: bytes) -> int:
        """Returns the number of bytes that the socket takes now. Raises ChannelError."""
        self._waits_to_write = False
        try:
            count = self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            count = 0
        except OSError as error:
            raise _failed(error) from error
        self._waits_to_write = count < len(data)
        return count

    @property
    def has_more(self) -> bool:
        """True if bytes of the peer wait in TLS, which no socket reports."""
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.pending())

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def _shake_hands(self, secured: ssl.SSLSocket) -> None:
        self._waits_to_write = False
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._waits_to_write = True
            return
        except ssl.SSLError as error:
            reason = _of_handshake(error)
            raise ChannelError(reason, Reason.TLS_BROKEN, words_of_tls(error)) from error
        except OSError as error:
            # A broker that closes here has refused the connection.
            raise ChannelError(Reason.TLS_REFUSED, Reason.TLS_BROKEN, str(error)) from error
        self.is_open = True


def tls_context(tls: PlannedTls, text: Callable[[str], str]) -> ssl.SSLContext:
    """Returns the settings of TLS of a client; `text` renders a template for it. Raises AgentError
    for a file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    context.minimum_version = VERSIONS[tls.min_version]
    context.maximum_version = VERSIONS[tls.max_version]
    key, found = "ca", tls.ca
    try:
        if tls.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(tls.ca)
        if tls.certificate is not None and tls.key is not None:
            key, found = "certificate", text(tls.certificate)
            passphrase = None if tls.passphrase is None else text(tls.passphrase)
            # Without a passphrase OpenSSL would ask for one at the terminal.
            context.load_cert_chain(found, text(tls.key), passphrase or "")
        if tls.ciphers is not None:
            key, found = "ciphers", tls.ciphers
            context.set_ciphers(tls.ciphers)
        if tls.alpn:
            context.set_alpn_protocols([*tls.alpn])
        if tls.key_log is not None:
            key, found = "key_log", tls.key_log
            context.keylog_filename = tls.key_log
    except OSError as error:
        hint = f"look at tls.{key} of the population"
        raise AgentError(f"cannot use {found} for TLS: {words_of_tls(error)}", hint) from error
    return context


def words_of_tls(error: OSError) -> str:
    """Returns the words of OpenSSL without the place in Python's sources."""
    return re.sub(r" \(_ssl\.c:\d+\)$", "", error.args[-1] if error.args else "")


def _of_handshake(error: ssl.SSLError) -> Reason:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in EXPIRED:
            return Reason.CERTIFICATE_EXPIRED
        is_other = error.verify_code in OTHER_NAME
        return Reason.CERTIFICATE_NAME if is_other else Reason.CERTIFICATE_UNTRUSTED
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Reason.TLS_REFUSED
    is_alert = "_ALERT_" in (error.reason or "")
    return Reason.TLS_REFUSED if is_alert else Reason.TLS_FAILED


def _failed(error: OSError) -> ChannelError:
    if isinstance(error, ssl.SSLError):
        reason = _of_handshake(error)
        return ChannelError(reason, Reason.TLS_BROKEN, words_of_tls(error))
    number = error.errno or 0
    attempt = OF_ATTEMPTS.get(number, Reason.CONNECT_CLOSED)
    connection = OF_CONNECTIONS.get(number, Reason.CLOSED_BY_BROKER)
    return ChannelError(attempt, connection, error.strerror or str(error))

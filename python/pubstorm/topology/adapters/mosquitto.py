"""Eclipse Mosquitto: its configuration, and a listener beside that under TLS. Settings of keys for
a listener of mosquitto."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pubstorm.host.machine import HERE
from pubstorm.host.preflight.need import Appetite
from pubstorm.topology.broker import BrokerProcess

OF_A_LISTENER = {
    *("cafile", "capath", "certfile", "keyfile", "crlfile", "dhparamfile", "psk_hint"),
    *("ciphers", "ciphers_tls1.3", "tls_version", "require_certificate"),
    *("use_identity_as_username", "use_subject_as_username", "use_username_as_clientid"),
    *("max_connections", "max_qos", "max_topic_alias"),
}
"""Settings that hold for the listener that they stand under, and for no other."""


ITERATIONS = 101
"""mosquitto's own number: a made password is no word that could be guessed."""
SALT_BYTES = 12


class MosquittoBroker(BrokerProcess):
    """`mosquitto` as a child process."""

    kind: ClassVar[str] = "mosquitto"
    appetite: ClassVar[Appetite] = Appetite(2 * 2**20, 1, client_bytes=1_200)
    """Measured: 1000 of mosquitto 2.0 with a bridge each take 1.3 MiB private memory each (USS in
    /proc/PID/smaps); the rest is allowed for what the kernel has for process and sockets. A client
    with a subscription takes 1.2 kB."""
    programs: ClassVar[Sequence[str]] = ("mosquitto",)
    instead: ClassVar[str] = ", or use kind: embedded"
    states_version: ClassVar[tuple[str, str] | None] = ("-h", r"version (\S+)")
    speaks_sys: ClassVar[bool] = True

    @classmethod
    def users_text(cls, passwords: Mapping[str, str]) -> bytes:
        """Returns the text of a password file."""
        return "".join(f"{user}:{hashed(word)}\n" for user, word in passwords.items()).encode()

    @classmethod
    def users_settings(cls, path: str) -> Mapping[str, object]:
        """Returns the settings of a broker with a password file."""
        return {"allow_anonymous": False, "password_file": path}

    async def configure(self, program: str) -> Sequence[str]:
        """Writes mosquitto.conf. Under TLS, observers of this machine get a plain listener."""
        machine = self.place.machine
        self.port = self.observer_port = self.place.port or await machine.free_port()
        text = configuration(
            self.place.settings,
            f"{self.port} {self.host}",
            self.folder,
            is_root=machine.is_root,
        )
        if self.place.is_under_tls:
            self.observer_port = await machine.free_port()
            text += lines_of({"listener": f"{self.observer_port} {self.host}"})
        settings = self.place.settings
        own = {word: settings[word] for word in sorted(OF_A_LISTENER & {*settings})}
        for address in self.place.also_on:
            text += lines_of({"listener": f"{self.port} {address}", **own})
        if await self.open_websocket():
            listener = f"{self.websocket_port} {self.host}"
            text += lines_of({"listener": listener, "protocol": "websockets", **own})
        text += self.place.more
        return (program, "-c", str(self.write("mosquitto.conf", text)))


def hashed(password: str) -> str:
    """A password as mosquitto keeps it: PBKDF2 with HMAC-SHA512."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${_base64(salt)}${_base64(digest)}"


def is_password(password: str, word: str) -> bool:
    """Returns True if a password belongs to a hash of mosquitto."""
    try:
        _, kind, iterations, salt, kept = word.split("$")
        octets = base64.b64decode(salt, validate=True)
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), octets, int(iterations))
    except ValueError:
        return False
    return kind == "7" and kept == _base64(digest)


def configuration(
    settings: Mapping[str, object], listener: str, folder: Path, *, is_root: bool = HERE.is_root
) -> str:
    """The text of mosquitto.conf: the user's settings win over our defaults."""
    defaults: dict[str, object] = {
        "listener": listener,
        "allow_anonymous": True,
        "persistence": False,
        "persistence_location": f"{folder}/",
        "set_tcp_nodelay": True,
        "log_dest": "stderr",
        "log_type": ["error", "warning", "notice"],
        "sys_interval": 1,
    }
    if is_root:
        # A change of user would clear the parent-death signal.
        defaults["user"] = "root"
    return lines_of({**defaults, **settings, "listener": defaults["listener"]})


def lines_of(settings: Mapping[str, object]) -> str:
    """Settings as lines of mosquitto.conf, one for each value."""
    lines = [
        f"{key} {_written(item)}"
        for key, value in settings.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


PSK_HINT = "pubstorm"
"""mosquitto takes pre-shared keys only where it has a hint to give; clients need none."""


def psk_settings(file: Path, *, as_username: bool) -> Mapping[str, object]:
    """Settings for pre-shared keys."""
    return {
        "psk_file": str(file),
        "psk_hint": PSK_HINT,
        "use_identity_as_username": as_username,
    }


def certificate_settings(
    folder: Path, *, require_client: bool, as_username: bool
) -> Mapping[str, object]:
    """Settings for the certificates in a folder that `pubstorm keys ca` made."""
    of_clients = {"require_certificate": True, "use_identity_as_username": as_username}
    return {
        "cafile": str(folder / CA),
        "certfile": str(folder / SERVER),
        "keyfile": str(folder / SERVER_KEY),
        **(of_clients if require_client else {}),
    }


CA, CA_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "server.crt", "server.key"
CLIENTS = "clients"
"""Names in a folder of certificates."""

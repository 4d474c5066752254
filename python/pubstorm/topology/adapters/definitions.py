"""Users of a RabbitMQ that a run starts, as the definitions that the broker reads at its start."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

MAIN = "/"
"""The broker's own virtual host."""
FILE = "definitions.local.path"
SALT_BYTES = 4
HASHING = "rabbit_password_hashing_sha256"


def definitions_text(passwords: Mapping[str, str]) -> bytes:
    """The text of a file of users, from passwords by user; each may do everything."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    users = [
        {"name": user, "password_hash": hashed(word), "hashing_algorithm": HASHING, "tags": ""}
        for user, word in passwords.items()
    ]
    permissions = [{"user": user, "vhost": MAIN, **everything} for user in passwords]
    found = {"users": users, "vhosts": [{"name": MAIN}], "permissions": permissions}
    return json.dumps(found).encode()


def definitions_settings(path: str) -> Mapping[str, object]:
    """Returns the lines of the configuration about the file; nodes of a cluster read the file once
    for all."""
    return {
        "mqtt.allow_anonymous": False,
        "definitions.import_backend": "local_filesystem",
        FILE: path,
        "definitions.skip_if_unchanged": True,
    }


def users_file(settings: Mapping[str, object]) -> Path | None:
    """The file that the settings name, if it exists."""
    path = Path(str(settings.get(FILE, "")))
    return path if path.is_file() else None


def hashed(password: str) -> str:
    """A password as RabbitMQ keeps it: SHA-256 with a salt before it."""
    salt = secrets.token_bytes(SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()

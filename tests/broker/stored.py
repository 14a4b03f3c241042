"""Stored users and permissions for tests; their password hashes are cheap to verify."""

from __future__ import annotations

import hashlib
from base64 import b64encode

from broker.model.history.records import EntryPut
from broker.security.password_hashes import rabbit_hash


def hashed(password: str) -> str:
    """A password hash as RabbitMQ makes it."""
    salt = b"salt"
    digest = hashlib.sha256(salt + password.encode()).digest()
    return rabbit_hash("rabbit_password_hashing_sha256", b64encode(salt + digest).decode())


def user(name: str = "alice", password: str = "word", *tags: str) -> EntryPut:
    return EntryPut("user", "", name, {"password_hash": hashed(password), "tags": list(tags)})


def permission(
    name: str = "alice", *, configure: str = ".*", write: str = ".*", read: str = ".*", vhost: str = "/"
) -> EntryPut:
    return EntryPut(
        "permission", vhost, name, {"configure": configure, "write": write, "read": read}
    )  # fmt: skip

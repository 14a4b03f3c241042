"""Password hashes of stored users: argon2id, made here, and RabbitMQ's.

A hash from RabbitMQ's definitions is kept unchanged behind the name of its algorithm, so users keep their
passwords: `$rabbit_password_hashing_sha256$BASE64`. The octets are a salt of 4 and the digest of salt and
password (https://www.rabbitmq.com/docs/passwords#computing-password-hash). MD5, from before RabbitMQ 3.6, is
not accepted.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from argon2 import extract_parameters
from argon2.exceptions import InvalidHashError

RABBIT = {
    "rabbit_password_hashing_sha256": ("sha256", 32),
    "rabbit_password_hashing_sha512": ("sha512", 64),
}
"""RabbitMQ's name of an algorithm -> hashlib's name and the digest's octets."""
_SALT = 4
_ARGON2 = "$argon2id$"
_MOST_MEMORY = 1 << 17
"""Maximum KiB for the check of one argon2id hash."""
_MOST_WORK = 1 << 18
"""Maximum KiB times passes: some tenths of a second."""


def rabbit_hash(algorithm: str, password_hash: str) -> str:
    """The stored form of a RabbitMQ hash. Raises ValueError if the algorithm is not in `RABBIT`, or the hash
    is malformed."""
    text = f"${algorithm}${password_hash}"
    if _rabbit(text) is None:
        raise ValueError(
            "is no hash of that algorithm" if algorithm in RABBIT
            else f"is of {algorithm}, and this broker takes {', '.join(RABBIT)}"
        )  # fmt: skip
    return text


def rabbit_parts(text: str) -> tuple[str, str] | None:
    """RabbitMQ's algorithm name and hash text; None if this is not a RabbitMQ hash."""
    _, algorithm, encoded = (*text.split("$", 2), "", "")[:3]
    return (algorithm, encoded) if algorithm in RABBIT else None


def is_stored_hash(text: str) -> bool:
    """Whether a user may be stored with this hash."""
    return is_argon2(text) or _rabbit(text) is not None


def is_argon2(text: str) -> bool:
    """An argon2id hash whose check does not cost too much memory or time."""
    if not text.startswith(_ARGON2):
        return False
    try:
        found = extract_parameters(text)
    except (InvalidHashError, ValueError):
        return False
    return found.memory_cost <= _MOST_MEMORY and found.time_cost * found.memory_cost <= _MOST_WORK


def dummy_hash(memory_cost: int, time_cost: int, parallelism: int) -> str:
    """An argon2id hash without a known password, at these costs. Checked when there is no such user."""
    salt, digest = b64encode(bytes(16)).rstrip(b"="), b64encode(bytes(32)).rstrip(b"=")
    return f"$argon2id$v=19$m={memory_cost},t={time_cost},p={parallelism}${salt.decode()}${digest.decode()}"


def matches_rabbit(text: str, password: str) -> bool:
    """Whether this is the RabbitMQ hash of `password`. False for other kinds of hash."""
    found = _rabbit(text)
    if found is None:
        return False
    name, salt, digest = found
    return hmac.compare_digest(digest, hashlib.new(name, salt + password.encode()).digest())


def _rabbit(text: str) -> tuple[str, bytes, bytes] | None:
    parts = rabbit_parts(text)
    if parts is None:
        return None
    name, octets = RABBIT[parts[0]]
    try:
        raw = b64decode(parts[1], validate=True)
    except (NotBase64, ValueError):
        return None
    return (name, raw[:_SALT], raw[_SALT:]) if len(raw) == _SALT + octets else None

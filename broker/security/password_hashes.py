"""Password hashes of stored users, by what they begin with: argon2id of our own making, and RabbitMQ's.

A hash that comes in RabbitMQ's definitions is kept as it is, behind a word that says its algorithm, so that
people log in with the passwords that they have: `$rabbit_password_hashing_sha256$BASE64`, where the octets
are a salt of 4 and the digest of salt and password
(https://www.rabbitmq.com/docs/passwords#computing-password-hash). MD5, of before RabbitMQ 3.6, is not taken.
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
"""RabbitMQ's name of an algorithm, ours, and the digest's octets."""
_SALT = 4
_ARGON2 = "$argon2id$"
_MOST_MEMORY = 1 << 17
"""KiB that the check of one argon2id hash may take."""
_MOST_WORK = 1 << 18
"""KiB times passes: some tenths of a second."""


def rabbit_hash(algorithm: str, password_hash: str) -> str:
    """How a hash of RabbitMQ's is kept. Raises ValueError: not one of `RABBIT`, or no hash of it."""
    text = f"${algorithm}${password_hash}"
    if _rabbit(text) is None:
        raise ValueError(
            "is no hash of that algorithm" if algorithm in RABBIT
            else f"is of {algorithm}, and this broker takes {', '.join(RABBIT)}"
        )  # fmt: skip
    return text


def rabbit_parts(text: str) -> tuple[str, str] | None:
    """RabbitMQ's name of the algorithm, and the hash as RabbitMQ writes it; None: it is not one of its."""
    _, algorithm, encoded = (*text.split("$", 2), "", "")[:3]
    return (algorithm, encoded) if algorithm in RABBIT else None


def is_stored_hash(text: str) -> bool:
    """Whether a user may be stored with it."""
    return is_argon2(text) or _rabbit(text) is not None


def is_argon2(text: str) -> bool:
    """One that does not take more memory or time to check than this broker's thread can spare."""
    if not text.startswith(_ARGON2):
        return False
    try:
        found = extract_parameters(text)
    except (InvalidHashError, ValueError):
        return False
    return found.memory_cost <= _MOST_MEMORY and found.time_cost * found.memory_cost <= _MOST_WORK


def dummy_hash(memory_cost: int, time_cost: int, parallelism: int) -> str:
    """An argon2id hash that no password is known for, with these costs: checked where there is no user."""
    salt, digest = b64encode(bytes(16)).rstrip(b"="), b64encode(bytes(32)).rstrip(b"=")
    return f"$argon2id$v=19$m={memory_cost},t={time_cost},p={parallelism}${salt.decode()}${digest.decode()}"


def matches_rabbit(text: str, password: str) -> bool:
    """Is it the hash of `password`? False for what is no hash of RabbitMQ's."""
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

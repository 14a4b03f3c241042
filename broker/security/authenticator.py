"""Decides whether a name and a password are a user. Owner: `Broker`; called by the handshake.

Hashes are argon2id. Verifying one costs milliseconds on the broker's only thread, so the outcome for the last
few (name, password) pairs is remembered under a keyed digest, failures too: a client that reconnects in a
loop, right or wrong, costs microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Iterable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from broker.errors import LoginRefused
from broker.security.identity import Identity, User, default_users

REFUSED = "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
_CACHE = 256
_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def hash_password(password: str) -> str:
    """A salted argon2id hash for the configuration file (OWASP's parameters: 19 MiB, 2 passes)."""
    return _HASHER.hash(password)


def is_password_hash(text: str) -> bool:
    """Whether `text` is a whole argon2id hash, one that some password can match."""
    try:
        return text.startswith("$argon2id$") and _HASHER.verify(text, "")
    except VerifyMismatchError:
        return True
    except (VerificationError, InvalidHashError):
        return False


class Authenticator:
    """The users of one broker. `authenticate` raises `LoginRefused`, whose text never says which part was
    wrong."""

    def __init__(
        self,
        users: Iterable[User] | None = None,
        *,
        allow_plain_without_tls: bool = False,
        cache_key: bytes | None = None,
    ) -> None:
        self._users = {user.name: user for user in (default_users() if users is None else users)}
        self._allow_plain = allow_plain_without_tls
        self._key = os.urandom(32) if cache_key is None else cache_key
        self._verified: OrderedDict[bytes, bool] = OrderedDict()

    def authenticate(self, name: str, password: str, *, loopback: bool, tls: bool = False) -> Identity:
        """The identity of `name`. `loopback`: the peer's own address is one. Raises LoginRefused."""
        if not (loopback or tls or self._allow_plain):
            raise LoginRefused(REFUSED)
        user = self._users.get(name)
        if user is None or (user.loopback_only and not loopback) or not self._matches(user, password):
            raise LoginRefused(REFUSED)
        return Identity(user.name, user.tags)

    def _matches(self, user: User, password: str) -> bool:
        if user.password is not None:
            return hmac.compare_digest(user.password.encode(), password.encode())
        if user.password_hash is None:
            return False
        text = f"{user.password_hash}\0{password}".encode()
        digest = hashlib.blake2b(text, key=self._key, digest_size=32).digest()
        known = self._verified.get(digest)
        if known is None:
            known = _verify(user.password_hash, password)
            self._verified[digest] = known
            if len(self._verified) > _CACHE:
                self._verified.popitem(last=False)
        return known


def _verify(password_hash: str, password: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False

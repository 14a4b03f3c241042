"""Decides whether a name and a password are a user. Owner: `Broker`; called by the handshake.

Users are those of the configuration and, behind them, those that are stored (`broker.model.directory`): a
name that is in both is the configured one's, so that nobody who may store users can become the pair's own, or
lock its operators out.

Hashes are argon2id; those of stored users may be RabbitMQ's. Verifying one costs milliseconds on the broker's
only thread, so the outcome for the last few (hash, password) pairs is remembered under a keyed digest,
failures too: a client that reconnects in a loop, right or wrong, costs microseconds. A password that was
changed is of no use from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from broker.errors import LoginRefused
from broker.security.identity import HA, Identity, User, default_users
from broker.security.password_hashes import is_argon2, matches_rabbit

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
    wrong. `stored` finds a user of the directory by its name."""

    def __init__(
        self,
        users: Iterable[User] | None = None,
        *,
        allow_plain_without_tls: bool = False,
        cache_key: bytes | None = None,
        stored: Callable[[str], User | None] = lambda name: None,
    ) -> None:
        self._users = {user.name: user for user in (default_users() if users is None else users)}
        self._allow_plain = allow_plain_without_tls
        self._key = os.urandom(32) if cache_key is None else cache_key
        self.stored = stored
        self._verified: OrderedDict[bytes, bool] = OrderedDict()

    def authenticate(self, name: str, password: str, *, loopback: bool, tls: bool = False) -> Identity:
        """The identity of `name`. `loopback`: the peer's own address is one. Raises LoginRefused."""
        if not (loopback or tls or self._allow_plain):
            raise LoginRefused(REFUSED)
        configured = self._users.get(name)
        user = configured or self.stored(name)
        if user is None or (user.loopback_only and not loopback) or not self._matches(user, password):
            raise LoginRefused(REFUSED)
        if configured is None:
            if not password:  # as in RabbitMQ, whatever the hash says
                raise LoginRefused(REFUSED)
            return Identity(user.name, user.tags - {HA}, stored=True)
        return Identity(user.name, user.tags)

    def _matches(self, user: User, password: str) -> bool:
        if user.password is not None:
            return hmac.compare_digest(user.password.encode(), password.encode())
        if not user.password_hash:
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
    if not is_argon2(password_hash):
        return matches_rabbit(password_hash, password)
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False

"""Checks names and passwords, in two steps. Owner: `Broker`; called by `Logins`.

Configured users come first, then stored users (`vhost.directory`). A name that is in both is the configured
user. So a client that may store users cannot become the pair's own user or lock its operators out.

Hashes are argon2id; those of stored users may be RabbitMQ's. An argon2id check costs 20 ms. So `begin` only
returns the check to make, another thread makes it (`Check.verify`), and `remember` takes the result. Right
and wrong passwords are remembered separately: no number of wrong ones makes a known client wait. Both are
stored under a keyed digest of hash and password, so a changed password invalidates them.

Every wrong login costs one argon2id check, whatever is wrong, so its time does not reveal which names exist.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from broker.errors import LoginRefused
from broker.security.identity import HA, WITNESS, Identity, User, default_users
from broker.security.password_hashes import dummy_hash, is_argon2, matches_rabbit

_RIGHT = 4096
"""Right logins remembered, the most recently used ones."""
_WRONG = 1024
"""Wrong logins remembered: repeating the same wrong password costs microseconds."""
_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def hash_password(password: str) -> str:
    """A salted argon2id hash for the configuration file (OWASP's parameters: 19 MiB, 2 passes)."""
    return _HASHER.hash(password)


def is_password_hash(text: str) -> bool:
    """Whether `text` is a complete argon2id hash."""
    try:
        return text.startswith("$argon2id$") and _HASHER.verify(text, "")
    except VerifyMismatchError:
        return True
    except (VerificationError, InvalidHashError):
        return False


@dataclass(slots=True, frozen=True)
class Login:
    """A claimed identity, and where the claim comes from. `loopback`: the peer's own address is one.
    `mechanism`: the SASL mechanism, for the refusal text; all of them send the password in the clear."""

    name: str
    password: str = field(repr=False)
    host: str = ""
    loopback: bool = False
    tls: bool = False
    mechanism: str = "PLAIN"
    protocol: str = "amqp091"
    """For counting: `amqp091`, `amqp10` or `http`."""
    certified: bool = False
    """A certificate of the clients' authority has proved the name, and there is no password."""


@dataclass(slots=True, frozen=True)
class Check:
    """One argon2id check. `digest`: the key under which the result is remembered."""

    digest: bytes
    password_hash: str = field(repr=False)
    password: str = field(repr=False)

    def verify(self) -> bool | None:
        """Whether the password matches. None: not enough memory to check. Takes 20 ms; any thread."""
        try:
            return _HASHER.verify(self.password_hash, self.password)
        except VerifyMismatchError:
            return False
        except VerificationError:
            return None
        except InvalidHashError:
            return False


class Authenticator:
    """The users of one broker. Refusals never say which part was wrong. `stored` finds a user of the
    directory by name."""

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
        self._dummy = _dummy_of(self._users.values())
        self._stored = stored
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()

    def authenticate(
        self, name: str, password: str, *, loopback: bool, tls: bool = False, mechanism: str = "PLAIN"
    ) -> Identity:
        """The identity of `name`, checked synchronously. Raises LoginRefused."""
        login = Login(name, password, loopback=loopback, tls=tls, mechanism=mechanism)
        while isinstance(found := self.begin(login), Check):
            self.remember(found, bool(found.verify()))
        if isinstance(found, LoginRefused):
            raise found
        return found

    def begin(self, login: Login) -> Identity | LoginRefused | Check:
        """The answer if it is known at once, else the check to make. After `remember`, call `begin` again,
        because the user may have changed meanwhile."""
        refused = LoginRefused(
            f"Login was refused using authentication mechanism {login.mechanism}."
            " For details see the broker logfile."
        )
        if login.certified:
            return self._certified(login, refused)
        if not (login.loopback or login.tls or self._allow_plain):
            refused.cause = "from another machine passwords need TLS, or auth.allow_plain_without_tls"
            return refused
        target, whose = self._dummy, f"?{login.name}"
        user = self._user(login)
        if user is None and login.name in self._users:
            refused.cause = "this user may log in from loopback only; add another user"
        if user is not None:
            if _matches_at_once(user, login.password):
                return self._identity(user)
            if user.password_hash and is_argon2(user.password_hash):
                target = whose = user.password_hash
        digest = self._digest(whose, login.password)
        if user is not None and digest in self._right:
            self._right.move_to_end(digest)
            return self._identity(user)
        if digest in self._wrong:
            self._wrong.move_to_end(digest)
            return refused
        return Check(digest, target, login.password)

    def _certified(self, login: Login, refused: LoginRefused) -> Identity | LoginRefused:
        """The pair's own users log in by password only: an authority of clients decides nothing about
        nodes."""
        user = self._users.get(login.name) or (self._stored(login.name) if login.name else None)
        if not login.name:
            refused.cause = "its certificate names no user, or several (auth.external)"
        elif user is None or user.tags & {HA, WITNESS}:
            refused.cause = "its certificate names no user of this broker"
        elif user.loopback_only and not login.loopback:
            refused.cause = "this user may log in from loopback only; add another user"
        else:
            return self._identity(user)
        return refused

    def remember(self, check: Check, matched: bool) -> None:
        """Store the result of a check."""
        kept, most = (self._right, _RIGHT) if matched else (self._wrong, _WRONG)
        kept[check.digest] = None
        if len(kept) > most:
            kept.popitem(last=False)

    def _user(self, login: Login) -> User | None:
        """The user whose password counts. None: no user of that name may log in from there."""
        user = self._users.get(login.name)
        if user is None:
            # as in RabbitMQ, a stored user never has an empty password, whatever the hash says
            return self._stored(login.name) if login.password else None
        return None if user.loopback_only and not login.loopback else user

    def _identity(self, user: User) -> Identity:
        if user.name in self._users:
            return Identity(user.name, user.tags)
        return Identity(user.name, user.tags - {HA, WITNESS}, stored=True)

    def _digest(self, whose: str, password: str) -> bytes:
        return hashlib.blake2b(f"{whose}\0{password}".encode(), key=self._key, digest_size=32).digest()


def _matches_at_once(user: User, password: str) -> bool:
    """Compare with a configured plain password, or with a hash that takes microseconds."""
    if user.password is not None:
        return hmac.compare_digest(user.password.encode(), password.encode())
    return bool(user.password_hash) and matches_rabbit(user.password_hash or "", password)


def _dummy_of(users: Iterable[User]) -> str:
    """A hash that no password matches, as costly to check as most configured ones."""
    hashes = [user.password_hash for user in users if user.password_hash and is_argon2(user.password_hash)]
    costs = Counter(
        (found.memory_cost, found.time_cost, found.parallelism) for found in map(extract_parameters, hashes)
    )
    usual = (_HASHER.memory_cost, _HASHER.time_cost, _HASHER.parallelism)
    return dummy_hash(*costs.most_common(1)[0][0] if costs else usual)

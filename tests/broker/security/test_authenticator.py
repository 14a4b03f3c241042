"""Logins of configured and stored users."""

from __future__ import annotations

import pytest

from broker.errors import LoginRefused
from broker.security.authenticator import Authenticator, hash_password
from broker.security.identity import HA, Identity, User, default_users
from tests.broker.stored import hashed


class Stored(dict[str, User]):
    def put(self, name: str, password_hash: str, *tags: str) -> None:
        self[name] = User(name, frozenset(tags), password_hash=password_hash)


def door(stored: Stored, **more: bool) -> Authenticator:
    return Authenticator(default_users(), stored=stored.get, cache_key=b"key", **more)


def refused(authenticator: Authenticator, name: str, password: str, **where: bool) -> bool:
    try:
        authenticator.authenticate(name, password, **{"loopback": True, **where})
    except LoginRefused:
        return True
    return False


@pytest.mark.parametrize("kind", ["argon2id", "rabbitmq"])
def test_a_stored_user_logs_in(kind: str) -> None:
    stored = Stored()
    stored.put("alice", hash_password("word") if kind == "argon2id" else hashed("word"), "administrator")
    authenticator = door(stored)
    for _ in range(2):
        found = authenticator.authenticate("alice", "word", loopback=True)
        assert found == Identity("alice", frozenset({"administrator"}), stored=True)
        assert refused(authenticator, "alice", "other")
    assert not authenticator.authenticate("guest", "guest", loopback=True).stored


def test_a_changed_password_and_a_deleted_user_count_at_once() -> None:
    stored = Stored()
    stored.put("alice", hashed("word"))
    authenticator = door(stored)
    assert not refused(authenticator, "alice", "word")
    stored.put("alice", hashed("other"))
    assert refused(authenticator, "alice", "word")
    assert not refused(authenticator, "alice", "other")
    stored.clear()
    assert refused(authenticator, "alice", "other")


@pytest.mark.parametrize(
    "password_hash", ["", "word", "$argon2id$", hashed("")], ids=["none", "word", "torn", "of nothing"]
)
def test_a_stored_user_without_a_good_hash_or_password_does_not(password_hash: str) -> None:
    stored = Stored()
    stored.put("alice", password_hash)
    assert refused(door(stored), "alice", "")
    assert refused(door(stored), "alice", "word")


def test_stored_users_cannot_replace_configured_ones() -> None:
    stored = Stored()
    for name in ("ha", "guest", "mallory"):
        stored.put(name, hashed("word"), HA)
    authenticator = door(stored)
    assert refused(authenticator, "ha", "word") and refused(authenticator, "guest", "word")
    assert not authenticator.authenticate("guest", "guest", loopback=True).stored
    assert authenticator.authenticate("mallory", "word", loopback=True).tags == frozenset()


def test_a_stored_users_password_is_taken_from_where_a_configured_ones_is() -> None:
    stored = Stored()
    stored.put("alice", hashed("word"))
    assert refused(door(stored), "alice", "word", loopback=False)
    assert not refused(door(stored), "alice", "word", loopback=False, tls=True)
    assert not refused(door(stored, allow_plain_without_tls=True), "alice", "word", loopback=False)

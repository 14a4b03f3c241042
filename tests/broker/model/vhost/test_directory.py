"""Users, permissions and policies as entries: valid values, changes, and the copies on followers."""

from __future__ import annotations

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.values import Scope
from broker.model.vhost.directory import EntryFault, Permission
from broker.security.password_hashes import is_stored_hash, matches_rabbit, rabbit_hash
from tests.broker.model.helpers import Follower, end_tick, serving

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
HARE = rabbit_hash("rabbit_password_hashing_sha256", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
"""Hash of the password `test12`, from RabbitMQ's documentation."""

GREEDY = "$argon2id$v=19$m=4194304,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"
"""A hash that would need 4 GiB for a check."""


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


def user(name: str = "alice", **value: object) -> EntryPut:
    return EntryPut("user", "", name, {"password_hash": "", "tags": [], **value})


def permission(name: str = "alice", vhost: str = "/", **value: object) -> EntryPut:
    return EntryPut("permission", vhost, name, {**ALL, **value})


def policy(name: str = "short", **value: object) -> EntryPut:
    said = {"pattern": "^a", "apply-to": "queues", "priority": 0, "definition": {"max-length": 5}}
    return EntryPut("policy", "/", name, said | value)


def test_a_password_of_rabbitmq_is_good_here() -> None:
    assert is_stored_hash(HARE)
    assert matches_rabbit(HARE, "test12")
    assert not matches_rabbit(HARE, "test13")
    with pytest.raises(ValueError, match="rabbit_password_hashing_md5, and this broker takes"):
        rabbit_hash("rabbit_password_hashing_md5", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgx")
    with pytest.raises(ValueError, match="no hash of that algorithm"):
        rabbit_hash("rabbit_password_hashing_sha512", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")


def test_followers_have_every_change() -> None:
    vhost, follower = serving(), Follower()
    vhost.history.sinks.append(follower)
    assert vhost.shared.change_directory([user(tags=["administrator"]), permission(), policy()])
    end_tick(vhost)
    assert follower.vhost.shared.fingerprint() == vhost.shared.fingerprint()
    assert follower.vhost.shared.directory.users["alice"].tags == {"administrator"}
    assert vhost.shared.change_directory([EntryDelete("user", "", "alice")])
    end_tick(vhost)
    assert follower.vhost.shared.fingerprint() == vhost.shared.fingerprint()
    assert not follower.vhost.shared.directory.permissions and not follower.vhost.shared.directory.users
    assert follower.vhost.shared.directory.policies["/", "short"].definition == {"max-length": 5}


def test_an_unchanged_entry_makes_no_history() -> None:
    vhost = serving()
    vhost.shared.change_directory([user(), permission()])
    end_tick(vhost)
    assert vhost.shared.change_directory([permission(), user(), EntryDelete("user", "", "bob")]) is Scope.NONE
    assert end_tick(vhost) is None


def test_one_fault_and_nothing_is_changed() -> None:
    vhost = serving()
    before = vhost.shared.fingerprint()
    with pytest.raises(EntryFault, match="no such user"):
        vhost.shared.change_directory([user(), permission("bob")])
    assert vhost.shared.fingerprint() == before and not vhost.shared.directory.users


def test_definitions_bring_it_back() -> None:
    vhost, other = serving(), Follower()
    vhost.shared.change_directory([policy(), user(), permission()])
    for record in vhost.shared.definitions(Scope.STORE):
        other.vhost.shared.apply(record)
    assert other.vhost.shared.fingerprint() == vhost.shared.fingerprint()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (user(""), "1 to 255 octets, not 0"),
        (user("x" * 256), "1 to 255 octets, not 256"),
        (user("a\nb"), "characters that cannot be printed"),
        (user("\ud800"), "not Unicode"),
        (user(password_hash="hunter2"), "password_hash is of no kind that is known here"),
        (user(password_hash=7), "password_hash is of no kind"),
        (user(password_hash="$argon2id$v=19$m=19456,t=2,p=1$c2FsdA"), "password_hash is of no kind"),
        (user(password_hash=GREEDY), "password_hash is of no kind"),
        (user(tags="administrator"), "tags is a list"),
        (user(tags=["ha"]), "the tag 'ha' is for the pair's own identity"),
        (user(tags=[""]), "'' is no tag"),
        (user(limits={}), "'limits' is not known"),
        (permission("nobody"), "there is no such user"),
        (permission(vhost="elsewhere"), "there is no virtual host 'elsewhere'"),
        (permission(read="(unclosed"), "read is no regular expression"),
        (permission(read=None), "read is not a string"),
        (permission(write="x" * 5000), "write is longer than"),
        (permission(write="\udcff"), "write is not Unicode"),
        (EntryPut("vhost", "", "v", {"description": "\udcff"}), "description is not Unicode"),
        (policy(pattern="*"), "pattern is no regular expression"),
        (policy(definition={}), "a table with at least one key"),
        (policy(definition={"max-length": -1}), "max-length: {value_negative,-1}"),
        (policy(definition={"max-size": 1}), "max-size: no policy has such a key"),
        (policy(definition={"alternate-exchange": 1}), "alternate-exchange: not a string"),
        (policy(definition={"max-length": 2**63}), "max-length: a number that does not fit 64 bits"),
        (policy(definition={"ha-params": [{"a": float("inf")}]}), "ha-params: a number too large"),
        (policy(definition={"ha-params": nested(32)}), "ha-params: nested deeper than 32"),
        (policy(definition={"ha-params": {"k" * 256: 1}}), "ha-params: a key of more than 255 octets"),
        (policy(definition={"ha-params": {"\ud800": 1}}), "it has what cannot be stored"),
        (policy(**{"apply-to": "streams"}), "apply-to is one of"),
        (policy(priority="1"), "priority is a whole number"),
        (policy(priority=True), "priority is a whole number"),
        (EntryPut("quota", "/", "q", {}), "'quota' is no kind of entry"),
        (EntryPut("user", "/", "u", {}), "a user is of no virtual host"),
    ],
)
def test_refused_entries(change: EntryPut, words: str) -> None:
    vhost = serving()
    vhost.shared.change_directory([user()])
    before = vhost.shared.fingerprint()
    with pytest.raises(EntryFault) as caught:
        vhost.shared.change_directory([change])
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert vhost.shared.fingerprint() == before


def test_a_permission_is_three_expressions() -> None:
    mine = Permission("^mine", "", ".*")
    assert mine.allows("configure", "mine.too") and not mine.allows("configure", "his.mine")
    assert not mine.allows("write", "anything") and mine.allows("read", "anything")


def test_the_highest_priority_policy_applies_and_of_equals_the_first_name() -> None:
    vhost = serving()
    vhost.shared.change_directory([policy("b", priority=1), policy("a", priority=1), policy("c", priority=2)])
    found = vhost.shared.directory.policy_for("/", "a1", "queues")
    assert found is not None and found.name == "c"
    vhost.shared.change_directory([EntryDelete("policy", "/", "c")])
    found = vhost.shared.directory.policy_for("/", "a1", "queues")
    assert found is not None and found.name == "a"
    assert vhost.shared.directory.policy_for("/", "a1", "exchanges") is None
    assert vhost.shared.directory.policy_for("/", "b1", "queues") is None

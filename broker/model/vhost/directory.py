"""The directory: virtual hosts, users, permissions, limits, policies and federation, with the checks of their
values.

Owner: `VirtualHosts`, which records every change (`EntryPut`, `EntryDelete`) and applies changes from
history. Kind, virtual host and name identify an entry. Its value is a table, so store and link carry all
kinds alike. `check_change` refuses invalid entries before they become history; history itself is applied
unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.history.value_codec import UnsupportedValue, canonical
from broker.model.patterns import PatternFault, check_pattern, matches
from broker.model.policy import Policy
from broker.model.routing.node_routes import NODES
from broker.model.values import ROOT, Scope
from broker.model.vhost.federation_entries import (
    AGENT,
    CURSOR,
    HOME,
    NO_HOME,
    SEEN,
    UPSTREAM,
    Cursor,
    FederationAgent,
    SeenAt,
    Upstream,
    agent_fault,
    agent_name,
    agent_of,
    cursor_of,
    home_of,
    seen_at,
    upstream_fault,
    upstream_of,
)
from broker.model.vhost.policy_rules import APPLY_TO, operator_fault, policy_fault
from broker.model.vhost.producer_entries import PRODUCER, Known, known_of
from broker.security.identity import HA, User
from broker.security.password_hashes import is_stored_hash
from broker.security.topic_permissions import TOPICAL, TopicPermission, parts_of_topic, topic_name

VHOST, USER, PERMISSION, POLICY = "vhost", "user", "permission", "policy"
TOPIC_PERMISSION, OPERATOR_POLICY = "topic-permission", "operator-policy"
VHOST_LIMITS, USER_LIMITS = "vhost-limits", "user-limits"
LIMITS = {VHOST_LIMITS: ("max-connections", "max-queues"), USER_LIMITS: ("max-connections", "max-channels")}
"""The keys of each kind of limits. A negative number is no limit, as in RabbitMQ."""
LIMITS_NAME = "limits"
"""The name of a virtual host's only entry of limits."""
PROGRESS = (CURSOR, SEEN, PRODUCER)
"""Kinds of entries that say how far others have come: what has been taken from other nodes, and who sends
messages with numbers. They change often, and change no route."""
KINDS = (
    VHOST, USER, PERMISSION, TOPIC_PERMISSION, USER_LIMITS, VHOST_LIMITS, POLICY, OPERATOR_POLICY,
    UPSTREAM, AGENT, CURSOR, SEEN, HOME, PRODUCER,
)  # fmt: skip
"""In an order in which entries can be put."""
PERMISSIONS = ("configure", "write", "read")
SCOPE = Scope.STORE | Scope.LINK
"""The scope of every entry. Logins are the same on every node, whatever else is replicated."""
LONGEST_NAME = 255
LONGEST_TOPIC_NAME = 1024
"""Maximum octets of the name of a topic permission, which holds two names."""
LONGEST_PATTERN = 4096
LONGEST_DESCRIPTION = 4096
MOST_TAGS = 64
LARGEST = 16384
"""Maximum octets of one entry's value. It then fits a frame, in JSON too."""

Key = tuple[str, str, str]
"""Kind, virtual host ("" for users and for virtual hosts), name."""
Value = Mapping[str, object]


class EntryFault(ValueError):
    """Why a requested entry is refused, in one line."""


@dataclass(slots=True, frozen=True)
class Permission:
    """Regular expressions for the names of queues and exchanges that a user may configure, write and read.

    As in RabbitMQ, an expression matches anywhere in a name, the default exchange is `amq.default`, and an
    empty expression matches only an empty name.
    """

    configure: str
    write: str
    read: str

    def allows(self, what: str, name: str, slow: Callable[[], None] | None = None) -> bool:
        """`what`: one of `PERMISSIONS`. `slow` is called if the match is slow."""
        return matches(getattr(self, what), name, slow)


class Directory:
    """All entries. `generation` grows with every change but those of `PROGRESS`, which `progress_changes`
    counts."""

    scope = SCOPE

    def __init__(self) -> None:
        self.generation = self.progress_changes = 0
        self.vhosts: dict[str, str] = {ROOT: ""}
        """Descriptions by name. `/` always exists and needs no entry."""
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        """By virtual host and user."""
        self.policies: dict[tuple[str, str], Policy] = {}
        """By virtual host and name."""
        self.operator_policies: dict[tuple[str, str], Policy] = {}
        self.topic_permissions: dict[tuple[str, str], dict[str, TopicPermission]] = {}
        """By virtual host and user, then by exchange."""
        self.vhost_limits: dict[str, Value] = {}
        self.user_limits: dict[str, Value] = {}
        self.upstreams: dict[tuple[str, str], Upstream] = {}
        """By virtual host and name."""
        self.agents: dict[tuple[str, str], FederationAgent] = {}
        self.cursors: dict[tuple[str, str], Cursor] = {}
        """By virtual host and name of the agent, as the agents."""
        self.seen: dict[tuple[str, str], dict[SeenAt, bytes]] = {}
        """By virtual host and exchange: which messages of other nodes have come, as `ha` writes it."""
        self.home = NO_HOME
        self.producers: dict[tuple[str, str], Known] = {}
        """By virtual host and id."""
        self._values: dict[Key, Value] = {}

    def value(self, key: Key) -> Value | None:
        return self._values.get(key)

    def entries(self) -> Iterator[EntryPut]:
        """All entries as records, in an order that applies."""
        for kind in KINDS:
            for key, value in self._values.items():
                if key[0] == kind:
                    yield EntryPut(*key, value, SCOPE)

    def put(self, kind: str, vhost: str, name: str, value: Value) -> None:
        """Add or replace an entry."""
        self._values[kind, vhost, name] = value
        if kind in PROGRESS:
            self._put_progress(kind, vhost, name, value)
            return
        self.generation += 1
        match kind:
            case "federation-upstream":
                self.upstreams[vhost, name] = upstream_of(value)
            case "federation-agent":
                self.agents[vhost, name] = agent_of(value)
            case "federation-home":
                self.home = home_of(value)
            case "vhost":
                self.vhosts[name] = str(value.get("description", ""))
            case "user":
                tags = value.get("tags")
                self.users[name] = User(
                    name, frozenset(map(str, tags if isinstance(tags, list) else ())) - {HA},
                    password_hash=str(value.get("password_hash", "")),
                )  # fmt: skip
            case "permission":
                self.permissions[vhost, name] = Permission(*(str(value.get(p, "")) for p in PERMISSIONS))
            case "policy":
                self.policies[vhost, name] = _policy_of(vhost, name, value)
            case "operator-policy":
                self.operator_policies[vhost, name] = _policy_of(vhost, name, value)
            case "topic-permission":
                user, exchange = parts_of_topic(name)
                patterns = TopicPermission(*(str(value.get(what, "")) for what in TOPICAL))
                self.topic_permissions.setdefault((vhost, user), {})[exchange] = patterns
            case "vhost-limits":
                self.vhost_limits[vhost] = value
            case "user-limits":
                self.user_limits[name] = value

    def _put_progress(self, kind: str, vhost: str, name: str, value: Value) -> None:
        self.progress_changes += 1
        if kind == CURSOR:
            self.cursors[vhost, name] = cursor_of(value)
        elif kind == PRODUCER:
            self.producers[vhost, name] = known_of(value)
        else:
            at, bits = seen_at(name), value.get("bits")
            self.seen.setdefault((vhost, at.exchange), {})[at] = bits if isinstance(bits, bytes) else b""

    def delete(self, kind: str, vhost: str, name: str) -> bool:
        """Delete an entry. Idempotent; returns whether it existed."""
        if self._values.pop((kind, vhost, name), None) is None:
            return False
        if kind in PROGRESS:
            self.progress_changes += 1
            if kind == SEEN:
                at = seen_at(name)
                self.seen.get((vhost, at.exchange), {}).pop(at, None)
            elif kind == CURSOR:
                self.cursors.pop((vhost, name), None)
            else:
                self.producers.pop((vhost, name), None)
            return True
        self.generation += 1
        named = self._named(kind)
        if named is not None:
            named.pop((vhost, name), None)
        match kind:
            case "federation-home":
                self.home = NO_HOME
            case "vhost":
                self.vhosts.pop(name, None)
                self.vhosts.setdefault(ROOT, "")
            case "user":
                self.users.pop(name, None)
            case "topic-permission":
                self._forget_topic(vhost, *parts_of_topic(name))
            case "vhost-limits":
                self.vhost_limits.pop(vhost, None)
            case "user-limits":
                self.user_limits.pop(name, None)
        return True

    def _named(self, kind: str) -> dict[tuple[str, str], Any] | None:
        """The entries of this kind, if they go by virtual host and name."""
        found: dict[str, dict[tuple[str, str], Any]] = {
            PERMISSION: self.permissions, POLICY: self.policies, OPERATOR_POLICY: self.operator_policies,
            UPSTREAM: self.upstreams, AGENT: self.agents,
        }  # fmt: skip
        return found.get(kind)

    def _forget_topic(self, vhost: str, user: str, exchange: str) -> None:
        of_user = self.topic_permissions.get((vhost, user), {})
        of_user.pop(exchange, None)
        if not of_user:
            self.topic_permissions.pop((vhost, user), None)

    def apply(self, record: EntryPut | EntryDelete) -> None:
        if isinstance(record, EntryPut):
            self.put(record.kind, record.vhost, record.name, record.value)
        else:
            self.delete(record.kind, record.vhost, record.name)

    def steps(self, change: EntryPut | EntryDelete) -> list[EntryPut | EntryDelete]:
        """The records that make the change; empty if nothing changes. Entries that depend on a deleted one
        are deleted first."""
        key = (change.kind, change.vhost, change.name)
        known = self._values.get(key)
        if isinstance(change, EntryPut):
            same = known is not None and canonical(known) == canonical(change.value)
            return [] if same else [replace(change, scope=SCOPE)]
        if known is None:
            return []
        of_it: list[Key] = []
        if change.kind == USER:
            of_it = [(PERMISSION, vhost, user) for vhost, user in self.permissions if user == change.name]
            of_it += [
                (TOPIC_PERMISSION, vhost, topic_name(user, exchange))
                for (vhost, user), of_user in self.topic_permissions.items() if user == change.name
                for exchange in of_user
            ]  # fmt: skip
            of_it.append((USER_LIMITS, "", change.name))
        elif change.kind == VHOST:
            of_it = [other for other in self._values if other[1] == change.name]
        elif change.kind == UPSTREAM:
            names = [
                name for (vhost, name), agent in self.agents.items()
                if (vhost, agent.upstream) == (change.vhost, change.name)
            ]  # fmt: skip
            of_it = [(kind, change.vhost, name) for name in names for kind in (CURSOR, AGENT)]
            of_it.append((CURSOR, change.vhost, agent_name(NODES, change.name)))
        elif change.kind == AGENT:
            of_it = [(CURSOR, change.vhost, change.name)]
        of_it = [other for other in of_it if other in self._values]
        return [EntryDelete(*each, SCOPE) for each in (*of_it, key)]

    def copy(self) -> Directory:
        """A copy to try changes on."""
        same = Directory()
        same.vhosts, same.users, same.permissions = (
            dict(self.vhosts), dict(self.users), dict(self.permissions)
        )  # fmt: skip
        same.policies, same._values = dict(self.policies), dict(self._values)
        same.operator_policies = dict(self.operator_policies)
        same.topic_permissions = {key: dict(of_user) for key, of_user in self.topic_permissions.items()}
        same.vhost_limits, same.user_limits = dict(self.vhost_limits), dict(self.user_limits)
        same.upstreams, same.agents = dict(self.upstreams), dict(self.agents)
        same.cursors, same.home = dict(self.cursors), self.home
        same.producers = dict(self.producers)
        same.seen = {key: dict(of_it) for key, of_it in self.seen.items()}
        return same

    def limit(self, kind: str, of: str, key: str) -> int | None:
        """The limit `key` of a virtual host or a user (`kind`); None: it has none."""
        found = self.vhost_limits if kind == VHOST_LIMITS else self.user_limits
        most = found[of].get(key) if of in found else None
        return most if isinstance(most, int) and most >= 0 else None

    def policy_for(self, vhost: str, name: str, what: str, *, by_operator: bool = False) -> Policy | None:
        """The policy, or operator policy, that applies to a queue or exchange: the matching one of highest
        priority.

        `what`: "queues" or "exchanges". Among equal priorities, the smallest name wins.
        """
        ranked = self.ranked(vhost, what, by_operator=by_operator)
        return next((policy for policy in ranked if policy.matches(name)), None)

    def ranked(self, vhost: str, what: str, *, by_operator: bool = False) -> list[Policy]:
        """All policies for `what`. The first one that matches a name applies."""
        every = self.operator_policies if by_operator else self.policies
        found = [
            policy for policy in every.values()
            if policy.vhost == vhost and what in APPLY_TO[policy.apply_to]
        ]  # fmt: skip
        return sorted(found, key=lambda policy: (-policy.priority, policy.name))


def _policy_of(vhost: str, name: str, value: Value) -> Policy:
    priority, definition = value.get("priority"), value.get("definition")
    return Policy(
        name, vhost, str(value.get("pattern", "")), str(value.get("apply-to", "all")),
        priority if isinstance(priority, int) else 0,
        definition if isinstance(definition, Mapping) else {},
    )  # fmt: skip


# -- checks


def check_change(directory: Directory, change: EntryPut | EntryDelete) -> None:
    """Raises EntryFault if an entry may not be put or deleted."""
    if isinstance(change, EntryPut):
        check_entry(directory, change)
    elif (change.kind, change.name) == (VHOST, ROOT):
        raise EntryFault(f"virtual host '{ROOT}' is always there: it cannot be deleted")


def check_entry(directory: Directory, record: EntryPut) -> None:
    where = f"{record.kind} {record.name!r:.300}"
    if record.kind not in KINDS:
        raise EntryFault(f"{record.kind!r:.80} is no kind of entry")
    _check_name(record.name, where, LONGEST_TOPIC_NAME if record.kind == TOPIC_PERMISSION else LONGEST_NAME)
    if record.kind in (USER, VHOST, HOME, USER_LIMITS):
        if record.vhost:
            raise EntryFault(f"{where}: a {record.kind} is of no virtual host")
    elif record.vhost not in directory.vhosts:
        raise EntryFault(f"{where}: there is no virtual host {record.vhost!r:.300}")
    check = {
        VHOST: _check_vhost, USER: _check_user, PERMISSION: _check_permission, POLICY: _check_policy,
        UPSTREAM: _check_federation, AGENT: _check_federation, CURSOR: _check_federation,
        SEEN: _check_federation, HOME: _check_federation, PRODUCER: _check_federation,
        TOPIC_PERMISSION: _check_topic_permission, OPERATOR_POLICY: _check_operator_policy,
        VHOST_LIMITS: _check_vhost_limits, USER_LIMITS: _check_user_limits,
    }[record.kind]  # fmt: skip
    check(record.value, where)
    try:
        octets = len(canonical(record.value))
    except (UnsupportedValue, UnicodeEncodeError) as error:
        raise EntryFault(f"{where}: it has what cannot be stored: {error}") from None
    if octets > LARGEST:
        raise EntryFault(f"{where}: it takes {octets} octets, and {LARGEST} are the most")
    _check_whose(directory, record, where)
    if fault := _federation_fault(directory, record):
        raise EntryFault(f"{where}: {fault}")


def _check_whose(directory: Directory, record: EntryPut, where: str) -> None:
    """Check that the entry's user exists, and that its name is one of its kind."""
    if record.kind == VHOST_LIMITS and record.name != LIMITS_NAME:
        raise EntryFault(f"{where}: the limits of a virtual host have the name '{LIMITS_NAME}'")
    if record.kind not in (PERMISSION, TOPIC_PERMISSION, USER_LIMITS):
        return
    user = record.name
    if record.kind == TOPIC_PERMISSION:
        user, exchange = parts_of_topic(record.name)
        if not exchange or topic_name(user, exchange) != record.name:
            raise EntryFault(f"{where}: its name is not that of a user and an exchange")
    if user not in directory.users:
        raise EntryFault(f"{record.kind} for {user!r:.300}: there is no such user")


def _octets(text: str, where: str) -> int:
    """Length in octets. Raises EntryFault if a definitions file cannot hold the text."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise EntryFault(f"{where} is not Unicode") from None


def _check_name(name: str, where: str, most: int) -> None:
    octets = _octets(name, f"{where}: its name")
    if not 0 < octets <= most:
        raise EntryFault(f"{where}: a name has 1 to {most} octets, not {octets}")
    if not name.isprintable():
        raise EntryFault(f"{where}: its name has characters that cannot be printed")


def _check_federation(value: Value, where: str) -> None:
    """See `_federation_fault`."""


def _federation_fault(directory: Directory, record: EntryPut) -> str:
    match record.kind:
        case "federation-upstream":
            return upstream_fault(record.name, record.value)
        case "federation-agent":
            if fault := agent_fault(record.name, record.value):
                return fault
            upstream = str(record.value.get("upstream"))
            there = (record.vhost, upstream) in directory.upstreams
            return "" if there else f"there is no upstream {upstream!r:.300} in its virtual host"
        case "federation-cursor" | "federation-seen":
            return "the broker itself says how far an agent has taken"
        case "federation-home":
            return "the broker itself says whose link queues it has"
        case "producer":
            return "producers register themselves, when they connect"
    return ""


def _check_keys(value: Value, known: tuple[str, ...], where: str) -> None:
    for key in value:
        if key not in known:
            raise EntryFault(f"{where}: {key!r:.80} is not known; it has {', '.join(known)}")


def _check_user(value: Value, where: str) -> None:
    _check_keys(value, ("password_hash", "tags"), where)
    hashed, tags = value.get("password_hash", ""), value.get("tags", [])
    if not isinstance(hashed, str) or (hashed and not is_stored_hash(hashed)):
        raise EntryFault(f"{where}: its password_hash is of no kind that is known here")
    if HA in _checked_tags(tags, where):
        raise EntryFault(
            f"{where}: the tag '{HA}' is for the pair's own identity, which is made in the configuration"
        )


def _checked_tags(tags: object, where: str) -> list[str]:
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or len(tags) > MOST_TAGS:
        raise EntryFault(f"{where}: tags is a list of at most {MOST_TAGS} words")
    for tag in tags:
        if not tag or not tag.isprintable() or len(tag) > LONGEST_NAME:
            raise EntryFault(f"{where}: {tag!r:.80} is no tag")
    return tags


def _check_vhost(value: Value, where: str) -> None:
    _check_keys(value, ("description", "tags"), where)
    description = value.get("description", "")
    if not isinstance(description, str) or len(description) > LONGEST_DESCRIPTION:
        raise EntryFault(f"{where}: description is a text of at most {LONGEST_DESCRIPTION} characters")
    _octets(description, f"{where}: description")
    _checked_tags(value.get("tags", []), where)


def _check_permission(value: Value, where: str) -> None:
    _check_keys(value, PERMISSIONS, where)
    for what in PERMISSIONS:
        _check_pattern(value.get(what), f"{where}: {what}")


def _check_topic_permission(value: Value, where: str) -> None:
    _check_keys(value, TOPICAL, where)
    for what in TOPICAL:
        _check_pattern(value.get(what), f"{where}: {what}")


def _check_vhost_limits(value: Value, where: str) -> None:
    _check_limits(value, LIMITS[VHOST_LIMITS], where)


def _check_user_limits(value: Value, where: str) -> None:
    _check_limits(value, LIMITS[USER_LIMITS], where)


def _check_limits(value: Value, known: tuple[str, ...], where: str) -> None:
    _check_keys(value, known, where)
    if not value:
        raise EntryFault(f"{where}: limits are at least one of {', '.join(known)}")
    for key, most in value.items():
        if type(most) is not int or not -(2**31) <= most < 2**31:
            raise EntryFault(f"{where}: {key} is a whole number, negative for no limit, not {most!r:.80}")


def _check_policy(value: Value, where: str) -> None:
    if (fault := policy_fault(_checked_policy(value, where))) is not None:
        raise EntryFault(f"{where}: definition: {fault}")


def _check_operator_policy(value: Value, where: str) -> None:
    if (fault := operator_fault(_checked_policy(value, where))) is not None:
        raise EntryFault(f"{where}: definition: {fault}")


def _checked_policy(value: Value, where: str) -> Mapping[str, object]:
    """Its definition, which is not checked yet."""
    _check_keys(value, ("pattern", "apply-to", "priority", "definition"), where)
    _check_pattern(value.get("pattern"), f"{where}: pattern")
    apply_to, priority = value.get("apply-to", "all"), value.get("priority", 0)
    if apply_to not in APPLY_TO:
        raise EntryFault(f"{where}: apply-to is one of {', '.join(APPLY_TO)}, not {apply_to!r:.80}")
    if type(priority) is not int or not -(2**31) <= priority < 2**31:
        raise EntryFault(f"{where}: priority is a whole number, not {priority!r:.80}")
    definition = value.get("definition")
    if not isinstance(definition, Mapping) or not definition:
        raise EntryFault(f"{where}: definition is a table with at least one key")
    return definition


def _check_pattern(pattern: object, where: str) -> None:
    if not isinstance(pattern, str):
        raise EntryFault(f"{where} is not a string")
    if len(pattern) > LONGEST_PATTERN:
        raise EntryFault(f"{where} is longer than {LONGEST_PATTERN} characters")
    _octets(pattern, where)
    try:
        check_pattern(pattern)
    except PatternFault as fault:
        raise EntryFault(f"{where} is no regular expression: {fault}") from None

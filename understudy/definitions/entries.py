"""Converts virtual hosts, users, permissions, policies and the parameters of federation of a definitions file
to directory entries. Pure.

Role: used by `plan`. Objects that a directory cannot hold are named, with the reason that the broker would
give: the broker's own checks run here, before anything is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.model.history.records import EntryPut
from broker.model.values import ROOT
from broker.model.vhost.directory import (
    KINDS,
    OPERATOR_POLICY,
    PERMISSION,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    USER_LIMITS,
    VHOST,
    VHOST_LIMITS,
    Directory,
    EntryFault,
    check_entry,
)
from broker.model.vhost.federation_entries import AGENT, AT, UPSTREAM
from broker.model.vhost.policy_rules import without_effect, wrong_value
from broker.security.password_hashes import RABBIT, is_argon2, rabbit_hash
from broker.security.topic_permissions import TOPICAL, topic_name
from ha.adapter.management.directory_changes import OPERATOR_COMPONENT
from understudy.definitions.parse import (
    Definitions,
    ParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    TopicPermissionDefinition,
    UserDefinition,
    VhostDefinition,
)
from understudy.definitions.rabbit_federation import KEYS as FEDERATION_KEYS
from understudy.definitions.strict_json import DefinitionsError, pointer
from understudy.definitions.unsupported import LeftOut, left

PLURALS = {
    VHOST: "vhosts", USER: "users", PERMISSION: "permissions", TOPIC_PERMISSION: "topic_permissions",
    USER_LIMITS: "user_limits", VHOST_LIMITS: "vhost_limits", POLICY: "policies",
    OPERATOR_POLICY: "operator_policies", UPSTREAM: "upstreams", AGENT: "agents",
}  # fmt: skip
NOUNS = {
    "vhosts": "virtual host", "users": "user", "permissions": "permission",
    "topic_permissions": "topic permission", "user_limits": "limit of a user",
    "vhost_limits": "limit of a virtual host", "policies": "policy", "operator_policies": "operator policy",
    "upstreams": "upstream", "agents": "agent", "exchanges": "exchange", "queues": "queue",
    "bindings": "binding",
}  # fmt: skip
"""The noun for each kind, for people."""
NOTHING_SAID = {"description": "", "tags": []}
_EVERYTHING = {".*"}
BY_AGENTS = (
    "kept; exchanges of the file have agents instead, and others get them by `understudy federate attach`"
)


@dataclass(slots=True, frozen=True)
class Entry:
    """An entry of the directory. `value` has the form of `broker.model.vhost.directory`."""

    kind: str
    vhost: str
    name: str
    value: dict[str, Any] = field(hash=False)

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.name


_Item = (
    VhostDefinition | UserDefinition | PermissionDefinition | TopicPermissionDefinition | PolicyDefinition
    | ParameterDefinition
)  # fmt: skip


def entry_of(item: _Item) -> Entry:
    """The entry for `item`. Raises ValueError for a password hash that this broker cannot check."""
    match item:
        case VhostDefinition():
            return Entry(VHOST, "", item.name, item.about)
        case UserDefinition():
            return Entry(USER, "", item.name, {"password_hash": _hash_of(item), "tags": sorted(item.tags)})
        case PermissionDefinition():
            expressions = {what: getattr(item, what) for what in PERMISSIONS}
            return Entry(PERMISSION, item.vhost, item.user, expressions)
        case TopicPermissionDefinition():
            patterns: dict[str, Any] = {what: getattr(item, what) for what in TOPICAL}
            return Entry(TOPIC_PERMISSION, item.vhost, topic_name(item.user, item.exchange), patterns)
        case ParameterDefinition():
            return Entry(kind_of_parameter(item.component), item.vhost, item.name, item.value)
    value = {
        "pattern": item.pattern, "apply-to": item.apply_to, "priority": item.priority,
        "definition": item.definition,
    }  # fmt: skip
    return Entry(POLICY, item.vhost, item.name, value)


def kind_of_parameter(component: str) -> str:
    """The kind of entry of a parameter that is known here."""
    return OPERATOR_POLICY if component == OPERATOR_COMPONENT else component


def limits_of(user: UserDefinition) -> list[Entry]:
    """The entry of a user's limits, if it has any."""
    return [Entry(USER_LIMITS, "", user.name, dict(user.limits))] if user.limits else []


def _hash_of(user: UserDefinition) -> str:
    if not user.password_hash or is_argon2(user.password_hash):
        return user.password_hash
    return rabbit_hash(user.hashing_algorithm, user.password_hash)


def there_of(there: Definitions) -> list[Entry]:
    """The entries that a broker has, from its own answer, without users of its configuration."""
    return [
        *map(entry_of, there.vhosts),
        *(entry_of(user) for user in there.users if not user.configured),
        *map(entry_of, there.permissions),
        *map(entry_of, there.topic_permissions),
        *(entry for user in there.users if not user.configured for entry in limits_of(user)),
        *map(entry_of, there.policies),
        *map(entry_of, parameters_of(there)),
    ]


def parameters_of(definitions: Definitions) -> list[ParameterDefinition]:
    """Those that are known here, in an order in which they can be put."""
    known = [parameter for parameter in definitions.parameters if parameter.is_known]
    return sorted(known, key=lambda parameter: KINDS.index(kind_of_parameter(parameter.component)))


def entries_of(file: Definitions, there: Definitions) -> tuple[list[Entry], list[LeftOut]]:
    """The entries to put, in a valid order, and what is left out. Raises DefinitionsError for an invalid
    password hash and for an invalid value of a policy."""
    configured = {user.name: user for user in there.users if user.configured}
    directory = Directory()
    for entry in there_of(there):
        directory.put(entry.kind, entry.vhost, entry.name, entry.value)
    internal = {(x.vhost, x.name) for x in (*file.exchanges, *there.exchanges) if x.internal}
    found: list[Entry] = []
    refused: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in _wanted(file, there, configured, refused):
        try:
            put = EntryPut(entry.kind, entry.vhost, entry.name, entry.value)
            check_entry(directory, put)
            if entry.kind == AGENT and (entry.vhost, entry.name.rpartition(AT)[0]) in internal:
                raise EntryFault("its exchange is internal, and has no agents")
        except EntryFault as fault:
            refused[entry.kind, str(fault)].append(entry.name)
        else:
            directory.apply(put)
            found.append(entry)
    left_out = [one for (kind, why), names in sorted(refused.items()) for one in left(kind, names, why)]
    return found, left_out + _differing(file, configured) + _idle(file, found)


def _wanted(
    file: Definitions,
    there: Definitions,
    configured: dict[str, UserDefinition],
    refused: defaultdict[tuple[str, str], list[str]],
) -> Iterator[Entry]:
    root = next((vhost.about for vhost in there.vhosts if vhost.name == ROOT), NOTHING_SAID)
    for vhost in file.vhosts:
        if (vhost.name, vhost.about) != (ROOT, root):
            yield entry_of(vhost)
    yield from _wanted_users(file, configured, refused)
    here = vhosts_of(file, there)
    for permission in file.permissions:
        if permission.vhost in here and permission.user not in configured:
            yield entry_of(permission)
    for topical in file.topic_permissions:
        if topical.vhost in here and topical.user not in configured:
            yield entry_of(topical)
    for user in file.users:
        if user.name not in configured:
            yield from limits_of(user)
    for number, policy in enumerate(file.policies):
        if policy.vhost not in here:
            continue
        if (wrong := wrong_value(policy.definition)) is not None:
            key, why = wrong
            raise DefinitionsError(f"{pointer(('policies', number, 'definition', key))}: {why}")
        yield entry_of(policy)
    yield from (entry_of(parameter) for parameter in parameters_of(file) if parameter.vhost in here)


def _wanted_users(
    file: Definitions,
    configured: dict[str, UserDefinition],
    refused: defaultdict[tuple[str, str], list[str]],
) -> Iterator[Entry]:
    for number, user in enumerate(file.users):
        if user.name in configured:
            continue
        if user.password is not None and not user.password_hash:
            refused[USER, "its password is not hashed: add the user with `understudy user add`"].append(
                user.name
            )
            continue
        try:
            yield entry_of(user)
        except ValueError as error:
            if user.hashing_algorithm in RABBIT:
                raise DefinitionsError(f"{pointer(('users', number, 'password_hash'))}: {error}") from None
            refused[USER, f"its password_hash {error}"].append(user.name)


def vhosts_of(file: Definitions, there: Definitions) -> frozenset[str]:
    """The virtual hosts that exist after the import. Nothing is imported into others."""
    return frozenset((ROOT, *(vhost.name for vhost in (*file.vhosts, *there.vhosts))))


def _differing(file: Definitions, configured: dict[str, UserDefinition]) -> list[LeftOut]:
    """Users of this node's configuration that the file describes differently."""
    tagged = [
        user.name for user in file.users
        if user.name in configured and "administrator" in {*user.tags} ^ {*configured[user.name].tags}
    ]  # fmt: skip
    narrow = [
        p.user for p in file.permissions
        if p.user in configured and {p.configure, p.write, p.read} != _EVERYTHING
    ]  # fmt: skip
    topical = [f"{p.user} on {p.exchange}" for p in file.topic_permissions if p.user in configured]
    limited = [user.name for user in file.users if user.limits and user.name in configured]
    everything = "users of this node's configuration may do everything"
    return [
        *left("user", tagged,
              "administrator in the file or in the configuration, not in both; stays as configured"),
        *left("permission by pattern", narrow, everything),
        *left("topic permission", topical, everything),
        *left("limit of a user", limited, everything),
    ]  # fmt: skip


def _idle(file: Definitions, found: list[Entry]) -> list[LeftOut]:
    """Keys of imported policies that have no effect here."""

    def left_by(key: str, names: list[str]) -> list[LeftOut]:
        if key in FEDERATION_KEYS:
            return left(f"policy with {key}", names, BY_AGENTS, matters=False)
        return left(f"policy with {key}", names, "kept, without effect here")

    idle: defaultdict[str, list[str]] = defaultdict(list)
    for entry in found:
        if entry.kind in (POLICY, OPERATOR_POLICY):
            for key in without_effect(entry.value["definition"]):
                idle[key].append(entry.name)
    return [
        one for key, names in sorted(idle.items()) for one in left_by(key, names)
    ]  # fmt: skip

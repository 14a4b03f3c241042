"""Virtual hosts, users, permissions, limits, policies and federation, as operators ask for them: what there
is, and changes. Owner: Questions.

A change is answered once it is on the disks of this node and of its in-sync backups, like a declaration. If
this node stops serving before that, the answer says that nobody knows yet whether the change holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.errors import AccessRefused, AmqpError
from broker.model.history.records import EntryDelete, EntryPut
from broker.model.policy import Policy
from broker.model.values import ROOT, Need
from broker.model.vhost.directory import (
    LIMITS_NAME,
    PERMISSION,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    USER_LIMITS,
    VHOST,
    VHOST_LIMITS,
    EntryFault,
)
from broker.model.vhost.federation_entries import AGENT, UPSTREAM
from broker.security.identity import ADMINISTRATOR, HA, WITNESS, User
from broker.security.password_hashes import rabbit_parts
from broker.security.topic_permissions import TOPICAL, parts_of_topic
from ha.adapter import codes
from ha.adapter.management.operations.asker import asker_of, tags_of
from ha.adapter.management.serving import not_serving
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.values import Position
    from broker.model.vhost.directory import Directory
    from broker.model.vhost.vhosts import VirtualHosts
    from ha.adapter.settings import HaSettings
    from ha.core.role import OwnIdentity

MOST = 200
"""Changes in one question."""
_TOLD = 5
"""Of them are named in the log."""
ARGON2 = "argon2id"
OPERATOR_COMPONENT = "operator_policy"
"""The component of operator policies in RabbitMQ's definitions, which have them as parameters."""
_OF_A_USER = (USER, PERMISSION, TOPIC_PERMISSION, USER_LIMITS)
POLICYMAKER = "policymaker"
OF_POLICYMAKERS = (POLICY, UPSTREAM, AGENT)
Reply = Callable[[dict[str, Any]], None]
Change = EntryPut | EntryDelete


class _Owed(NamedTuple):
    reply: Reply
    position: Position
    changed: int
    created: int


class DirectoryNode(Protocol):
    """The node, as far as the directory concerns it."""

    broker: Broker
    me: OwnIdentity
    settings: HaSettings
    vhosts: VirtualHosts

    @property
    def log(self) -> Callable[[Coded], None]: ...
    def status(self) -> dict[str, Any]: ...


class DirectoryChanges:
    """`ask` makes changes part of history; `end_tick` answers for those that have become safe."""

    def __init__(self, node: DirectoryNode) -> None:
        self._node = node
        self._owed: list[_Owed] = []

    def ask(
        self, args: Mapping[str, Any], reply: Reply, by: str | None = None, source: str | None = None
    ) -> None:
        """`args`: `changes`, a list of at most `MOST` tables of `action` (put or delete), `kind`, `vhost`,
        `name` and `value`. All of them or none. `by`: the user who asks; None: root.
        `source`: the address of an operator over AMQP. Answers how many entries
        were `changed`, and how many of the named ones are new (`created`)."""
        node = self._node
        if (refusal := not_serving(node.vhosts, node.status())) is not None:
            reply(refusal.answer())
            return
        try:
            changes = changes_of(args)
            self._check_rights(changes, by)
            self._check_configured(changes)
            created = self._new(changes)
            before = node.vhosts.directory.generation
            node.vhosts.change_directory(changes)
        except EntryFault as fault:
            reply(codes.CHANGE_REFUSED.say(fault=fault).answer() | {"refused": True})
            return
        except AmqpError as error:
            said = codes.OPERATION_REFUSED.say(fault=f"{error.label} - {error.text}")
            reply(said.answer() | {"amqp": error.code, "refused": True})
            return
        changed = node.vhosts.directory.generation - before
        if changed:
            node.log(_told(changes, by, source))
        self._owed.append(_Owed(reply, node.vhosts.history.position, changed, created))

    def _check_rights(self, changes: list[Change], by: str | None) -> None:
        """Administrators may change everything, policymakers policies and federation of virtual hosts in
        which they have a permission. Raises AccessRefused, NotAllowed, NotFound."""
        broker = self._node.broker
        tags = tags_of(broker, by)
        for change in changes if ADMINISTRATOR not in tags else ():
            if POLICYMAKER not in tags or change.kind not in OF_POLICYMAKERS:
                raise AccessRefused(f"changing {change.kind} {change.name!r:.300} refused for user '{by}'")
            asker_of(broker, by, change.vhost)

    def _new(self, changes: list[Change]) -> int:
        directory = self._node.vhosts.directory
        return sum(
            isinstance(change, EntryPut)
            and directory.value((change.kind, change.vhost, change.name)) is None
            and (change.kind, change.name) != (VHOST, ROOT)
            for change in changes
        )

    def _check_configured(self, changes: list[Change]) -> None:
        puts = [change for change in changes if isinstance(change, EntryPut)]
        federated = any(change.kind in (UPSTREAM, AGENT) for change in puts)
        if federated and not self._node.settings.federated.node:
            raise EntryFault(
                f"{self._node.me.name} is no federation node: set federation.node in its configuration, to "
                "the same name on all brokers of its pair"
            )
        logins = self._node.settings.federated.logins
        for put in puts:
            login = put.value.get("login") if put.kind == UPSTREAM else None
            if isinstance(login, str) and login and login not in logins:
                raise EntryFault(
                    f"{put.kind} {put.name!r:.300}: the configuration of {self._node.me.name} has no "
                    f"federation.logins.{login!s:.60}"
                )
        configured = {user.name for user in self._node.broker.settings.users}
        for change in changes:
            user = parts_of_topic(change.name)[0] if change.kind == TOPIC_PERMISSION else change.name
            made_there = change.kind in _OF_A_USER and user in configured
            if made_there and isinstance(change, EntryPut):
                raise EntryFault(
                    f"{change.kind} {user!r:.300}: this user is made in the configuration "
                    f"of {self._node.me.name}, and is changed there"
                )

    def end_tick(self) -> None:
        """Answer requests whose changes are safe."""
        if not self._owed:
            return
        node = self._node
        history, waiting = node.vhosts.history, []
        for owed in self._owed:
            if not node.vhosts.serving or history.epoch != owed.position.epoch:
                owed.reply(codes.CHANGE_UNSURE.say(node=node.me.name).answer() | {"unsure": True})
            elif not node.broker.output_fenced and node.broker.completion.reached(
                owed.position, Need.DURABLE
            ):
                owed.reply({"ok": True, "reason": "", "changed": owed.changed, "created": owed.created})
            else:
                waiting.append(owed)
        self._owed = waiting


def changes_of(args: Mapping[str, Any]) -> list[Change]:
    """Raises EntryFault."""
    asked = args.get("changes")
    if not isinstance(asked, list) or not 0 < len(asked) <= MOST:
        raise EntryFault(f"changes is a list of 1 to {MOST} tables")
    return [_change_of(change) for change in asked]


def _told(changes: list[Change], by: str | None, source: str | None) -> Coded:
    """For the log: who has changed which entries, and never their values."""
    who = "an operator" if by is None else f"user {by!a:.300}"
    who += f" from {source}" if source is not None else ""
    names = [f"{change.kind} {change.name!r:.100}" for change in changes[:_TOLD]]
    more = f" and {len(changes) - _TOLD} more" if len(changes) > _TOLD else ""
    deleted = all(isinstance(change, EntryDelete) for change in changes)
    what = "deletes" if deleted else "changes"
    return codes.DIRECTORY_CHANGED.say(who=who, what=what, entries=", ".join(names) + more)


def _change_of(change: object) -> Change:
    if not isinstance(change, dict):
        raise EntryFault("a change is a table")
    kind, vhost, name = (change.get(key, "") for key in ("kind", "vhost", "name"))
    if not (isinstance(kind, str) and isinstance(vhost, str) and isinstance(name, str)):
        raise EntryFault("kind, vhost and name of a change are strings")
    value = change.get("value", {})
    match change.get("action"):
        case "put" if isinstance(value, dict):
            return EntryPut(kind, vhost, name, value)
        case "delete":
            return EntryDelete(kind, vhost, name)
    raise EntryFault("the action of a change is put, with a table as value, or delete")


# -- what there is


def directory_of(directory: Directory, configured: Iterable[User]) -> dict[str, list[dict[str, Any]]]:
    """Virtual hosts, users (those of the configuration first, `configured`, without their passwords; the
    pair's own is left out), permissions, policies, and as parameters the limits of virtual hosts, operator
    policies and the entries of federation, in the keys of RabbitMQ's definitions."""
    made = [user for user in configured if not user.tags & {HA, WITNESS}]
    return {
        "vhosts": [
            {"name": name, "description": "", "tags": []} | dict(directory.value((VHOST, "", name)) or {})
            for name in directory.vhosts
        ],
        "users": [
            *({"name": u.name, "tags": sorted(u.tags), "configured": True} for u in made),
            *(_user(user, directory.user_limits.get(user.name, {})) for user in directory.users.values()),
        ],
        "permissions": [
            {"user": user, "vhost": vhost, **{what: getattr(held, what) for what in PERMISSIONS}}
            for (vhost, user), held in directory.permissions.items()
        ],
        "topic_permissions": [
            {"user": user, "vhost": vhost, "exchange": exchange,
             **{what: getattr(held, what) for what in TOPICAL}}
            for (vhost, user), of_user in directory.topic_permissions.items()
            for exchange, held in of_user.items()
        ],
        "policies": [{"vhost": p.vhost, "name": p.name, **_policy(p)} for p in directory.policies.values()],
        "parameters": [
            *({"component": VHOST_LIMITS, "vhost": vhost, "name": LIMITS_NAME, "value": dict(limits)}
              for vhost, limits in directory.vhost_limits.items()),
            *({"component": OPERATOR_COMPONENT, "vhost": p.vhost, "name": p.name, "value": _policy(p)}
              for p in directory.operator_policies.values()),
            *({"component": record.kind, "vhost": record.vhost, "name": record.name,
               "value": dict(record.value)}
              for record in directory.entries() if record.kind in (UPSTREAM, AGENT)),
        ],
    }  # fmt: skip


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern, "apply-to": policy.apply_to, "priority": policy.priority,
        "definition": dict(policy.definition),
    }  # fmt: skip


def _user(user: User, limits: Mapping[str, object]) -> dict[str, Any]:
    hashed = user.password_hash or ""
    algorithm, encoded = rabbit_parts(hashed) or (ARGON2 if hashed else "", hashed)
    return {
        "name": user.name, "tags": sorted(user.tags), "password_hash": encoded,
        "hashing_algorithm": algorithm, "limits": dict(limits),
    }  # fmt: skip

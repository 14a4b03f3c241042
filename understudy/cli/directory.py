"""`understudy vhost|user|permission|policy`: virtual hosts, users, their permissions and limits, and rules
for queues by name.

The pair itself keeps them, on every node. Users of a node's configuration file belong to that node, and are
only listed here. Each command finds the primary, whichever node it is given. It returns when the change is on
disk and on the backup.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from broker.model.vhost.directory import LIMITS_NAME, USER_LIMITS, VHOST_LIMITS
from broker.model.vhost.policy_rules import without_effect
from broker.security.topic_permissions import topic_name
from ha.adapter.management.directory_changes import OPERATOR_COMPONENT
from understudy import codes
from understudy.cli.options import Failed, Wrong, broker_options, given_password, stdin_option
from understudy.cli.primary import PrimaryBroker, vhost_option
from understudy.definitions.strict_json import DefinitionsError, read_json
from understudy.definitions.unsupported import counted

_APPLY_TO = ("all", "queues", "classic_queues", "quorum_queues", "exchanges")


# -- virtual hosts


@click.group()
def vhost() -> None:
    """Virtual hosts: name spaces of queues and exchanges, each with its own permissions.

    A connection uses one of them. '/' always exists.
    """


@vhost.command("list")
@broker_options
def list_vhosts(**broker: Any) -> None:
    """Show the virtual hosts, with their limits."""
    node = PrimaryBroker(**broker)
    limits = {line["vhost"]: line["value"] for line in _parameters(node, VHOST_LIMITS)}
    lines = [line | {"limits": _shown(limits.get(line["name"], {}))} for line in node.listing("vhosts")]
    node.show("vhosts", lines)


@vhost.command("add")
@click.argument("name")
@click.option("--description", default="", help="A description.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@broker_options
def add_vhost(name: str, description: str, tags: tuple[str, ...], **broker: Any) -> None:
    """Add virtual host NAME, or change its description. Stored users need a permission in it."""
    node = PrimaryBroker(**broker)
    value = {"description": description, "tags": sorted(set(tags))}
    node.change("put", "vhost", "", name, value, f"virtual host {name!r} exists")


@vhost.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete it without asking, messages included.")
@broker_options
def delete_vhost(name: str, yes: bool, **broker: Any) -> None:
    """Delete NAME with its queues, their messages, exchanges, permissions and policies; close its
    connections."""
    node = PrimaryBroker(**broker)
    queues = [queue for queue in node.queues() if queue["vhost"] == name]
    messages = sum(queue["ready"] + queue["unacked"] for queue in queues)
    if messages and not yes:
        lost = f"{name!r} has {counted(messages, 'message')} in {counted(len(queues), 'queue')}"
        if not sys.stdin.isatty():
            raise Wrong(f"{lost}: nothing is deleted without --yes")
        click.confirm(f"{lost}. Delete them?", abort=True, err=True)
    if not node.change("delete", "vhost", "", name, {}, f"virtual host {name!r} is deleted"):
        node.nothing(f"virtual host {name!r}")


_CONNECTIONS = click.option(
    "--max-connections", type=int, help="Most connections of clients; negative for no limit."
)
_CLEAR = click.option("--clear", is_flag=True, help="Remove all limits first.")


@vhost.command("limit")
@click.argument("name")
@_CONNECTIONS
@click.option("--max-queues", type=int, help="Most queues; negative for no limit.")
@_CLEAR
@broker_options
def limit_vhost(
    name: str, max_connections: int | None, max_queues: int | None, clear: bool, **broker: Any
) -> None:
    """Set limits of virtual host NAME. What is there stays, and counts; more is refused. Other limits stay as
    they are.
    """
    node = PrimaryBroker(**broker)
    wanted = {"max-connections": max_connections, "max-queues": max_queues}
    found = [line["value"] for line in _parameters(node, VHOST_LIMITS) if line["vhost"] == name]
    _limit(node, (VHOST_LIMITS, name, LIMITS_NAME), found, wanted, f"virtual host {name!r}", clear=clear)


def _limit(
    node: PrimaryBroker, key: tuple[str, str, str], found: list[dict[str, int]],
    wanted: dict[str, int | None], whose: str, *, clear: bool,
) -> None:  # fmt: skip
    """`key`: kind, virtual host and name of the entry. `found`: its value, if it exists."""
    asked = {name: most for name, most in wanted.items() if most is not None}
    if not asked and not clear:
        raise Wrong(f"name a limit: {', '.join(f'--{name}' for name in wanted)}; or --clear")
    value = asked if clear or not found else {**found[0], **asked}
    if value:
        node.change("put", *key, value, f"{whose} has {_shown(value)}")
    elif not node.change("delete", *key, {}, f"{whose} has no limits"):
        node.nothing(f"limit of {whose}")


def _shown(limits: dict[str, int]) -> str:
    return ", ".join(f"{name} {most}" for name, most in sorted(limits.items()))


def _parameters(node: PrimaryBroker, component: str) -> list[dict[str, Any]]:
    return [line for line in node.listing("parameters") if line["component"] == component]


# -- users


@click.group()
def user() -> None:
    """Users who may log in on every node: list, add and delete them, change passwords, tags and limits.

    A new user may do nothing until `understudy permission set`. Users of the configuration file may do
    everything, are changed there (`understudy passwd`), and are listed with source "configuration".
    """


@user.command("list")
@broker_options
def list_users(**broker: Any) -> None:
    """Show the users, their tags and limits."""
    node = PrimaryBroker(**broker)
    lines = [
        {
            "name": line["name"], "tags": line["tags"],
            "source": "configuration" if line.get("configured") else "stored",
            "login": "yes" if line.get("configured") or line.get("password_hash") else "no password",
            "limits": _shown(line.get("limits", {})),
        }
        for line in node.listing("users")
    ]  # fmt: skip
    node.show("users", lines)


@user.command("add")
@click.argument("name")
@click.option("--tag", "tags", multiple=True, help="A tag, such as administrator; may be repeated.")
@stdin_option
@broker_options
def add_user(name: str, tags: tuple[str, ...], from_stdin: bool, **broker: Any) -> None:
    """Add user NAME; asks for the password."""
    node = PrimaryBroker(**broker)
    for line in node.listing("users"):
        if line["name"] == name:
            configured, stored = "change it in the configuration", "see `understudy user password`"
            way = configured if line.get("configured") else stored
            raise Failed(codes.USER_EXISTS.say(address=node.address, name=name, way=way))
    value = {"password_hash": _new_hash(from_stdin), "tags": sorted(set(tags))}
    node.change("put", "user", "", name, value, f"user {name!r} exists, without permissions")


@user.command("password")
@click.argument("name")
@stdin_option
@broker_options
def change_password(name: str, from_stdin: bool, **broker: Any) -> None:
    """Change the password of NAME; open connections stay."""
    node = PrimaryBroker(**broker)
    known = _stored(node, name)
    value = {"password_hash": _new_hash(from_stdin), "tags": known["tags"]}
    node.change("put", "user", "", name, value, f"user {name!r} has the new password")


@user.command("tags")
@click.argument("name")
@click.argument("tags", nargs=-1)
@broker_options
def change_tags(name: str, tags: tuple[str, ...], **broker: Any) -> None:
    """Set the tags of NAME to exactly these; `administrator` may manage the pair."""
    node = PrimaryBroker(**broker)
    known = _stored(node, name)
    said = ", ".join(sorted(set(tags))) or "no tags"
    value = {"password_hash": _hash_of(known), "tags": sorted(set(tags))}
    node.change("put", "user", "", name, value, f"user {name!r} has {said}")


@user.command("limit")
@click.argument("name")
@_CONNECTIONS
@click.option(
    "--max-channels", type=int, help="Most channels, of all its connections; negative for no limit."
)
@_CLEAR
@broker_options
def limit_user(
    name: str, max_connections: int | None, max_channels: int | None, clear: bool, **broker: Any
) -> None:
    """Set limits of user NAME. What is open stays, and counts; more is refused. Other limits stay as they
    are.
    """
    node = PrimaryBroker(**broker)
    known = _stored(node, name).get("limits", {})
    wanted = {"max-connections": max_connections, "max-channels": max_channels}
    _limit(node, (USER_LIMITS, "", name), [known] if known else [], wanted, f"user {name!r}", clear=clear)


@user.command("delete")
@click.argument("name")
@broker_options
def delete_user(name: str, **broker: Any) -> None:
    """Delete NAME with its permissions, and close its connections."""
    node = PrimaryBroker(**broker)
    if not node.change("delete", "user", "", name, {}, f"user {name!r} is deleted"):
        node.nothing(f"stored user {name!r}")


def _stored(node: PrimaryBroker, name: str) -> dict[str, Any]:
    for line in node.listing("users"):
        if line["name"] == name and not line.get("configured"):
            return line
    return node.nothing(f"stored user {name!r}")


def _hash_of(line: dict[str, Any]) -> str:
    """The hash in the form in which the directory keeps it."""
    hashed = str(line.get("password_hash", ""))
    return hashed if not hashed or hashed.startswith("$") else f"${line['hashing_algorithm']}${hashed}"


def _new_hash(from_stdin: bool) -> str:
    from broker.security.authenticator import hash_password

    return hash_password(given_password(from_stdin=from_stdin))


# -- permissions


@click.group()
def permission() -> None:
    """What users may do: regular expressions for the names that they may configure, write and read.

    They match anywhere in a name: use ^orders$ for that one queue or exchange, .* for all, and an empty
    expression ('') for none.
    """


@permission.command("list")
@broker_options
def list_permissions(**broker: Any) -> None:
    """Show the permissions of all stored users."""
    node = PrimaryBroker(**broker)
    node.show("permissions", node.listing("permissions"))


@permission.command("set")
@click.argument("user_name", metavar="USER")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@vhost_option
@broker_options
def set_permission(user_name: str, configure: str, write: str, read: str, vhost: str, **broker: Any) -> None:
    """Let USER declare and delete names that match CONFIGURE, publish to WRITE, and consume from READ."""
    node = PrimaryBroker(**broker)
    value = {"configure": configure, "write": write, "read": read}
    node.change(
        "put", "permission", vhost, user_name, value, f"{user_name!r} has this permission in {vhost!r}"
    )


@permission.command("clear")
@click.argument("user_name", metavar="USER")
@vhost_option
@broker_options
def clear_permission(user_name: str, vhost: str, **broker: Any) -> None:
    """Remove USER's permission in the virtual host."""
    node = PrimaryBroker(**broker)
    if not node.change(
        "delete", "permission", vhost, user_name, {}, f"{user_name!r} has no permission in {vhost!r}"
    ):
        node.nothing(f"permission of {user_name!r} in {vhost!r}")


@permission.command("list-topic")
@broker_options
def list_topic_permissions(**broker: Any) -> None:
    """Show the topic permissions of all stored users."""
    node = PrimaryBroker(**broker)
    node.show("topic permissions", node.listing("topic_permissions"))


@permission.command("set-topic")
@click.argument("user_name", metavar="USER")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
@vhost_option
@broker_options
def set_topic_permission(
    user_name: str, exchange: str, write: str, read: str, vhost: str, **broker: Any
) -> None:
    """Let USER publish to topic EXCHANGE only with routing keys that match WRITE, and bind only READ.

    In both, {username} and {vhost} stand for the names. USER needs its ordinary permission besides.
    """
    node = PrimaryBroker(**broker)
    done = f"{user_name!r} has this topic permission for {exchange!r} in {vhost!r}"
    value = {"write": write, "read": read}
    node.change("put", "topic-permission", vhost, topic_name(user_name, exchange), value, done)


@permission.command("clear-topic")
@click.argument("user_name", metavar="USER")
@click.argument("exchange")
@vhost_option
@broker_options
def clear_topic_permission(user_name: str, exchange: str, vhost: str, **broker: Any) -> None:
    """Remove USER's topic permission for EXCHANGE: any routing key is allowed again."""
    node = PrimaryBroker(**broker)
    name, what = topic_name(user_name, exchange), f"topic permission of {user_name!r} for {exchange!r}"
    if not node.change("delete", "topic-permission", vhost, name, {}, f"no {what} in {vhost!r}"):
        node.nothing(f"{what} in {vhost!r}")


# -- policies

_operator = click.option(
    "--operator", is_flag=True, help="Operator policies: limits on what policies and clients ask for."
)


@click.group()
def policy() -> None:
    """Rules for all queues or exchanges whose names match, without declaring them again."""


@policy.command("list")
@_operator
@broker_options
def list_policies(operator: bool, **broker: Any) -> None:
    """Show the policies."""
    node = PrimaryBroker(**broker)
    if operator:
        lines = [
            {"vhost": line["vhost"], "name": line["name"], **line["value"]}
            for line in _parameters(node, OPERATOR_COMPONENT)
        ]
    else:
        lines = node.listing("policies")
    shown = [line | {"definition": json.dumps(line["definition"])} for line in lines]
    kind = "operator policies" if operator else "policies"
    node.show(kind, lines if broker["form"] == "json" else shown)


@policy.command("set")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@click.option("--apply-to", type=click.Choice(_APPLY_TO), default="all", show_default=True)
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    help="Of the policies that match, the highest priority applies.",
)
@_operator
@vhost_option
@broker_options
def set_policy(
    name: str, pattern: str, definition: str, apply_to: str, priority: int, operator: bool, vhost: str,
    **broker: Any,
) -> None:  # fmt: skip
    """Set policy NAME for names that match PATTERN. DEFINITION is JSON, such as '{"max-length": 1000}'.

    Keys: message-ttl, expires, max-length, max-length-bytes, overflow, dead-letter-exchange,
    dead-letter-routing-key, delivery-limit, consumer-timeout, dedup-window, ha-confirm; for exchanges
    alternate-exchange, federation-upstream, federation-upstream-pattern and federation-upstream-set (all).
    Other keys of RabbitMQ's are stored and have no effect.

    An operator policy has of these message-ttl, expires, max-length, max-length-bytes, delivery-limit and
    overflow. Queues have both: of numbers the smaller, else the operator's.
    """
    try:
        asked = read_json(definition.encode(errors="surrogateescape"))
    except DefinitionsError as error:
        raise Wrong(f"DEFINITION: {error}") from None
    if not isinstance(asked, dict):
        raise Wrong("DEFINITION is not a JSON object")
    value = {"pattern": pattern, "apply-to": apply_to, "priority": priority, "definition": asked}
    node = PrimaryBroker(**broker)
    kind, noun = _kind(operator)
    node.change("put", kind, vhost, name, value, f"{noun} {name!r} is set in {vhost!r}")
    for key in without_effect(asked):
        click.echo(f"understudy: {key} is kept, and has no effect here", err=True)


def _kind(operator: bool) -> tuple[str, str]:
    """The kind of entry, and its noun."""
    return ("operator-policy", "operator policy") if operator else ("policy", "policy")


@policy.command("clear")
@click.argument("name")
@_operator
@vhost_option
@broker_options
def clear_policy(name: str, operator: bool, vhost: str, **broker: Any) -> None:
    """Remove policy NAME. Its queues and exchanges use another matching policy, or their own arguments."""
    node = PrimaryBroker(**broker)
    kind, noun = _kind(operator)
    if not node.change("delete", kind, vhost, name, {}, f"{noun} {name!r} is deleted from {vhost!r}"):
        node.nothing(f"{noun} {name!r} in {vhost!r}")

"""`understudy vhost|user|permission|policy`: virtual hosts, users, their permissions, and rules for queues by
name.

The pair itself keeps them, on every node. Users of a node's configuration file belong to that node, and are
only listed here. Each command finds the primary, whichever node it is given. It returns when the change is on
disk and on the backup.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from broker.model.vhost.policy_rules import without_effect
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
    """Show the virtual hosts."""
    node = PrimaryBroker(**broker)
    node.show("vhosts", node.listing("vhosts"))


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


# -- users


@click.group()
def user() -> None:
    """Users who may log in on every node: list, add and delete them, change passwords and tags.

    A new user may do nothing until `understudy permission set`. Users of the configuration file may do
    everything, are changed there (`understudy passwd`), and are listed with source "configuration".
    """


@user.command("list")
@broker_options
def list_users(**broker: Any) -> None:
    """Show the users and their tags."""
    node = PrimaryBroker(**broker)
    lines = [
        {
            "name": line["name"], "tags": line["tags"],
            "source": "configuration" if line.get("configured") else "stored",
            "login": "yes" if line.get("configured") or line.get("password_hash") else "no password",
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


# -- policies


@click.group()
def policy() -> None:
    """Rules for all queues or exchanges whose names match, without declaring them again."""


@policy.command("list")
@broker_options
def list_policies(**broker: Any) -> None:
    """Show the policies."""
    node = PrimaryBroker(**broker)
    lines = node.listing("policies")
    shown = [line | {"definition": json.dumps(line["definition"])} for line in lines]
    node.show("policies", lines if broker["form"] == "json" else shown)


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
@vhost_option
@broker_options
def set_policy(
    name: str, pattern: str, definition: str, apply_to: str, priority: int, vhost: str, **broker: Any
) -> None:
    """Set policy NAME for names that match PATTERN. DEFINITION is JSON, such as '{"max-length": 1000}'.

    Keys: message-ttl, expires, max-length, max-length-bytes, overflow, dead-letter-exchange,
    dead-letter-routing-key; for exchanges alternate-exchange, federation-upstream,
    federation-upstream-pattern and federation-upstream-set (all). Other keys of RabbitMQ's are stored and
    have no effect.
    """
    try:
        asked = read_json(definition.encode(errors="surrogateescape"))
    except DefinitionsError as error:
        raise Wrong(f"DEFINITION: {error}") from None
    if not isinstance(asked, dict):
        raise Wrong("DEFINITION is not a JSON object")
    value = {"pattern": pattern, "apply-to": apply_to, "priority": priority, "definition": asked}
    node = PrimaryBroker(**broker)
    node.change("put", "policy", vhost, name, value, f"policy {name!r} is set in {vhost!r}")
    for key in without_effect(asked):
        click.echo(f"understudy: {key} is kept, and has no effect here", err=True)


@policy.command("clear")
@click.argument("name")
@vhost_option
@broker_options
def clear_policy(name: str, vhost: str, **broker: Any) -> None:
    """Remove policy NAME. Its queues and exchanges use another matching policy, or their own arguments."""
    node = PrimaryBroker(**broker)
    if not node.change("delete", "policy", vhost, name, {}, f"policy {name!r} is deleted from {vhost!r}"):
        node.nothing(f"policy {name!r} in {vhost!r}")

"""`understudy declare` and `understudy delete`: queues, exchanges and bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from understudy.cli.objects.operator import Operator, arguments_option, sure, yes_option
from understudy.cli.options import broker_options
from understudy.cli.primary import vhost_option
from understudy.definitions.unsupported import counted

_TYPES = ("direct", "fanout", "topic", "headers")


@click.group()
def declare() -> None:
    """Declare a queue, an exchange or a binding. One that is there with the same properties stays."""


def _to_option(function: Any) -> Any:
    return click.option(
        "--to", "kind", type=click.Choice(["queue", "exchange"]), default="queue", show_default=True,
        help="What DESTINATION is.",
    )(function)  # fmt: skip


def _lifetime_options(last: str) -> Callable[[Any], Any]:
    """How long an object lives. `last`: with what it may end."""

    def decorated(function: Any) -> Any:
        function = click.option("--auto-delete", is_flag=True, help=f"It ends with its last {last}.")(
            function
        )
        return click.option("--transient", is_flag=True, help="Not durable: it ends with the broker.")(
            function
        )

    return decorated


def _unused_option(only_if: str) -> Callable[[Any], Any]:
    return click.option("--if-unused", is_flag=True, help=f"Only if {only_if}.")


@declare.command("queue")
@click.argument("name")
@_lifetime_options("consumer")
@arguments_option
@vhost_option
@broker_options
def declare_queue(
    name: str, transient: bool, auto_delete: bool, arguments: dict[str, Any], vhost: str, **broker: Any
) -> None:
    """Declare queue NAME, durable unless --transient."""
    node = Operator(**broker)
    answer = node.operate(
        "declare-queue", vhost=vhost, name=name, durable=not transient, auto_delete=auto_delete,
        arguments=arguments,
    )  # fmt: skip
    node.tell(answer, f"queue {name!r} exists{'' if answer['created'] else ' already'}")


@declare.command("exchange")
@click.argument("name")
@click.option(
    "--type", "kind", default="direct", show_default=True, metavar="TYPE",
    help=f"{', '.join(_TYPES)}, or another type of the broker.",
)  # fmt: skip
@_lifetime_options("binding")
@click.option("--internal", is_flag=True, help="Clients cannot publish to it.")
@arguments_option
@vhost_option
@broker_options
def declare_exchange(
    name: str, kind: str, transient: bool, auto_delete: bool, internal: bool, arguments: dict[str, Any],
    vhost: str, **broker: Any,
) -> None:  # fmt: skip
    """Declare exchange NAME, durable unless --transient."""
    node = Operator(**broker)
    answer = node.operate(
        "declare-exchange", vhost=vhost, name=name, type=kind, durable=not transient, auto_delete=auto_delete,
        internal=internal, arguments=arguments,
    )  # fmt: skip
    node.tell(answer, f"exchange {name!r} exists{'' if answer['created'] else ' already'}")


@declare.command("binding")
@click.argument("source")
@click.argument("destination")
@click.argument("key", default="")
@_to_option
@arguments_option
@vhost_option
@broker_options
def declare_binding(
    source: str, destination: str, key: str, kind: str, arguments: dict[str, Any], vhost: str, **broker: Any
) -> None:
    """Bind DESTINATION to exchange SOURCE with routing key KEY."""
    node = Operator(**broker)
    answer = node.operate(
        "bind", vhost=vhost, source=source, destination=destination, destination_type=kind, routing_key=key,
        arguments=arguments,
    )  # fmt: skip
    already = "" if answer["created"] else " already"
    node.tell(answer, f"{kind} {destination!r} is bound to {source!r} with key {key!r}{already}")


@click.group()
def delete() -> None:
    """Delete a queue, an exchange or a binding."""


@delete.command("queue")
@click.argument("name")
@click.option("--if-empty", is_flag=True, help="Only if it has no ready message.")
@_unused_option("it has no consumer")
@yes_option
@vhost_option
@broker_options
def delete_queue(name: str, if_empty: bool, if_unused: bool, yes: bool, vhost: str, **broker: Any) -> None:
    """Delete queue NAME with its messages."""
    node = Operator(**broker)
    messages = sum(
        queue["ready"] + queue["unacked"]
        for queue in (() if yes or if_empty else node.queues())
        if (queue["vhost"], queue["name"]) == (vhost, name)
    )
    if messages:
        sure(f"queue {name!r} has {counted(messages, 'message')}", yes)
    answer = node.operate("delete-queue", vhost=vhost, name=name, if_empty=if_empty, if_unused=if_unused)
    node.tell(answer, f"queue {name!r} is deleted, with {counted(answer['messages'], 'ready message')}")


@delete.command("exchange")
@click.argument("name")
@_unused_option("nothing is bound to it")
@vhost_option
@broker_options
def delete_exchange(name: str, if_unused: bool, vhost: str, **broker: Any) -> None:
    """Delete exchange NAME with its bindings."""
    node = Operator(**broker)
    answer = node.operate("delete-exchange", vhost=vhost, name=name, if_unused=if_unused)
    node.tell(answer, f"exchange {name!r} is deleted")


@delete.command("binding")
@click.argument("source")
@click.argument("destination")
@click.argument("key", default="")
@_to_option
@arguments_option
@vhost_option
@broker_options
def delete_binding(
    source: str, destination: str, key: str, kind: str, arguments: dict[str, Any], vhost: str, **broker: Any
) -> None:
    """Delete the binding of DESTINATION to exchange SOURCE with routing key KEY and these arguments."""
    node = Operator(**broker)
    answer = node.operate(
        "unbind", vhost=vhost, source=source, destination=destination, destination_type=kind, routing_key=key,
        arguments=arguments,
    )  # fmt: skip
    node.tell(answer, f"{kind} {destination!r} is no longer bound to {source!r} with key {key!r}")

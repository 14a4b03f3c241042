"""`understudy list`: what there is on the primary, one kind of object at a time."""

from __future__ import annotations

import json
from typing import Any

import click

from understudy.cli.node import rows, wide_console
from understudy.cli.objects.operator import Operator
from understudy.cli.options import Wrong, broker_options

_SHOWN = {
    "queues": (
        "vhost", "name", "durable", "messages_ready", "messages_unacknowledged", "consumers", "policy",
        "state",
    ),
    "exchanges": ("vhost", "name", "type", "durable", "auto_delete", "internal", "policy"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
    "connections": ("name", "user", "vhost", "protocol", "state", "channels", "client_properties"),
    "channels": (
        "name", "user", "vhost", "consumer_count", "messages_unacknowledged", "messages_unconfirmed",
        "prefetch_count", "confirm", "transactional",
    ),
    "consumers": (
        "queue", "channel_details", "consumer_tag", "ack_required", "exclusive", "prefetch_count", "active",
    ),
    "users": ("name", "tags", "limits"),
    "vhosts": ("name", "description", "tags", "messages"),
    "permissions": ("vhost", "user", "configure", "write", "read"),
    "topic-permissions": ("vhost", "user", "exchange", "write", "read"),
    "policies": ("vhost", "name", "pattern", "apply-to", "priority", "definition"),
    "operator-policies": ("vhost", "name", "pattern", "apply-to", "priority", "definition"),
    "producers": ("vhost", "name", "user", "epoch", "connected", "last_number", "queues"),
    "parameters": ("component", "vhost", "name", "value"),
}  # fmt: skip
"""The kinds, and the columns of a table for people."""
_NAMES = {
    "channel_details": "name", "client_properties": "connection_name",
}  # fmt: skip
"""Columns that are objects: the key of what a table shows of them."""


@click.command("list")
@click.argument("kind", type=click.Choice(list(_SHOWN)))
@click.option("--vhost", default="", help="Only of this virtual host. Default: all.")
@click.option(
    "--columns", metavar="NAME,...", help="Show these columns, by the names of --format json, which has all."
)
@broker_options
def list_objects(kind: str, vhost: str, columns: str | None, **broker: Any) -> None:
    """Show what there is, from the primary. The columns are those of RabbitMQ's HTTP API."""
    node = Operator(**broker)
    wanted = _wanted(kind, columns, node.is_json)
    found = _all(node, kind, vhost, wanted)
    if columns is not None and found and (unknown := [name for name in wanted if not _any_has(found, name)]):
        raise Wrong(f"no {kind} have the column {unknown[0]!r}")
    if node.is_json:
        click.echo(json.dumps(found))
    elif found:
        wide_console().print(
            rows(kind, [{name: _cell(name, row.get(name)) for name in wanted} for row in found])
        )
    else:
        click.echo(f"{node.address}: no {kind}")


def _wanted(kind: str, columns: str | None, is_json: bool) -> list[str]:
    """Empty: all."""
    if columns is not None:
        return [name.strip() for name in columns.split(",") if name.strip()]
    return [] if is_json else list(_SHOWN[kind])


def _all(node: Operator, kind: str, vhost: str, columns: list[str]) -> list[dict[str, Any]]:
    """All rows. One answer has only some, so that no client of the node waits for long."""
    found: list[dict[str, Any]] = []
    begin: int | None = 0
    while begin is not None:
        answer = node.operate("list", kind=kind, vhost=vhost, columns=columns, **{"from": begin})
        found += answer["rows"]
        begin = answer["more"]
    return found


def _any_has(found: list[dict[str, Any]], name: str) -> bool:
    return any(name in row for row in found)


def _cell(name: str, value: Any) -> Any:
    """What a table shows: of a table of one kind only its name, of others their JSON."""
    if isinstance(value, dict):
        return value.get(_NAMES[name]) if name in _NAMES else json.dumps(value) if value else None
    return value

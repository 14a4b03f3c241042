"""`understudy get`, `publish`, `purge` and `move`: messages of queues, for a look, a test or a repair."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import click
from rich.progress import MofNCompleteColumn

from broker.amqp091.codec.content import PROPERTIES, TEXT
from understudy import codes
from understudy.cli.node import rows, wide_console
from understudy.cli.objects.operator import Operator, as_json, pairs, sure, yes_option
from understudy.cli.options import Failed, Wrong, broker_options, progress_bar
from understudy.cli.primary import vhost_option
from understudy.definitions.unsupported import counted

_MODES = {
    "keep": "ack_requeue_true", "take": "ack_requeue_false", "reject": "reject_requeue_false",
}  # fmt: skip
_CUT = 50_000
_LARGEST = 90_000
"""Octets of a body that fits into one question to a node, with its properties."""
_AT_ONCE = 10_000
"""Messages that one question moves."""


@click.command()
@click.argument("queue")
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many, at most."
)
@click.option(
    "--then", "mode", type=click.Choice(list(_MODES)), default="keep", show_default=True,
    help="keep: they stay, marked as redelivered. take: they are gone. reject: they become dead letters.",
)  # fmt: skip
@click.option(
    "--truncate", type=click.IntRange(0), default=_CUT, show_default=True, metavar="OCTETS",
    help="Show so much of each body.",
)  # fmt: skip
@vhost_option
@broker_options
def get(queue: str, count: int, mode: str, truncate: int, vhost: str, **broker: Any) -> None:
    """Show messages from the head of QUEUE."""
    node = Operator(**broker)
    answer = node.operate(
        "get", vhost=vhost, name=queue, count=count, ackmode=_MODES[mode], truncate=truncate
    )
    found = answer["messages"]
    if node.is_json:
        click.echo(json.dumps(found))
    elif found:
        wide_console().print(rows("messages", [_line(message) for message in found]))
    else:
        node.tell(answer, f"queue {queue!r} has no ready message")


def _line(message: dict[str, Any]) -> dict[str, Any]:
    body = message["payload"]
    return {
        "exchange": message["exchange"], "routing key": message["routing_key"],
        "redelivered": message["redelivered"], "properties": json.dumps(message["properties"]),
        "octets": message["payload_bytes"],
        "body": f"base64 {body}" if message["payload_encoding"] == "base64" else body,
    }  # fmt: skip


def _property(key: str, text: str) -> Any:
    return text if PROPERTIES.get(key, TEXT) == TEXT else as_json(key, text)


@click.command()
@click.argument("key")
@click.argument("body", required=False)
@click.option("--exchange", default="", help="Default: the default exchange, where KEY names a queue.")
@click.option(
    "--file", "path", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Read the body from a file. Without BODY and --file: from the standard input.",
)  # fmt: skip
@click.option("--transient", is_flag=True, help="Not persistent.")
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", callback=pairs("--property", _property),
    help="A property, such as content_type=text/plain; may be repeated.",
)  # fmt: skip
@click.option(
    "--header", "headers", multiple=True, metavar="KEY=VALUE", callback=pairs("--header"),
    help="A header; may be repeated.",
)  # fmt: skip
@vhost_option
@broker_options
def publish(
    key: str, body: str | None, exchange: str, path: Path | None, transient: bool,
    properties: dict[str, Any], headers: dict[str, Any], vhost: str, **broker: Any,
) -> None:  # fmt: skip
    """Publish a message with routing key KEY. Exit code 1 if it reaches no queue, or a full one."""
    octets = _body(body, path)
    node = Operator(**broker)
    table = {"headers": headers} if headers else {}
    mode = {"delivery_mode": 1 if transient else 2}
    answer = node.operate(
        "publish", vhost=vhost, exchange=exchange, routing_key=key, payload=b64encode(octets).decode(),
        payload_encoding="base64", properties=mode | table | properties,
    )  # fmt: skip
    if not answer["routed"]:
        why = "a full queue refused it" if answer.get("rejected") else "it reached no queue"
        raise Failed(codes.MESSAGE_UNROUTED.say(address=node.address, why=why))
    node.tell(answer, "the message is published")


def _body(text: str | None, path: Path | None) -> bytes:
    if text is not None and path is not None:
        raise Wrong("give BODY or --file")
    if text is not None:
        octets = text.encode(errors="surrogateescape")
    elif path is not None:
        octets = path.read_bytes()
    else:
        octets = sys.stdin.buffer.read(_LARGEST + 1)
    if len(octets) > _LARGEST:
        raise Wrong(f"the body has more than {_LARGEST} octets: publish it with a client, or over HTTP")
    return octets


@click.command()
@click.argument("queue")
@yes_option
@vhost_option
@broker_options
def purge(queue: str, yes: bool, vhost: str, **broker: Any) -> None:
    """Remove all ready messages of QUEUE."""
    node = Operator(**broker)
    if not yes:
        sure(f"the ready messages of queue {queue!r} will be gone", yes)
    answer = node.operate("purge", vhost=vhost, name=queue)
    node.tell(answer, f"queue {queue!r}: {counted(answer['messages'], 'message')} removed")


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--count", type=click.IntRange(1), help="How many, at most. Default: those that are there now.")
@click.option("--to-vhost", help="The virtual host of TARGET. Default: that of SOURCE.")
@vhost_option
@broker_options
def move(
    source: str, target: str, count: int | None, to_vhost: str | None, vhost: str, **broker: Any
) -> None:
    """Move ready messages from the head of queue SOURCE to the end of queue TARGET.

    Each message is in exactly one of the two at any time, also when a node fails: then repeat the command.
    """
    node = Operator(**broker)
    there = {"to_vhost": to_vhost} if to_vhost is not None else {}
    ends = {"vhost": vhost, "name": source, "to": target, **there}
    done, answer = _move(node, ends, count)
    full = f"; {target!r} is full, {counted(answer['left'], 'message')} left" if answer["full"] else ""
    node.tell(answer | {"moved": done}, f"{counted(done, 'message')} moved to {target!r}{full}")


def _move(node: Operator, ends: dict[str, Any], count: int | None) -> tuple[int, dict[str, Any]]:
    """How many were moved in all, and the last answer."""
    first = min(count or _AT_ONCE, _AT_ONCE)
    answer = node.operate("move", **ends, count=first)
    done = answer["moved"]
    wanted = done + answer["left"] if count is None else count
    with progress_bar("moving", wanted, MofNCompleteColumn()) as advance:
        advance(done)
        while not answer["full"] and answer["moved"] and answer["left"] and done < wanted:
            answer = node.operate("move", **ends, count=min(wanted - done, _AT_ONCE))
            done += answer["moved"]
            advance(answer["moved"])
    return done, answer

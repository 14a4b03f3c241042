"""`understudy trace`: messages of a virtual host as they pass."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from understudy.cli.node import question
from understudy.cli.objects.operator import Operator
from understudy.cli.options import Failed, Wrong, broker_options
from understudy.cli.primary import vhost_option
from understudy.management import refusal_of
from understudy.shared.addresses import HostPort
from understudy.shared.text import shown

_EACH = 0.25
"""Seconds between two questions."""
_AGAIN = "node-not-serving"
"""The code of a refusal that another node does not repeat."""


@click.command()
@click.option("--queue", help="Show only what concerns this queue.")
@click.option(
    "--octets",
    type=click.IntRange(0, 4096),
    default=256,
    show_default=True,
    help="Show so much of each body.",
)
@click.option("--count", type=click.IntRange(1), help="End after so many lines. Default: until interrupted.")
@vhost_option
@broker_options
def trace(queue: str | None, octets: int, count: int | None, vhost: str, **broker: Any) -> None:
    """Show messages of a virtual host as they pass: which queues get them, and why they leave.

    Under load only some are shown, and the rest is counted. After a failover the trace goes on at the new
    primary. It costs nothing when nobody traces.
    """
    printed = 0
    for event in Trace(broker, vhost, octets).events():
        if queue is not None and queue not in event.get("queues", [event.get("queue", queue)]):
            continue
        click.echo(json.dumps(event) if broker["form"] == "json" else _line(event))
        printed += 1
        if count is not None and printed >= count:
            return


class Trace:
    """A session at the primary, whichever node that is."""

    def __init__(self, broker: dict[str, Any], vhost: str, octets: int) -> None:
        self._broker = broker
        self._begin: dict[str, Any] = {"vhost": vhost, "octets": octets}
        self._session: dict[str, Any] = {}
        self._node = Operator(**broker)
        self._heard = time.monotonic()

    @property
    def session_at(self) -> HostPort | None:
        """The node where it has a session."""
        return self._node.address if self._session else None

    def events(self) -> Iterator[dict[str, Any]]:
        """All events, for ever. Raises Failed if no primary answers within the timeout."""
        while True:
            yield from self.passed()
            time.sleep(_EACH)

    def passed(self) -> list[dict[str, Any]]:
        """The events since the last call; none after the first one. After a failover the new primary knows no
        session: it begins one."""
        try:
            answer = self._asked()
        except Failed:
            if time.monotonic() - self._heard > self._broker["timeout"]:
                raise
            self._session = {}
            with suppress(Failed):
                self._node = Operator(**self._broker)
            return []
        self._heard = time.monotonic()
        self._session = {"session": answer["session"]}
        more = [{"event": "dropped", "count": answer["dropped"]}] if answer["dropped"] else []
        return [*answer["events"], *more]

    def _asked(self) -> dict[str, Any]:
        """Raises Failed, and Wrong if asking again would not help."""
        login = (self._broker["user"], self._broker["password"], self._broker["timeout"])
        answer = question(self._node.address, "trace", *login, self._session or self._begin)
        if answer.get("ok"):
            return answer
        said = refusal_of(answer).about(f"{self._node.address}")
        raise Failed(said) if said.code == _AGAIN or self._session else Wrong(said)


def _line(event: dict[str, Any]) -> str:
    if event["event"] == "dropped":
        return f"... {event['count']:,} more, not shown"
    at = datetime.fromtimestamp(event["at"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    if event["event"] == "left":
        return shown(f"{at} {event['count']:,} left {event['queue']!r}: {event['reason']}")
    source = f"{event['exchange']!r} key {event['routing_key']!r}"
    properties = json.dumps(event["properties"]) if event["properties"] else ""
    body = event["payload"] if event["payload_encoding"] == "string" else f"base64 {event['payload']}"
    queues = ", ".join(map(repr, event["queues"]))
    return shown(f"{at} {source} -> {queues}: {event['payload_bytes']:,} octets {properties} {body}".rstrip())

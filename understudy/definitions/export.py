"""A node's definitions as RabbitMQ's definitions JSON: asked for in pieces, sorted, one object a line.

Role: the export of the command line and of GET /api/definitions, and what an import compares with. No I/O:
who owns a `Listing` carries its questions to the node (over AMQP, or on the broker's own loop). What changes
between two exports of the same definitions is nothing: there is no time, host or cluster name in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from understudy import __version__
from understudy.definitions.parse import DEFAULT_DESCRIPTION, FORMAT_VERSION, LISTS, VHOST
from understudy.management import refusal_of
from understudy.shared.codes import CodedError

COMMAND = "definitions"
PRODUCT = "Understudy"
_ATTEMPTS = 3
"""Listings in pieces that a change in between may spoil, before all is asked for at once."""
_ROWS = 500
"""Objects in one piece of text."""
_PIECES = ("vhosts", "users", "permissions", "policies", "exchanges", "queues", "bindings")


class ListingRefused(CodedError):
    """The node's reason."""


class Listing:
    """Ask the node `question()`, hand its answer to `take`, until that says True; then `found` is whole."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {}
        self._spoilt = 0
        self._restart()

    def _restart(self) -> None:
        self.found = {kind: [] for kind in _PIECES}
        self._args: dict[str, Any] = {"start": 0}
        if self._spoilt >= _ATTEMPTS:
            self._args["whole"] = True

    def question(self) -> dict[str, Any]:
        """Arguments of the management command `COMMAND`."""
        return dict(self._args)

    def take(self, answer: dict[str, Any]) -> bool:
        """Raises ListingRefused."""
        if answer.get("changed"):
            self._spoilt += 1
            self._restart()
            return False
        if not answer.get("ok"):
            raise ListingRefused(refusal_of(answer))
        for kind, lines in self.found.items():
            lines += answer.get(kind, [])
        self._args = {"start": answer["next"], "as_of": answer["as_of"]}
        return answer["next"] is None


def document_of(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The whole document: of users those that are stored, and not those of a node's own configuration."""
    users = [{**user, "limits": {}} for user in found["users"] if not user.get("configured")]
    vhosts = found.get("vhosts") or [{"name": VHOST}]
    lists = {kind: found.get(kind, []) for kind in LISTS} | {
        "users": users,
        "vhosts": [_vhost(**line) for line in vhosts],
    }
    return {
        "rabbit_version": FORMAT_VERSION,
        "rabbitmq_version": FORMAT_VERSION,
        "product_name": PRODUCT,
        "product_version": __version__,
        **{kind: sorted(lines, key=_order) for kind, lines in lists.items()},
    }


def _vhost(name: str, description: str = "", tags: Sequence[str] = ()) -> dict[str, Any]:
    """Under both keys, as newer RabbitMQs have it under the second."""
    about = {"description": description or (DEFAULT_DESCRIPTION if name == VHOST else ""), "tags": [*tags]}
    return {"name": name, **about, "metadata": about}


def _order(line: dict[str, Any]) -> tuple[str, ...]:
    names = ("vhost", "name", "user", "source", "destination_type", "destination", "routing_key")
    return (*(str(line.get(name, "")) for name in names), json.dumps(line.get("arguments"), sort_keys=True))


def text_of(document: dict[str, Any]) -> Iterator[bytes]:
    """The document in pieces: what it says of itself first, then each list with one object a line."""
    lead = "{\n"
    for key, value in document.items():
        lead += f"{json.dumps(key)}: "
        if not isinstance(value, list):
            yield f"{lead}{json.dumps(value)}".encode()
        else:
            yield f"{lead}[".encode()
            for at in range(0, len(value), _ROWS):
                rows = ",\n  ".join(_row(line) for line in value[at : at + _ROWS])
                yield f"{',' if at else ''}\n  {rows}".encode()
            yield b"\n]" if value else b"]"
        lead = ",\n"
    yield b"\n}\n"


def _row(line: dict[str, Any]) -> str:
    """Its own keys in RabbitMQ's order; those of its arguments, or of a policy's definition, sorted: a node
    that got them from another has them in another order."""
    tables = {key: _sorted(line[key]) for key in ("arguments", "definition") if key in line}
    return json.dumps(line | tables)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value

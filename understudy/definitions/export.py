"""A node's definitions as RabbitMQ's definitions JSON: asked for in pieces, sorted, one object a line.

Role: the export of the command line and of GET /api/definitions, and the current state for an import. No I/O:
the owner of a `Listing` carries its questions to the node (over AMQP, or on the broker's own loop). Two
exports of the same definitions are equal: the document holds no time, host or cluster name.
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
"""After so many listings spoilt by changes between pieces, everything is asked for at once."""
_ROWS = 500
"""Objects in one piece of text."""
_PIECES = (
    "vhosts", "users", "permissions", "topic_permissions", "policies", "parameters", "exchanges", "queues",
    "bindings",
)  # fmt: skip


class ListingRefused(CodedError):
    """The node refused the listing."""


class Listing:
    """A node's definitions. Ask the node `question()` and pass the answer to `take` until it returns True;
    then `found` is complete."""

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
        """Take the answer to the last question. Returns True if `found` is complete. Raises
        ListingRefused."""
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
    """The whole document. It lists stored users, and not the users of the node's configuration."""
    users = [{"limits": {}, **user} for user in found["users"] if not user.get("configured")]
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


_OF_A_VHOST = ("parameters", "policies", "queues", "exchanges", "bindings")


def document_of_vhost(found: dict[str, list[dict[str, Any]]], vhost: str) -> dict[str, Any] | None:
    """What is in one virtual host, without its name, as RabbitMQ exports it: no users and no permissions.
    None: there is no such virtual host."""
    whole = document_of(found)
    if vhost not in [line["name"] for line in whole["vhosts"]]:
        return None
    head = {key: value for key, value in whole.items() if not isinstance(value, list)}
    return head | {
        kind: [
            {key: value for key, value in line.items() if key != "vhost"}
            for line in whole[kind]
            if line["vhost"] == vhost
        ]
        for kind in _OF_A_VHOST
    }


def _vhost(name: str, description: str = "", tags: Sequence[str] = ()) -> dict[str, Any]:
    """Description and tags at both places: newer RabbitMQs have them under `metadata`."""
    about = {"description": description or (DEFAULT_DESCRIPTION if name == VHOST else ""), "tags": [*tags]}
    return {"name": name, **about, "metadata": about}


def _order(line: dict[str, Any]) -> tuple[str, ...]:
    names = (
        "vhost",
        "component",
        "name",
        "user",
        "exchange",
        "source",
        "destination_type",
        "destination",
        "routing_key",
    )
    return (*(str(line.get(name, "")) for name in names), json.dumps(line.get("arguments"), sort_keys=True))


def text_of(document: dict[str, Any]) -> Iterator[bytes]:
    """The document in pieces: its head, then each list with one object a line."""
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
    """One object. Its own keys keep RabbitMQ's order. Keys of its arguments, of a policy's definition or of a
    parameter's value are sorted: a node that received them from another node has them in another order."""
    tables = {
        key: _sorted(line[key]) for key in ("arguments", "definition", "value", "limits") if key in line
    }
    return json.dumps(line | tables)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value

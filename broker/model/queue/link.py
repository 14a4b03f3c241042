"""Link queues: what a federated broker downstream has asked for, and has not yet taken.

They are ordinary queues of a reserved name, so that they are stored, replicated, paged and limited as any
other. The high-availability adapter declares and feeds them (`broker.model.vhost.links`). Clients and
policies leave them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.contents import QueueContents

Path = tuple[str, ...]
"""Federation nodes, the first one first."""
PREFIX = "amq.link."
NODE = "x-link-node"
"""Argument: the federation node that takes the messages."""
ECHO = "x-link-echo"
"""Argument: the messages are to come back from the node to which they are given."""
OWNER = "x-link-owner"
"""Argument: the id of its cluster, by which it is told from another node of the same name."""
BY = "x-link-path"
"""Argument of a binding of a link queue: the nodes through which the interest came, the nearest one last."""
BOUND_FROM = "x-bound-from"
"""The same in RabbitMQ's form: a list of tables, the nearest broker first."""
RECEIVED_FROM = "x-received-from"
"""Header: the brokers that a message came through, in RabbitMQ's form, the nearest one first."""


def link_name(exchange: str, node: str) -> str:
    """No node has an `@` in its name."""
    return f"{PREFIX}{exchange}@{node}"


def push_name(exchange: str, upstream: str) -> str:
    """Of the link queue for an upstream to which messages are given. No node has a `>` in its name."""
    return f"{PREFIX}{exchange}@>{upstream}"


@lru_cache(4096)
def link_session(uuid: bytes, epoch: int) -> str:
    """The session, in ledgers, of messages that come from that link queue. Their ids there are its tags. The
    sessions of clients have a `/`."""
    return f"link:{uuid.hex()}:{epoch}"


def is_link_session(producer: str) -> bool:
    return producer.startswith("link:") and "/" not in producer


def is_link(name: str) -> bool:
    return name.startswith(PREFIX)


def path_of(arguments: Mapping[str, object]) -> Path:
    """The path of an interest, from the arguments of its binding; empty if there is none."""
    by = arguments.get(BY)
    return tuple(map(str, by)) if isinstance(by, list) else ()


def node_of(queue: QueueContents) -> str:
    """The federation node that takes the messages; "" for any other queue."""
    found = queue.arguments.get(NODE, "") if is_link(queue.name) else ""
    return found if isinstance(found, str) else ""

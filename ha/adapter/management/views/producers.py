"""Producers that number their messages."""

from __future__ import annotations

from broker.model.history.marks import last_of
from ha.adapter.management.views.view import Row, RowTable, View


def producers(view: View) -> list[Row]:
    """`last_number`: the highest that any queue had. `queues`: those that had one of its newest messages."""
    vhosts = view.node.vhosts
    found: list[Row] = []
    for key, known in vhosts.directory.producers.items():
        vhost, name = key
        queues = vhosts.producers.queues_of(*key)
        found.append(
            {
                "vhost": vhost, "name": name, "user": known.user, "epoch": known.epoch,
                "connected": key in vhosts.producers.sessions,
                "last_number": max((last_of(queue.marks[name]) for queue in queues), default=0),
                "queues": len(queues),
            }
        )  # fmt: skip
    return found


PRODUCERS = RowTable(producers)

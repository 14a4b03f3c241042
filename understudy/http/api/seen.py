"""What a user may see, by RabbitMQ's rules: a monitor all of it; others their virtual hosts, and their own
connections there."""

from __future__ import annotations

from typing import Any

from ha.adapter.management.views.tables import AnyTable
from ha.adapter.management.views.view import View, ViewedNode
from understudy import codes
from understudy.http.answers import Refused
from understudy.http.api.query import ages_of
from understudy.http.room import Call, Rights


def viewed(call: Call) -> ViewedNode:
    """The node, as views read it."""
    node: Any = call.room.node
    found: ViewedNode = node
    return found


def view_of(call: Call) -> View:
    node = viewed(call)
    ages = ages_of(call.request.query)
    now = call.room.clock()
    return View(
        node, now, node.vhosts.wall_ms, ages["lengths"], ages["msg_rates"], ages["data_rates"]
    )  # fmt: skip


class Seen:
    """What the user of a request may see. `vhosts`: names."""

    def __init__(self, call: Call) -> None:
        self._visitor = call.visitor
        self.monitors = call.visitor.has(Rights.MONITORING)
        node = viewed(call)
        self.vhosts = {
            vhost.name
            for vhost in node.vhosts
            if self.monitors
            or not call.visitor.identity.stored
            or (vhost.name, call.visitor.name) in node.vhosts.directory.permissions
        }
        self._there = {vhost.name for vhost in node.vhosts}

    def has(self, table: AnyTable, item: Any) -> bool:
        vhost = table.vhost(item)
        if vhost is not None and vhost not in self.vhosts:
            return False
        owner = table.owner
        return owner is None or self.monitors or owner(item) == self._visitor.name

    def check(self, vhost: str) -> None:
        """Raises Refused: there is no such virtual host, or it may not be seen."""
        if vhost not in self._there:
            raise not_found(f"virtual host {vhost!a:.300}")
        if vhost not in self.vhosts:
            raise Refused(403, codes.HTTP_NO_VHOST.say(user=self._visitor.name, vhost=vhost))


def not_found(what: str) -> Refused:
    return Refused(404, codes.HTTP_NOT_FOUND.say(what=what))

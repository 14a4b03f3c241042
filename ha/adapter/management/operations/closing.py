"""Closes a client's connection, with a reason that the client is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import AccessRefused, NotFound
from broker.model.values import Need
from broker.security.identity import ADMINISTRATOR
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.operations.asker import tags_of
from ha.adapter.management.operations.outcome import FEW, Outcome
from understudy.shared.text import shown

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.engine import Broker
    from broker.model.steps import Steps
    from ha.adapter.management.operations.arguments import Arguments

CONNECTION_FORCED = 320
DEFAULT_REASON = "closed by an operator"
_LONGEST_REASON = 200


def close_connection(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`name` of the connection, and `reason`; or, in place of the name, `user` or `vhost`: all connections of
    it. Answers how many were `closed`. Others than administrators may close their own."""
    name, whose, vhost = args.text("name", ""), args.name("user", ""), args.name("vhost", "")
    reason = args.text("reason", DEFAULT_REASON)[:_LONGEST_REASON] or DEFAULT_REASON
    args.end()
    may_all = ADMINISTRATOR in tags_of(broker, user)
    found = [each for each in list(broker.connections) if _is_meant(each, name, whose, vhost)]
    yield FEW + len(broker.connections)
    if name and not found:
        raise NotFound(f"no connection '{name}'")
    others = [each for each in found if not may_all and each.user != user]
    if others or (not may_all and not name):
        raise AccessRefused(f"closing connections of others refused for user '{user}'")
    for connection in found:
        connection.now = broker.now
        connection.log(f"closed by {f'user {user!r}' if user is not None else 'root'}: {shown(reason)}")
        connection.close(CONNECTION_FORCED, f"CONNECTION_FORCED - {reason}")
    return Outcome(Need.NONE, {"closed": len(found)})


def _is_meant(connection: Connection, name: str, user: str, vhost: str) -> bool:
    if connection.is_management or not connection.running:
        return False
    if name:
        return connection_name(connection) == name
    return bool(user and connection.user == user) or bool(vhost and connection.vhost.name == vhost)

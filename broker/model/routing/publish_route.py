"""Where publishes of one (exchange, routing key) go, with all that can be worked out beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.arguments import OverflowRule
from broker.model.values import Need, Scope

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


def need_of(scope: Scope) -> Need:
    """What a reply to a change that `scope` sees waits for."""
    if scope & Scope.STORE:
        return Need.DURABLE
    return Need.APPLIED if scope & Scope.LINK else Need.NONE


class PublishRoute:
    """A result of `route`. Valid while `generation` equals the virtual host's: whoever keeps it (a memo on
    the raw method frame) compares the two.

    `queues`: empty when unroutable (return the message if mandatory; still call publish, for the ledger).
    `needs_headers`: a headers exchange is reachable, ask `route_with_headers` per message instead; `queues`
    is not to be used. `groups`: queues of one scope, as their messages go into one record: scope for
    persistent messages, scope for transient ones (which no store sees), queues, UUIDs. `need`: indexed by
    `persistent`. `refusing`: a queue among them refuses when it is full, so that each takes its own part of a
    run. `one_off`: it holds for the messages that it was looked up for, and for no others.
    """

    __slots__ = (
        "exchange",
        "generation",
        "groups",
        "need",
        "needs_headers",
        "one_off",
        "queues",
        "refusing",
        "routing_key",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        queues: tuple[Queue, ...],
        needs_headers: bool,
        generation: int,
        *,
        one_off: bool = False,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues = queues
        self.needs_headers = needs_headers
        self.generation = generation
        self.one_off = one_off
        self.refusing = any(
            queue.rules.limited and queue.rules.overflow is not OverflowRule.DROP_HEAD for queue in queues
        )
        by_scope: dict[Scope, list[Queue]] = {}
        for queue in queues:
            by_scope.setdefault(queue.content_scope, []).append(queue)
        self.groups: tuple[tuple[Scope, Scope, list[Queue], list[bytes]], ...] = tuple(
            (scope, scope & ~Scope.STORE, members, [queue.uuid for queue in members])
            for scope, members in by_scope.items()
        )
        persistent = max((need_of(scope) for scope in by_scope), default=Need.NONE)
        transient = max((need_of(scope & ~Scope.STORE) for scope in by_scope), default=Need.NONE)
        self.need = (transient, persistent)

    def part(self, begin: int, end: int) -> PublishRoute:
        """The same for the queues from number `begin` up to `end` that are still there."""
        alive = tuple(queue for queue in self.queues[begin:end] if not queue.deleted)
        return PublishRoute(self.exchange, self.routing_key, alive, False, self.generation, one_off=True)

"""The route of all publishes with one (exchange, routing key), with everything that can be computed
beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.arguments import OverflowRule
from broker.model.queue.delays.delay_queue import is_delay
from broker.model.queue.link import is_link
from broker.model.queue.until_confirmed import need_of_confirm
from broker.model.statistics import Counts
from broker.model.values import Need, Scope, need_of

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


_NOWHERE = Counts()
"""Of routes that nobody counts."""


class PublishRoute:
    """The result of a route look-up. Valid while `generation` equals that of the virtual host. A caller that
    caches it (such as the memo for raw method frames) must compare the two.

    - `queues`: empty if unroutable. Then return the message if mandatory, and still call publish, for the
      ledger.
    - `needs_headers`: the exchange leads to a headers exchange. Ignore `queues`, and call
      `find_by_headers` for each message.
    - `groups`: the queues by scope, because their messages go into one record: scope for persistent
      messages, scope for transient messages (see `QueueContents.transient_scope`), queues, UUIDs.
    - `need`: indexed by `persistent`.
    - `refusing`: one of the queues rejects publishes when it is full, so each queue takes its own part of
      a run.
    - `keyed`: those of its queues that keep last values only.
    - `windows`: those of its queues that do not take an id again (`x-dedup-window`).
    - `linked`: it goes to link queues.
    - `delay`: milliseconds that its delay queues keep the messages; 0: it leads to none.
    - `counted`: the counters of its exchange.
    - `one_off`: only valid for the messages that it was looked up for.
    """

    __slots__ = (
        "counted",
        "delay",
        "exchange",
        "generation",
        "groups",
        "keyed",
        "linked",
        "need",
        "needs_headers",
        "one_off",
        "queues",
        "refusing",
        "routing_key",
        "windows",
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
        delay: int = 0,
        counted: Counts | None = None,
    ) -> None:
        self.exchange = exchange
        self.counted = _NOWHERE if counted is None else counted
        self.routing_key = routing_key
        self.queues = queues
        self.needs_headers = needs_headers
        self.generation = generation
        self.one_off = one_off
        self.refusing = any(
            queue.rules.limited and queue.rules.overflow is not OverflowRule.DROP_HEAD for queue in queues
        )
        self.keyed = [queue for queue in queues if queue.rules.last_value_key is not None]
        self.windows = [queue for queue in queues if queue.rules.dedup is not None]
        self.delay = delay if delay and any(is_delay(queue.name) for queue in queues) else 0
        self.linked = any(is_link(queue.name) for queue in queues)
        by_scope: dict[tuple[Scope, Scope], list[Queue]] = {}
        for queue in queues:
            by_scope.setdefault((queue.content_scope, queue.transient_scope), []).append(queue)
        self.groups: tuple[tuple[Scope, Scope, list[Queue], list[bytes]], ...] = tuple(
            (scope, transient_scope, members, [queue.uuid for queue in members])
            for (scope, transient_scope), members in by_scope.items()
        )
        persistent = max((need_of_confirm(queue) for queue in queues), default=Need.NONE)
        transient = max((need_of(scope) for _, scope in by_scope), default=Need.NONE)
        self.need = (transient, persistent)

    def part(self, begin: int, end: int) -> PublishRoute:
        """The same route for the queues numbered `begin` up to `end`, without deleted ones."""
        alive = tuple(queue for queue in self.queues[begin:end] if not queue.deleted)
        return PublishRoute(
            self.exchange, self.routing_key, alive, False, self.generation, one_off=True, delay=self.delay
        )

    def divided(self) -> tuple[PublishRoute, PublishRoute]:
        """The parts of delay queues, and of others."""
        held = tuple([queue for queue in self.queues if is_delay(queue.name)])
        others = tuple([queue for queue in self.queues if not is_delay(queue.name)])
        return self._of(held), self._of(others)

    def _of(self, queues: tuple[Queue, ...]) -> PublishRoute:
        return PublishRoute(self.exchange, self.routing_key, queues, False, self.generation, one_off=True)

"""LinkInterest: what the other end of a link wants, as the bindings of the link queue here.

Owner: LinkQueues, or PushQueue. Each change is history like any other. A link queue may have 100,000
bindings: what has to look at all of them is done once, and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.errors import AccessRefused, PreconditionFailed
from broker.model.history.records import Bind
from broker.model.routing.node_routes import NODES
from broker.model.vhost.federation_entries import MOST_HOPS
from broker.model.vhost.links import ask_for, behind, declare_nodes, forgo
from ha.adapter.federation.interest import changes, interest_of, mark_of
from ha.core.federation.heeding import InterestRefused
from ha.core.federation.wire import InterestFlag, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.model.queue.link import Path
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Binding, Exchange
    from broker.model.vhost.links import Interest, Wish
    from broker.model.vhost.vhost import VirtualHost

MOST_INTEREST = 100_000
"""Bindings of one link."""


def federated(vhost: VirtualHost | None, name: str) -> Exchange | None:
    """The exchange of that name, if it may be federated. That of the ways to other nodes is made."""
    if vhost is None or not name:
        return None
    if name == NODES:
        return declare_nodes(vhost)
    found = vhost.exchanges.get(name)
    return None if found is None or found.internal else found


class Held(NamedTuple):
    """A binding of the link queue. `mark`: see `mark_of`."""

    binding: Binding
    mark: int


Asked = tuple["Wish", "Path"]
"""A wish, and the nodes that it came through: the same one may come by several paths."""


class LinkInterest:
    """Nobody else changes the bindings of the link queue, but for the end of the exchange or of the queue.

    `may`: raises AccessRefused if the other end may not ask for this routing key."""

    def __init__(self, vhost: VirtualHost, exchange: Exchange, queue: Queue) -> None:
        self._vhost = vhost
        self.exchange = exchange
        self.queue = queue
        self.may: Callable[[str], None] = lambda key: None
        self.held: dict[Asked, Held] = {}
        self._marks = 0
        """The sum of all marks."""
        self._begun: dict[Asked, None] | None = None
        """What a whole set names that is still coming."""
        self._unread = iter(vhost.bound_to(queue))
        """Bindings that were there before, and are not in `held` yet."""

    def look(self, most: int) -> int:
        """Take in what was bound before, up to `most`. Returns how many; fewer than `most`: that was all."""
        looked = 0
        while looked < most and (binding := next(self._unread, None)) is not None:
            interest = behind(binding)
            self._put(interest.wish, binding, interest.path)
            looked += 1
        return looked

    @property
    def digest(self) -> str:
        return digest_of(self._marks)

    @property
    def ended(self) -> bool:
        """It is that of an exchange or a queue that is gone."""
        return self.queue.deleted or self._vhost.exchanges.get(self.exchange.name) is not self.exchange

    def begin(self) -> None:
        """A link is open."""
        self._begun = None

    def apply(self, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        """See `ha.core.federation.heeding.Heeding`. Nothing is taken away before a whole set is there: what
        it does not name is wanted until then."""
        if flags & InterestFlag.FIRST:
            self._begun = {}
        for record in changes(payload):
            if self.ended:
                return
            item = interest_of(record)
            if len(item.path) > MOST_HOPS:
                why = f"an interest that came through {len(item.path)} nodes: {MOST_HOPS} are the most"
                raise InterestRefused(why)
            if isinstance(record, Bind):
                self._ask(item)
            else:
                self._forgo(item)
            yield
        if flags & InterestFlag.LAST and self._begun is not None:
            begun, self._begun = self._begun, None
            for asked in [asked for asked in self.held if asked not in begun]:
                forgo(self._vhost, [self._pop(asked)])
                yield

    def _ask(self, item: Interest) -> None:
        asked = item.wish, item.path
        if asked not in self.held:
            if len(self.held) >= MOST_INTEREST:
                raise InterestRefused(f"more than {MOST_INTEREST:,} bindings of one link")
            try:
                self.may(item.routing_key)
                self._put(item.wish, ask_for(self._vhost, self.exchange, self.queue, item), item.path)
            except (AccessRefused, PreconditionFailed) as error:
                raise InterestRefused(error.text) from error
        if self._begun is not None:
            self._begun[asked] = None

    def _forgo(self, item: Interest) -> None:
        asked = item.wish, item.path
        if asked in self.held:
            forgo(self._vhost, [self._pop(asked)])

    def _put(self, wish: Wish, binding: Binding, path: Path) -> None:
        mark = mark_of(wish, path)
        self.held[wish, path] = Held(binding, mark)
        self._marks += mark

    def _pop(self, asked: Asked) -> Binding:
        held = self.held.pop(asked)
        self._marks -= held.mark
        return held.binding

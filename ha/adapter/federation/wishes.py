"""Wishes: what an exchange here wants of upstreams: what its bindings ask for. Owner: ExchangeModel.

It follows the bindings one by one, so that a change costs the same for any number of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from broker.model.queue.link import node_of
from broker.model.queue.queue import Queue
from broker.model.routing.node_routes import NODES
from broker.model.vhost.links import Interest, Wish, behind, goes_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.model.queue.link import Path
    from broker.model.routing.exchange import Binding, BindingKey
    from broker.model.vhost.vhost import VirtualHost

MOST_CHANGES = 10_000
"""What may have changed, beyond twice as much as is wanted."""


class Wishes:
    """`me`: this node; `most`: the longest path of an interest that is passed on. Of the exchange of the ways
    to other nodes, this node wants what is for it, too."""

    def __init__(self, vhost: VirtualHost, exchange: str, me: str, most: int) -> None:
        self._vhost = vhost
        self._exchange = exchange
        self._me = me
        self._most = most
        self._by_wish: dict[Wish, dict[BindingKey, tuple[Interest, str]]] = {}
        """Of each binding: what it asks for, and who takes from its link queue."""
        self._changed: OrderedDict[Wish, None] = OrderedDict()
        """What may be wanted otherwise than it was, the latest change last."""
        self.overrun = False
        """So much has changed that nobody knows any more what: look at all."""
        if exchange == NODES:
            own = Interest(me, {}, ())
            self._by_wish[own.wish] = {(b"", me, b""): (own, "")}
        found = vhost.exchanges.get(exchange)
        self._unread = iter(list(found.bindings.values()) if found is not None else ())
        """What was bound before, and is not known yet: there may be too much of it for one tick."""
        vhost.watchers.setdefault(exchange, []).append(self._follow)

    def close(self) -> None:
        watchers = self._vhost.watchers.get(self._exchange, [])
        if self._follow in watchers:
            watchers.remove(self._follow)
        if not watchers:
            self._vhost.watchers.pop(self._exchange, None)

    def all(self) -> Iterator[Wish]:
        """What may be wanted now; what changes from now on is told by `next_change`."""
        self._changed.clear()
        self.overrun = False
        return self._each(list(self._by_wish))

    def _each(self, known: list[Wish]) -> Iterator[Wish]:
        yield from known
        for binding in self._unread:
            if binding.source.bindings.get(binding.key) is not binding or not goes_on(binding):
                continue
            interest = behind(binding)
            wish = interest.wish
            if wish in self._by_wish:
                self._note(wish)
                self._add(wish, interest, binding)
            else:
                self._add(wish, interest, binding)
                yield wish

    @property
    def changed(self) -> bool:
        return self.overrun or bool(self._changed)

    def next_change(self) -> Wish:
        """What may be wanted otherwise, the earliest change first."""
        return self._changed.popitem(last=False)[0]

    def _add(self, wish: Wish, interest: Interest, binding: Binding) -> None:
        node = node_of(binding.target) if isinstance(binding.target, Queue) else ""
        self._by_wish.setdefault(wish, {})[binding.key] = interest, node

    def _follow(self, binding: Binding, there: bool) -> None:
        if not goes_on(binding):
            return
        interest = behind(binding)
        wish = interest.wish
        self._note(wish)
        if there:
            self._add(wish, interest, binding)
        elif wish in self._by_wish:
            self._by_wish[wish].pop(binding.key, None)
            if not self._by_wish[wish]:
                del self._by_wish[wish]

    def _note(self, wish: Wish) -> None:
        """Nobody may ask for long, while the line is down."""
        if self.overrun:
            return
        self._changed[wish] = None
        self._changed.move_to_end(wish)
        if len(self._changed) > MOST_CHANGES + 2 * len(self._by_wish):
            self._changed.clear()
            self.overrun = True

    def of(self, wish: Wish, upstream: str) -> Interest | None:
        """By the shortest path; not what that node wants itself, nor what came through it or this node."""
        return next(iter(self.paths_of(wish, upstream)), None)

    def paths_of(self, wish: Wish, upstream: str) -> list[Interest]:
        """The same by the shortest path, and for each node on it by the shortest path without that node. The
        node upstream passes no wish on to those on its path: for these it needs another one."""
        found = [
            interest for interest, node in self._by_wish.get(wish, {}).values()
            if upstream != node and upstream not in interest.path and self._me not in interest.path
            and len(interest.path) < self._most
        ]  # fmt: skip
        if not found:
            return []
        first = min(found, key=_nearness)
        told = {first.path: first}
        if len(found) > 1:
            for node in first.path:
                around = [interest for interest in found if node not in interest.path]
                if around:
                    other = min(around, key=_nearness)
                    told[other.path] = other
        return [interest._replace(path=(*interest.path, self._me)) for interest in told.values()]


def _nearness(interest: Interest) -> tuple[int, Path]:
    return len(interest.path), interest.path

"""Wishes: what an exchange here wants of upstreams: what its bindings ask for. Owner: ExchangeModel.

It follows the bindings one by one, so that a change costs the same for any number of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.queue.link import node_of
from broker.model.queue.queue import Queue
from broker.model.routing.node_routes import NODES
from broker.model.vhost.links import Interest, Wish, behind

if TYPE_CHECKING:
    from broker.model.routing.exchange import Binding, BindingKey
    from broker.model.vhost.vhost import VirtualHost


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
        self._changed: dict[Wish, None] = {}
        if exchange == NODES:
            own = Interest(me, {}, ())
            self._by_wish[own.wish] = {(b"", me, b""): (own, "")}
        found = vhost.exchanges.get(exchange)
        for binding in list(found.bindings.values()) if found is not None else ():
            self._follow(binding, True)
        vhost.watchers.setdefault(exchange, []).append(self._follow)

    def close(self) -> None:
        watchers = self._vhost.watchers.get(self._exchange, [])
        if self._follow in watchers:
            watchers.remove(self._follow)
        if not watchers:
            self._vhost.watchers.pop(self._exchange, None)

    def all(self, upstream: str) -> dict[Wish, Interest]:
        """What is wanted of that node; `changes` begins after it."""
        self._changed.clear()
        found = ((wish, self._of(wish, upstream)) for wish in self._by_wish)
        return {wish: interest for wish, interest in found if interest is not None}

    def changes(self, upstream: str) -> dict[Wish, Interest | None]:
        """What may be wanted otherwise since the last call. None: it is not wanted any more."""
        changed, self._changed = self._changed, {}
        return {wish: self._of(wish, upstream) for wish in changed}

    def _follow(self, binding: Binding, there: bool) -> None:
        interest = behind(binding)
        wish = interest.wish
        self._changed[wish] = None
        if there:
            node = node_of(binding.target) if isinstance(binding.target, Queue) else ""
            self._by_wish.setdefault(wish, {})[binding.key] = interest, node
        elif wish in self._by_wish:
            self._by_wish[wish].pop(binding.key, None)
            if not self._by_wish[wish]:
                del self._by_wish[wish]

    def _of(self, wish: Wish, upstream: str) -> Interest | None:
        """By the shortest path; not what that node wants itself, nor what came through it or this node."""
        found = [
            interest for interest, node in self._by_wish.get(wish, {}).values()
            if upstream != node and upstream not in interest.path and self._me not in interest.path
            and len(interest.path) < self._most
        ]  # fmt: skip
        if not found:
            return None
        nearest = min(found, key=lambda interest: len(interest.path))
        return nearest._replace(path=(*nearest.path, self._me))

"""Asking: the other end of a link says what it wants, and the link queue here is bound accordingly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import PreconditionFailed
from broker.model.history.records import Bind
from broker.model.routing.node_routes import NODES
from broker.model.vhost.federation_entries import MOST_HOPS
from broker.model.vhost.links import ask_for, asked_for, behind, declare_nodes, forgo
from ha.adapter.federation.interest import changes, interest_of, mark_of
from ha.core.federation.wire import InterestFlag, digest_of

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange
    from broker.model.vhost.links import Interest
    from broker.model.vhost.vhost import VirtualHost
    from ha.adapter.federation.feeding import Feeding

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


def digest_at(vhost: VirtualHost, queue: Queue) -> str:
    """Of what the link queue is bound for."""
    own = asked_for(vhost, queue)
    return digest_of(sum(mark_of(wish, behind(each).path) for wish, each in own.items()))


def ask(feeding: Feeding, flags: InterestFlag, payload: bytes) -> str:
    """Change what the link queue is bound for. Returns why that is refused; LinkError if it cannot be
    read."""
    if why := feeding.ended():
        return why
    if flags & InterestFlag.FIRST:
        feeding.begun = {}
    for record in changes(payload):
        item = interest_of(record)
        if len(item.path) > MOST_HOPS:
            return f"an interest that came through {len(item.path)} nodes: {MOST_HOPS} are the most"
        if why := _change(feeding, item, wanted=isinstance(record, Bind)):
            return why
    if flags & InterestFlag.LAST and feeding.begun is not None:
        begun, feeding.begun = feeding.begun, None
        stale = [wish for wish in feeding.held if wish not in begun]
        forgo(feeding.vhost, [feeding.held.pop(wish) for wish in stale])
    return ""


def _change(feeding: Feeding, item: Interest, *, wanted: bool) -> str:
    """Returns why it is refused."""
    wish = item.wish
    known = feeding.held.get(wish)
    same = known is not None and behind(known).path == item.path
    if not wanted:
        if same:
            forgo(feeding.vhost, [feeding.held.pop(wish)])
        return ""
    if not same:
        if known is None and len(feeding.held) >= MOST_INTEREST:
            return f"more than {MOST_INTEREST:,} bindings of one link"
        try:
            feeding.held[wish] = ask_for(feeding.vhost, feeding.exchange, feeding.queue, item)
        except PreconditionFailed as error:
            return error.text
        if known is not None:
            forgo(feeding.vhost, [known])
    if feeding.begun is not None:
        feeding.begun[wish] = None
    return ""

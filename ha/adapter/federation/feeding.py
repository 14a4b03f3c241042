"""Feeding: the consumer of a link queue. Owner: LinkQueues, or PushQueue.

Messages are paged, limited, dated and handed out as to any consumer. They leave this node only once they
could be confirmed: otherwise another node might get one that no failover of this one finds again. What was
handed out and not yet taken goes back to its place when the link ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.errors import AmqpError
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.consumer import Consumer
from broker.model.queue.message_run import group_runs
from broker.model.queue.requeueing import DeliveredBatch
from broker.model.queue.until_confirmed import UntilConfirmed
from broker.model.routing.node_routes import NODES
from broker.model.values import Reason
from broker.model.vhost.links import with_global_reply
from ha.adapter.federation.withholding import Publisher, Withholding
from ha.core.errors import LinkError
from ha.core.federation.offers import NOTHING, Handed

if TYPE_CHECKING:
    from broker.model.history.completion import Completion
    from broker.model.history.records import Envelope
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange
    from broker.model.vhost.vhost import VirtualHost

WINDOW = 16 << 20
"""Octets handed out and not yet taken, above which nothing more is."""
MEAN_FIRST = 512
"""Octets of a message, as long as nothing is known."""
SHARE = 4 << 20
"""About how many octets one tick hands out."""
TAG = "federation"


class Feeding:
    """The consumer of one link queue. Implements `DeliverySink`. `client`: the broker that takes, for people;
    `me`: this node; `node`: what came through that node is not handed out to it."""

    def __init__(
        self, vhost: VirtualHost, queue: Queue, exchange: Exchange, client: str, me: Publisher,
        completion: Completion, node: str = "",
    ) -> None:  # fmt: skip
        self.vhost = vhost
        self.queue = queue
        self.exchange = exchange
        self.client = client
        self.node = node
        self.consumer = Consumer(TAG, self, exclusive=True)
        self.fresh: list[Entry] = []
        """Handed out in this tick."""
        self.out: deque[Entry] = deque()
        """Handed out and not yet taken, by ascending id."""
        self.octets = 0
        self.sent = self.transferred = 0
        self.gone = ""
        self._mean = MEAN_FIRST
        self._taken: MessageId = (0, 0)
        self._withholding = Withholding(me)
        self._unconfirmed = UntilConfirmed(queue, completion)

    def credit(self, consumer: Consumer) -> int:
        room = min(SHARE, WINDOW - self.octets)
        return max(1, room // self._mean) if room > 0 else 0

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        size = sum(len(raw) for _, _, raw in entries)
        self.octets += size
        self._mean = max(1, (self._mean * 7 + size // len(entries)) // 8)
        self.fresh += entries
        self.out += entries

    def cancelled(self, consumer: Consumer) -> None:
        self.gone = "its link queue was deleted"

    def taken(self, upto: MessageId) -> None:
        """LinkError if that was never handed out."""
        gone: list[Entry] = []
        self._taken = max(self._taken, upto)
        ids = self.queue.ids
        if upto > (ids.epoch, ids.next - 1):
            raise LinkError(f"{upto} is taken, and the newest id is {(ids.epoch, ids.next - 1)}")
        while self.out and id_of(self.out[0]) <= upto:
            gone.append(self.out.popleft())
        self.octets -= sum(len(raw) for _, _, raw in gone)
        if gone:
            self.transferred += len(gone)
            self.queue.drop(gone, Reason.TRANSFERRED)
        self._withholding.taken(upto)
        self._go_on()

    def withhold(self, nodes: frozenset[str]) -> None:
        """Messages of these nodes, and of no others, are only offered from now on."""
        self._withholding.begin(nodes)

    @property
    def hungry(self) -> bool:
        """There is more to hand out, and room for it: another tick is wanted at once."""
        return bool(self.queue.ready) and self.octets < WINDOW and not self.gone

    def _go_on(self) -> None:
        if self.hungry:
            self.queue.schedule()

    def _has(self, entry: Entry) -> bool:
        envelope = entry[1]
        return (envelope.epoch, entry[0]) <= self._taken or (
            bool(envelope.path) and self.node in envelope.path
        )  # fmt: skip

    def _let_go(self, back: list[Entry]) -> None:
        looped = [entry for entry in back if (entry[1].epoch, entry[0]) > self._taken]
        known = [entry for entry in back if (entry[1].epoch, entry[0]) <= self._taken]
        self.transferred += len(known)
        for entries, reason in ((known, Reason.TRANSFERRED), (looped, Reason.LOOPED)):
            if entries:
                self.queue.drop(entries, reason)

    def begin(self) -> None:
        """Messages are handed out from now on."""
        try:
            self.vhost.consume(self.queue, self.consumer)
        except AmqpError as error:
            self.gone = error.text

    def end(self) -> None:
        """What was not taken waits again, at its place."""
        vhost, queue = self.vhost, self.queue
        if not vhost.serving or queue.deleted:
            return
        if self.out:
            batch = DeliveredBatch(queue, list(self.out))
            vhost.removals.requeueing.give_back([batch], (queue,), failed=False)
        vhost.cancel(queue, self.consumer)

    def ended(self) -> str:
        """Why there is nothing to hand out any more, as a sentence; "" while there is."""
        if self.vhost.exchanges.get(self.exchange.name) is not self.exchange:
            return f"its exchange '{self.exchange.name}' was deleted"
        return self.gone

    def _outgoing(self, envelope: Envelope, raw: bytes) -> bytes:
        return raw if envelope.path else with_global_reply(self.vhost, raw)

    def read(self) -> Handed:
        """What was handed out, and may go now. Called after the flush of each tick."""
        fresh, ahead, behind = self._withholding.divide(self._confirmed())
        if not fresh and not behind:
            return NOTHING
        runs = group_runs(self.queue.uuid, self._sent(fresh)) if fresh else []
        return Handed(ahead, [encode_record(run) for run in runs], behind)

    def entries(self) -> list[Entry]:
        """The same, as it is."""
        return self._sent(self._confirmed())

    def _confirmed(self) -> list[Entry]:
        if fresh := self._handed_out():
            self._unconfirmed.add(fresh)
        found = self._unconfirmed.take() if self._unconfirmed.count else []
        if found and id_of(found[0]) <= self._taken:  # it was let go of since
            return [entry for entry in found if id_of(entry) > self._taken]
        return found

    def _handed_out(self) -> list[Entry]:
        """What the other broker has already, because the word of it was lost, or because it came through it,
        is let go of."""
        fresh, self.fresh = self.fresh, []
        back = [entry for entry in fresh if self._has(entry)]
        if back:
            gone = set(map(id_of, back))
            self.out = deque(entry for entry in self.out if id_of(entry) not in gone)
            self.octets -= sum(len(raw) for _, _, raw in back)
            self._let_go(back)
            fresh = [entry for entry in fresh if id_of(entry) not in gone]
        self._go_on()
        return fresh

    def _sent(self, fresh: list[Entry]) -> list[Entry]:
        if NODES in self.vhost.exchanges:
            fresh = [(number, kind, self._outgoing(kind, raw)) for number, kind, raw in fresh]
        self.sent += len(fresh)
        return fresh

"""Where each tick's history goes: store, links, ledger, in this order. Owner: Node, which registers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker.model.history.batch import Batch
from broker.model.history.record_codec import targets_at
from broker.model.history.records import EnqueueRun
from broker.model.values import ORIGIN, Scope
from ha.adapter.ledger_port import PRIMARY, LedgerPort
from ha.adapter.recovery import Bases
from ha.core.primary.content import Content
from ha.core.primary.contents import Place
from ha.core.wire.known_targets import WIDEST, WideRun

if TYPE_CHECKING:
    from broker.model.history.history import History
    from broker.store.store import Store
    from ha.core.ha_broker import HaBroker


class StoreSink:
    """Hands each tick's history to the store, and tells it what there is when it begins a new segment."""

    def __init__(self, store: Store, bases: Bases) -> None:
        self._store = store
        self._bases = bases

    def batch(self, batch: Batch) -> None:
        self._store.append(batch.position, batch.payload(Scope.STORE), batch.records)
        if self._store.roll_due:
            self._store.roll(self._bases())


class Linked(Protocol):
    """The node, as far as its links go. `now`: of this tick."""

    core: HaBroker
    now: float


class LinkSink:
    """Hands each tick's history to the links, if there are any. Each record is encoded once, also for the
    store."""

    def __init__(self, node: Linked) -> None:
        self._node = node

    def batch(self, batch: Batch) -> None:
        primary = self._node.core.primary
        if primary is not None and primary.backups:
            payload = batch.payload(Scope.LINK)
            places = _places(batch, payload, primary.contents.whole) if primary.contents.whole else []
            wide = _wide(batch, primary.wide_run)
            primary.batch(batch.position, batch.wall_ms, payload, self._node.now, places, wide)


def _wide(batch: Batch, least: int) -> list[WideRun]:
    """The runs of the batch that go to many queues."""
    found, index = [], 0
    for record in batch.records:
        if record.scope & Scope.LINK:
            if type(record) is EnqueueRun and least <= len(record.queues) <= WIDEST:
                found.append(WideRun(index, targets_at(record), record.queues, record.firsts, record.count))
            index += 1
    return found


def _places(batch: Batch, payload: list[bytes], whole: Mapping[int, Content]) -> list[Place]:
    """Where the batch has the octets of these messages. Each such message is alone in its records, at their
    ends."""
    found = []
    records = (record for record in batch.records if record.scope & Scope.LINK)
    for index, (record, encoded) in enumerate(zip(records, payload, strict=True)):
        if type(record) is EnqueueRun and isinstance(record.raws, list) and len(record.raws) == 1:
            raw = record.raws[0]
            content = whole.get(id(raw))
            if content is not None:
                found.append(Place(index, len(encoded) - len(raw) + content.at, content))
    return found


class LedgerSink:
    """Hands each tick's history to the ledger, which goes to the operating system at the end of the tick,
    before any output. Also notes how far this node's own disk has got."""

    def __init__(self, ledger: LedgerPort, store: Store, history: History) -> None:
        self._ledger = ledger
        self._store = store
        self._history = history
        self._durable = ORIGIN
        """What was noted last."""

    def batch(self, batch: Batch) -> None:
        self._ledger.batch(batch, PRIMARY)

    def note_durable(self) -> None:
        """Note the position on disk of the epoch that is served. Called when confirms are released and none
        has left yet: the store may have moved on in between, but never back."""
        durable, noted = self._store.durable, self._durable
        if durable.epoch == self._history.epoch and durable > noted:
            first = noted.n + 1 if noted.epoch == durable.epoch else 1
            if first <= durable.n:
                self._ledger.record("durable", epoch=durable.epoch, first=first, last=durable.n)
            self._durable = durable

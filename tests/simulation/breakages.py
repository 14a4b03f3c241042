"""Hand-made breakages of the product: proof that the checkers can fail.

Each names the invariants that it may break: one of `found_as` must be reported within `SEEDS` seeds run with
it in place. A breakage patches a few attributes for the time of a `with`; all the rest is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from broker.model.exchange import DirectMatcher
from broker.model.queue import Queue
from broker.model.queue_replica import ReplicaContents
from broker.model.records import Envelope
from broker.model.values import FOREVER
from broker.store.store import SegmentStore
from ha.core.broker_replicator import BrokerReplicator
from ha.core.link import parse_batch
from ha.core.manual import EPOCH_STEP, ManualAuthority
from ha.core.primary import Primary
from ha.core.replicating_subscription import ReplicatingSubscription

SEEDS = 40
"""Each breakage must be found within so many seeds."""


@dataclass(slots=True, frozen=True)
class Breakage:
    """Each patch: an attribute of a class becomes what a function makes of the original."""

    name: str
    found_as: frozenset[int]
    patches: tuple[tuple[type, str, Callable[[Any], Any]], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, attribute, broken in self.patches:
                stack.enter_context(mock.patch.object(owner, attribute, broken(getattr(owner, attribute))))
            yield


def _confirm_at_once(settle: Any) -> Any:
    def broken(self: Primary) -> None:
        settle(self)
        self.applied = self.durable = FOREVER

    return broken


def _skip_batches(apply: Any) -> Any:
    def broken(self: BrokerReplicator, body: bytes) -> None:
        head = parse_batch(body)
        if head.position.n % 9:
            apply(self, body)
        else:
            self.applied, self.sent_at = head.position, head.sent_at

    return broken


def _claim_durable(durable: Any) -> Any:
    return property(lambda self: self._last)


def _forget_dequeues(dequeue: Any) -> Any:
    return lambda self, epoch, ranges: None


def _mint_the_same_epoch(mint: Any) -> Any:
    return lambda self, me, seen: EPOCH_STEP + 1


def _mint_without_counting(mint: Any) -> Any:
    return lambda self, me, seen: EPOCH_STEP + me.number


def _activate_in_disorder(activate: Any) -> Any:
    def broken(self: Queue, epoch: int) -> None:
        activate(self, epoch)
        self.ready.reverse()

    return broken


def _lose_one(activate: Any) -> Any:
    def broken(self: Queue, epoch: int) -> None:
        activate(self, epoch)
        if self.ready:
            self.ready.pop()

    return broken


def _check_nothing(check: Any) -> Any:
    return lambda self, epoch: None


def _take_older_positions(append: Any) -> Any:
    return lambda self, position, payload: append(self, max(position, self._last), payload)


def _match_every_key(match: Any) -> Any:
    def broken(self: DirectMatcher, routing_key: str, headers: Any) -> list[Any]:
        return [binding for of_key in self._by_key.values() for binding in of_key.values()]

    return broken


def _forget_the_exclusion(commit: Any) -> Any:
    def broken(self: Primary, record: Any) -> None:
        known = self._c.record
        if known is not None and len(record.in_sync) < len(known.in_sync):
            self._c.record = record
        else:
            commit(self, record)

    return broken


def _skip_one(read: Any) -> Any:
    def broken(self: ReplicatingSubscription, model: Any, limit: int) -> Any:
        if self._slices and not self._at:
            self._slices[0] = self._slices[0][1:]
        return read(self, model, limit)

    return broken


def _never_flag(flag: Any) -> Any:
    return lambda self: self


_UNGUARDED = (
    (Queue, "check_may_serve", _check_nothing),
    (SegmentStore, "append", _take_older_positions),
)
"""Takes away the refusals of queue and store to serve in an epoch that they have seen: the checkers are on
their own."""

BREAKAGES = [
    Breakage("confirm before the backup's ack", frozenset({2}), ((Primary, "_settle", _confirm_at_once),)),
    Breakage("confirm before the disk", frozenset({2}), ((SegmentStore, "durable", _claim_durable),)),
    Breakage(
        "acknowledge a batch and drop it",
        frozenset({2, 13}),
        ((BrokerReplicator, "_batch", _skip_batches),),
    ),
    Breakage(
        "forget dequeues on the backup", frozenset({13}), ((ReplicaContents, "dequeue", _forget_dequeues),)
    ),
    Breakage(
        "mint one epoch on both nodes",
        frozenset({8}),
        ((ManualAuthority, "mint", _mint_the_same_epoch), *_UNGUARDED),
    ),
    Breakage(
        "mint an epoch again",
        frozenset({9}),
        ((ManualAuthority, "mint", _mint_without_counting), *_UNGUARDED),
    ),
    Breakage("lose a message when promoted", frozenset({1}), ((Queue, "activate", _lose_one),)),
    Breakage("serve in disorder", frozenset({21}), ((Queue, "activate", _activate_in_disorder),)),
    Breakage("route regardless of the key", frozenset({20}), ((DirectMatcher, "match", _match_every_key),)),
    Breakage("release without recording", frozenset({3}), ((Primary, "_commit", _forget_the_exclusion),)),
    Breakage("never flag as redelivered", frozenset({23}), ((Envelope, "as_redelivered", _never_flag),)),
    Breakage(
        "lose a message of a snapshot", frozenset({1, 2, 13}), ((ReplicatingSubscription, "read", _skip_one),)
    ),
]

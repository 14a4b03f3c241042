"""Mutants of delayed completion: confirms and replies that go out too early."""

from __future__ import annotations

from typing import Any

from broker.amqp091.channel_state.held import Held
from broker.amqp091.publishing import publish
from broker.model.history.completion import Completion
from broker.model.queue import until_confirmed
from broker.model.queue.until_confirmed import UntilConfirmed
from broker.model.values import FOREVER, Need, Position
from broker.model.vhost.turns import Published
from broker.store.store import SegmentStore
from ha.adapter.replica.vhost import ReplicaVhost
from ha.core.ha_broker import HaBroker
from ha.core.primary.queue_guard import QueueGuard
from tests.simulation.mutants.mutant import Mutant, Patch, always


def _claim_all_durable(durable: Any) -> Any:
    return property(lambda self: self._last)


def _release_as_applied(release: Any) -> Any:
    def broken(self: QueueGuard, applied: Position, durable: Position, sent: Position) -> None:
        release(self, applied, applied, sent)

    return broken


def _reach_the_batch_before(reached: Any) -> Any:
    def broken(self: Completion, position: Position, need: Need) -> Any:
        return reached(self, position._replace(n=max(position.n - 1, 0)), need)

    return broken


def _join_to_the_confirm_before(confirm: Any) -> Any:
    def broken(self: Held, tag: int, need: Need, position: Position) -> None:
        if self._items and self._items[-1].tag:
            self._items[-1].tag = tag
        else:
            confirm(self, tag, need, position)

    return broken


def _pass_on_all(take: Any) -> Any:
    return lambda self, *most: UntilConfirmed.clear(self)


def _need_no_disk(need_of_confirm: Any) -> Any:
    return lambda queue: min(need_of_confirm(queue), Need.APPLIED)


def _need_nothing(reply: Any) -> Any:
    def broken(
        self: Held, frame: bytes, need: Need, position: Any, after: Any = None, wait: Any = None
    ) -> None:
        reply(self, frame, Need.NONE, position, after, wait)

    return broken


def _tell_of_all_after_the_first_piece(turns: Any) -> Any:
    def broken(route: Any, raws: list[bytes], share: int, publish: Any, told: Any) -> Any:
        def noted(part: Any, some: list[bytes], at: int) -> Published:
            done: Published = publish(part, some, at)
            if not told_of:
                told_of.append(done)
                told(Published(done.need, len(raws)), 0, len(raws))
            return done

        told_of: list[Published] = []
        return turns(route, raws, share, noted, lambda done, at, count: None)

    return broken


MUTANTS = (
    Mutant(
        "confirm before the backup's ack",
        "The primary confirms what no backup has: asynchronous replication by the name of a synchronous one.",
        (2,),
        (Patch(HaBroker, "applied", always(FOREVER)), Patch(HaBroker, "durable", always(FOREVER))),
    ),
    Mutant(
        "confirm before the last of many queues",
        "A message that comes into its queues in several turns is confirmed after the first of them.",
        (2,),
        (Patch(publish, "publish_in_turns", _tell_of_all_after_the_first_piece),),
    ),
    Mutant(
        "confirm before the disk",
        "The primary confirms a persistent message once it has handed it to its store, before the sync.",
        (2,),
        (Patch(SegmentStore, "durable", _claim_all_durable),),
    ),
    Mutant(
        "acknowledge as durable what is only applied",
        "The backup reports what it has in memory as being on its disk.",
        (2,),
        (Patch(ReplicaVhost, "durable", always(FOREVER)),),
    ),
    Mutant(
        "take applied for durable",
        "The primary waits for the backup's memory where it should wait for its disk (Artemis).",
        (2,),
        (Patch(QueueGuard, "release", _release_as_applied),),
    ),
    Mutant(
        "release one batch early",
        "An off-by-one in the watermark: the acknowledgement of a batch releases the one after it.",
        (2,),
        (Patch(Completion, "reached", _reach_the_batch_before),),
    ),
    Mutant(
        "let a multiple confirm run ahead",
        "A later publish joins a waiting confirm, whose `multiple` then covers a tag that is not replicated.",
        (5,),
        (Patch(Held, "confirm", _join_to_the_confirm_before),),
    ),
    Mutant(
        "answer before it is replicated",
        "The reply to a declaration, purge or deletion goes out when it is done on the primary alone.",
        (6,),
        (Patch(Held, "reply", _need_nothing),),
    ),
    Mutant(
        "deliver to x-confirmed-only at once",
        "A consumer that asks for what could be confirmed gets what only the primary has.",
        (23,),
        (Patch(UntilConfirmed, "take", _pass_on_all),),
    ),
    Mutant(
        "deliver to x-confirmed-only before the disk",
        "A consumer that asks for what could be confirmed gets persistent messages that are on no disk yet.",
        (23,),
        (Patch(until_confirmed, "need_of_confirm", _need_no_disk),),
    ),
)

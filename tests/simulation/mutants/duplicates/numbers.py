"""Mutants of numbers of producers: that are marked too soon, forgotten, or of somebody whose time is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from broker.amqp091.server import channel as channel_module
from broker.amqp091.server.channel import Channel
from broker.model.history import marks as marks_module
from broker.model.history.records import QueueMarks, Record
from broker.model.values import Need, Scope
from broker.model.vhost.enqueueing import Enqueueing
from broker.model.vhost.producer_entries import Known
from broker.model.vhost.producers import Producers
from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter import primary_vhost as primary_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _before_commit(handlers: Any) -> Any:
    """Rolled back, what counted as had when it was published counts so for ever."""
    rollback = handlers["tx.rollback"]

    def broken(channel: Channel, arguments: dict[str, Any]) -> None:
        transaction, numbers = channel.transaction, channel.numbers
        if transaction is not None and numbers is not None:
            producers = channel.connection.vhost.shared.producers
            for run in transaction.publishes:
                for queue in run.route.queues:
                    producers.note(queue, numbers.numbering(run.first), len(run.raws), stored=True)
        rollback(channel, arguments)

    return {**handlers, "tx.rollback": broken}


def _refused_too(bounded: Any) -> Any:
    def broken(self: Enqueueing, route: Any, envelope: Any, raws: Any, *more: Any) -> Any:
        done = bounded(self, route, envelope, raws, *more)
        if more[-1] is not None:
            self._mark(route.queues, more[-1], len(raws), Scope.STORE | Scope.LINK)
        return done

    return broken


def _nothing(original: Any) -> Any:
    return lambda self: iter(())


def _but_marks(contents: Any) -> Any:
    def broken(*args: Any) -> Iterator[Record]:
        return (record for record in contents(*args) if not isinstance(record, QueueMarks))

    return broken


def _whatever_epoch(check: Any) -> Any:
    def broken(self: Producers, key: Any, claim: Any, user: str, known: Known | None) -> None:
        check(self, key, claim, user, None if known is None else replace(known, epoch=claim.epoch))

    return broken


def _fencing_nobody(begin: Any) -> Any:
    def broken(self: Producers, shared: Any, vhost: str, claim: Any, *more: Any) -> Any:
        self.sessions.pop((vhost, claim.producer), None)
        return begin(self, shared, vhost, claim, *more)

    return broken


def _silently(forget: Any) -> Any:
    def broken(self: Producers, *args: Any) -> None:
        with mock.patch.object(self, "told", lambda sentence: None):
            forget(self, *args)

    return broken


def _at_once(publish_again: Any) -> Any:
    return lambda self, *args: publish_again(self, *args)._replace(need=Need.NONE)


MUTANTS = (
    Mutant(
        "mark before commit",
        "What a transaction publishes counts as had before it is committed, and when it is rolled back.",
        (1, 2, 13),
        (Patch(channel_module, "_HANDLERS", _before_commit),),
        because="The message is missing when it is sent again, and confirmed; copies differ before that.",
    ),
    Mutant(
        "mark what a full queue refuses",
        "A message that was refused is sent again, and left out as one that the queue has had.",
        (1, 2, 13),
        (Patch(Enqueueing, "_publish_bounded", _refused_too),),
        because="The message is missing when it is sent again, and confirmed; copies differ before that.",
    ),
    Mutant(
        "forget marks in a base",
        "A node reads its store, and knows only the numbers of its newest segment.",
        (13, 24),
        (Patch(VirtualHosts, "stored_marks", _nothing),),
        because="Copies differ once it is a backup again; alone, it takes a number twice.",
    ),
    Mutant(
        "tell a joiner no marks",
        "A node joins, is promoted, and takes again what its primary had.",
        (13, 24),
        (Patch(primary_module, "_contents", _but_marks),),
        because="Copies differ before a number is sent again.",
    ),
    Mutant(
        "know one number less",
        "The window of a mark is off by one, and the oldest number in it counts as had.",
        (1, 2),
        (Patch(marks_module, "_ALL", lambda every: every >> 1),),
        because="No backup has it when it is confirmed, nor does the primary.",
    ),
    Mutant(
        "let an older life in",
        "A process that stood still comes back after the next one, and sends with its numbers.",
        (24,),
        (Patch(Producers, "_check", _whatever_epoch),),
    ),
    Mutant(
        "leave the older connection be",
        "Two connections of one producer send with the same numbers.",
        (24,),
        (Patch(Producers, "begin", _fencing_nobody),),
    ),
    Mutant(
        "forget a producer in silence",
        "A producer's numbers are taken twice, and no log says that it was forgotten.",
        (24,),
        (Patch(Producers, "_forget", _silently),),
    ),
    Mutant(
        "confirm a duplicate at once",
        "The message that it repeats is not on the backups yet, and may be lost.",
        (2,),
        (Patch(Enqueueing, "_publish_again", _at_once),),
    ),
)

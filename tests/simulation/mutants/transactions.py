"""Mutants of transactions: commits that come apart, or are promised too early; rollbacks that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from broker.amqp091.channel_state.output import Output
from broker.amqp091.publishing import transaction as transaction_module
from broker.amqp091.publishing.transaction import HeldRun, Settlement
from broker.amqp091.server import channel as channel_module
from broker.amqp091.server.channel import Channel
from broker.model.history.history import History
from broker.model.values import Need
from tests.simulation.mutants.mutant import Mutant, Patch

Handler = Callable[[Channel, dict[str, Any]], None]


def _handles(method: str, broken: Callable[[Handler], Handler]) -> Patch:
    """`broken` makes another handler of that of `method`."""
    return Patch(channel_module, "_HANDLERS", lambda found: {**found, method: broken(found[method])})


def _needs(most: Need) -> Callable[[Any], Any]:
    def broken(answer: Any) -> Any:
        def sooner(self: Any, name: str, scope: Any = None, *, need: Need = Need.NONE, **more: Any) -> None:
            if name == "tx.commit-ok":
                need = min(need, most)
            answer(self, name, scope, need=need, **more)

        return sooner

    return broken


def _gathering_nothing(commit: Handler) -> Handler:
    def broken(channel: Channel, arguments: dict[str, Any]) -> None:
        with mock.patch.object(History, "gather", lambda self: None):
            commit(channel, arguments)

    return broken


def _acks_last(commit: Handler) -> Handler:
    def broken(channel: Channel, arguments: dict[str, Any]) -> None:
        held = channel.transaction
        assert held is not None
        need = max([transaction_module._publish(channel, run) for run in held.publishes], default=Need.NONE)
        settlements = held.settlements
        held.end(channel)

        def then() -> None:
            done = [channel.settle(how, runs) for how, runs in settlements]
            channel.connection.vhost.history.gather()
            channel.output.answer("tx.commit-ok", need=max([need, *done]))

        channel.output.reply(b"", need=need, after=then)

    return broken


def _refused_in_part(publish: Any) -> Any:
    def broken(channel: Channel, run: HeldRun) -> Need:
        vhost = channel.connection.vhost
        if run.route.generation != vhost.generation:
            found: Need = publish(channel, run)
            return found
        return vhost.publish(
            run.route, run.raws, persistent=run.kind.persistent, channel=channel.number,
            largest_frame=run.largest,
        ).need  # fmt: skip

    return broken


def _keeping_publishes(rollback: Handler) -> Handler:
    def broken(channel: Channel, arguments: dict[str, Any]) -> None:
        assert channel.transaction is not None
        publishes = channel.transaction.publishes
        rollback(channel, arguments)
        channel.transaction.publishes = publishes

    return broken


def _acked_at_once(acked: Any) -> Any:
    def broken(self: Channel, runs: Any) -> None:
        held, self.transaction = self.transaction, None
        acked(self, runs)
        self.transaction = held

    return broken


def _published_at_once(publish: Any) -> Any:
    def broken(self: Any, channel: Channel, *rest: Any, **named: Any) -> None:
        publish(self, channel, *rest, **named)
        transaction_module._publish(channel, self.publishes.pop())

    return broken


def _committed(let_go: Any) -> Any:
    def broken(self: Channel) -> None:
        held = self.transaction
        if held is not None:
            publishes, settlements = held.publishes, held.settlements
            held.end(self)
            for run in publishes:
                transaction_module._publish(self, run)
            for how, runs in settlements:
                self.settle(how, runs)
        let_go(self)

    return broken


def _without_rejects(commit: Handler) -> Handler:
    """They are given back instead."""

    def broken(channel: Channel, arguments: dict[str, Any]) -> None:
        held = channel.transaction
        assert held is not None
        held.settlements = [
            (Settlement.REQUEUE if how is Settlement.REJECT else how, runs) for how, runs in held.settlements
        ]
        commit(channel, arguments)

    return broken


MUTANTS = (
    Mutant(
        "commit-ok before the backups have it",
        "Commit-ok is sent as soon as the primary has done the commit.",
        (7,),
        (Patch(Output, "answer", _needs(Need.NONE)),),
    ),
    Mutant(
        "commit-ok before the disk",
        "Commit-ok waits for memories where what is persistent has to wait for disks.",
        (7,),
        (Patch(Output, "answer", _needs(Need.APPLIED)),),
    ),
    Mutant(
        "commit-ok before the disk has the acks",
        "Commit-ok waits for what the disk is to keep of the publishes, not of the dequeues.",
        (7,),
        (Patch(channel_module, "need_of_dequeue", lambda original: lambda queue: Need.APPLIED),),
    ),
    Mutant(
        "leave the acks of a commit gathered",
        "The dequeues of a commit wait for others to make a range with, and are in a later batch.",
        (7,),
        (_handles("tx.commit", _gathering_nothing),),
    ),
    Mutant(
        "commit in two steps",
        "First the publishes, and when the backups have them the acks (Qpid had a stream for each queue).",
        (7,),
        (_handles("tx.commit", _acks_last),),
    ),
    Mutant(
        "commit what there is room for",
        "Of a commit that is too much for a queue with a limit, the rest is refused, and nobody told.",
        (7,),
        (
            Patch(transaction_module, "_check_room", lambda original: lambda transaction: None),
            Patch(transaction_module, "_publish", _refused_in_part),
        ),
    ),
    Mutant(
        "keep what is rolled back",
        "A rollback leaves the publishes to the next commit.",
        (7,),
        (_handles("tx.rollback", _keeping_publishes),),
    ),
    Mutant(
        "requeue what is rolled back",
        "After a rollback what was acked is ready again, and not outstanding: its client gets it twice.",
        (7,),
        (Patch(Channel, "outstanding_again", lambda original: Channel._requeue),),
    ),
    Mutant(
        "acknowledge at once in a transaction",
        "Acks do not wait for the commit, and no rollback undoes them.",
        (7,),
        (Patch(Channel, "_acked", _acked_at_once),),
    ),
    Mutant(
        "publish at once in a transaction",
        "Publishes do not wait for the commit.",
        (7,),
        (Patch(transaction_module.Transaction, "publish", _published_at_once),),
    ),
    Mutant(
        "commit when the client is lost",
        "What a client had not committed when its connection went is done in its name.",
        (7,),
        (Patch(Channel, "_let_go", _committed),),
    ),
    Mutant(
        "give back what a commit rejects",
        "Messages that were rejected in a transaction go back to their queue with its commit.",
        (7,),
        (_handles("tx.commit", _without_rejects),),
    ),
)

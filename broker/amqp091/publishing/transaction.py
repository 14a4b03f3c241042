"""The tx class: the contents of a channel's transaction, and its three methods, as in RabbitMQ.

A transaction holds routed publishes and settlements of deliveries. A commit applies everything in one call,
so everything, dequeues included, is in one batch of history. Link and store take a batch whole or not at all.
commit-ok waits for that batch with the strictest need of its parts. Owner: `Channel`, while it is
transactional.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.amqp091.channel_state.assembly import return_frame
from broker.amqp091.channel_state.host import Failing, Host
from broker.amqp091.codec.properties import without_bcc
from broker.errors import AmqpError, PreconditionFailed, ResourceError
from broker.model.history.records import Commit
from broker.model.queue.arguments import OverflowRule
from broker.model.routing.publish_route import PublishRoute
from broker.model.values import Need, Reason
from broker.model.vhost.duplicates import new_to
from broker.model.vhost.turns import steps_of

if TYPE_CHECKING:
    from broker.amqp091.channel_state.output import Output
    from broker.amqp091.channel_state.unacked import Run
    from broker.amqp091.codec.properties import Checked
    from broker.model.queue.queue import Queue
    from broker.model.queue.removals import RuledQueue
    from broker.model.steps import Steps
    from broker.model.vhost.producers import ProducerSession

LETTER = 100
"""Minimum steps of a dead letter."""
_COMMIT = 90, 20
"""Class and method of tx.commit."""
_PER_RUN = 224
_PER_MESSAGE = 48
"""Octets of a held run, and of each of its messages, besides the frames."""
_PER_ROUTE = 512
"""Octets of a route that is not in the memo."""


class Settlement(enum.Enum):
    """How a client settles its deliveries."""

    ACK = "ack"
    REJECT = "reject"
    REQUEUE = "requeue"


class HeldRun(NamedTuple):
    """Publishes with the same route, persistence, expiration and priority. `first`: the tag of the first."""

    route: PublishRoute
    raws: list[bytes]
    kind: Checked
    largest: int
    first: int
    mandatory: bool


class Transaction:
    """Operations that wait for the commit, in the client's order. The `octets` of publishes count for the
    connection (`Connection.uncommitted`)."""

    __slots__ = ("octets", "publishes", "settlements")

    def __init__(self) -> None:
        self.publishes: list[HeldRun] = []
        self.settlements: list[tuple[Settlement, list[Run]]] = []
        self.octets = 0

    def publish(
        self, channel: TransactedChannel, route: PublishRoute, raws: list[bytes], kind: Checked, largest: int,
        first: int, *, mandatory: bool,
    ) -> None:  # fmt: skip
        """Hold a run; joins it with the previous one if they are alike. Raises ResourceError (506) if the
        connection holds too much."""
        octets = sum(map(len, raws)) + _PER_MESSAGE * len(raws)
        last = self.publishes[-1] if self.publishes else None
        if last is not None and (last.route, last.kind, last.mandatory) == (route, kind, mandatory):
            last.raws.extend(raws)
            self.publishes[-1] = last._replace(largest=max(last.largest, largest))
        else:
            octets += _PER_RUN + _PER_ROUTE * route.one_off
            self.publishes.append(HeldRun(route, raws, kind, largest, first, mandatory))
        self.octets += octets
        connection = channel.connection
        if connection.transacts(octets) > connection.settings.assembling_max:
            raise ResourceError("too many bytes of uncommitted messages on one connection", 60, 40)

    def end(self, channel: TransactedChannel) -> list[Run]:
        """Drop everything. Returns the settled deliveries, for a rollback."""
        channel.connection.transacts(-self.octets)
        runs = [run for _, some in self.settlements for run in some]
        self.publishes, self.settlements, self.octets = [], [], 0
        return runs


class TransactedChannel(Failing, Protocol):
    """The part of `Channel` that transactions use."""

    transaction: Transaction | None
    next_publish_tag: int

    @property
    def connection(self) -> Host: ...
    @property
    def output(self) -> Output: ...
    @property
    def confirming(self) -> bool: ...
    @property
    def producer(self) -> str | None: ...
    @property
    def numbers(self) -> ProducerSession | None: ...
    def name_producer(self) -> None: ...
    def begin_numbers(self) -> Need: ...
    def settle(self, how: Settlement, runs: list[Run], *, whole: bool) -> Need: ...
    def outstanding_again(self, runs: list[Run]) -> None: ...
    @property
    def is_open(self) -> bool: ...


def _transaction_of(channel: TransactedChannel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction


def select(channel: TransactedChannel, arguments: dict[str, Any]) -> None:
    """tx.select: make the channel transactional. Raises 406 in confirm mode."""
    if channel.confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    need = Need.NONE
    if channel.transaction is None:
        need = channel.begin_numbers()
        channel.transaction = Transaction()
        channel.next_publish_tag = 1
        if channel.connection.vhost.history.ledger_wanted:
            channel.name_producer()
    channel.output.answer("tx.select-ok", need=need)


def commit(channel: TransactedChannel, arguments: dict[str, Any]) -> None:
    """tx.commit: apply the publishes and then the settlements, in one step and so in one batch. Raises 406,
    with nothing done, if a full queue refuses any of it, or if it is too much for one step.

    Routes of dead letters are looked up before that step, in as many turns of the connection as needed.
    """
    transaction = _transaction_of(channel)
    _check_size(transaction, channel.connection.settings.transaction_max)
    if any(_dying(transaction)):
        channel.connection.work(_commit_with_letters(channel, transaction))
    else:
        _commit(channel, transaction)


def _dying(transaction: Transaction) -> Iterator[Run]:
    """Rejected deliveries that must become dead letters."""
    for how, runs in transaction.settlements:
        if how is Settlement.REJECT:
            yield from (run for run in runs if run.queue.rules.dead_letters)


def _commit_with_letters(channel: TransactedChannel, transaction: Transaction) -> Steps[None]:
    """Commit a transaction with dead letters. A refused commit closes the channel or the connection."""
    vhost, most = channel.connection.vhost, channel.connection.settings.transaction_max
    routes: dict[tuple[RuledQueue, int, int], PublishRoute] = {}
    steps = 0
    try:
        for run in _dying(transaction):
            for entry in run.entries:
                found = yield from vhost.find_dead_route(run.queue, entry, Reason.REJECTED)
                if found is not None:
                    routes[run.queue, entry[1].epoch, entry[0]] = found.route
                    steps += max(0, found.steps - LETTER)
            _check_size(transaction, most, steps)
        if channel.is_open:
            vhost.known_routes = routes
            try:
                _commit(channel, transaction)
            finally:
                vhost.known_routes = {}
    except AmqpError as error:
        error.class_id, error.method_id = _COMMIT
        channel.connection.fail(channel, error)


def _commit(channel: TransactedChannel, transaction: Transaction) -> None:
    _check_room(transaction, channel.numbers)
    need = Need.NONE
    for run in transaction.publishes:
        need = max(need, _publish(channel, run))
    for how, runs in transaction.settlements:
        need = max(need, channel.settle(how, runs, whole=True))
    history = channel.connection.vhost.history
    history.gather()
    if transaction.publishes and channel.producer is not None and history.ledger_wanted:
        last = transaction.publishes[-1]
        history.append(
            Commit(channel.producer, transaction.publishes[0].first, last.first + len(last.raws) - 1)
        )
    transaction.end(channel)
    channel.output.answer("tx.commit-ok", need=need)


def _check_size(transaction: Transaction, most: int, steps: int = 0) -> None:
    """Limit the size of a commit, because it runs in one step while no other client is served. `steps`: those
    of its dead letters besides `LETTER`. Raises 406."""
    steps += sum(steps_of(len(run.route.queues), len(run.raws)) for run in transaction.publishes)
    for how, runs in transaction.settlements:
        for run in runs:
            dies = how is Settlement.REJECT and run.queue.rules.dead_letters
            if dies or how is Settlement.REQUEUE:
                steps += len(run.entries) * (LETTER if dies else 1)
    if steps > most:
        raise PreconditionFailed(
            f"transaction not committed: it takes {steps} steps, and may take {most} (broker.transaction_max)"
        )


def _check_room(transaction: Transaction, numbers: ProducerSession | None) -> None:
    """With `reject-publish`, a queue must accept all its messages of the transaction, or the commit fails.
    (In RabbitMQ it fails too, but other queues have already accepted theirs.) What the queue has had, by its
    number, needs no room."""
    wanted: dict[Queue, list[bytes]] = {}
    for run in transaction.publishes:
        for queue in run.route.queues:  # a policy may have made it refuse since the publish
            if queue.serves and queue.rules.overflow is not OverflowRule.DROP_HEAD:
                raws = run.raws if numbers is None else new_to(queue, numbers.numbering(run.first), run.raws)
                wanted.setdefault(queue, []).extend(raws)
    for queue, raws in wanted.items():
        if queue.room(raws) < len(raws):
            raise PreconditionFailed(f"transaction not committed: queue '{queue.name}' is full")


def _publish(channel: TransactedChannel, run: HeldRun) -> Need:
    vhost = channel.connection.vhost
    route = run.route
    if route.generation != vhost.generation or route.refusing:
        alive = tuple(queue for queue in route.queues if queue.serves)
        route = PublishRoute(
            route.exchange, route.routing_key, alive, False, vhost.generation, one_off=True,
            counted=route.counted,
        )  # fmt: skip
        route.refusing = False  # `_check_room` has checked that everything fits
    channel.output.count_routed(len(run.raws), route, run.mandatory)
    if run.mandatory and not route.queues:
        method = return_frame(channel.number, route.exchange, route.routing_key)
        for raw in run.raws:
            channel.output.reply(method + (without_bcc(raw) if run.kind.blind else raw))
    return vhost.publish(
        route, run.raws, persistent=run.kind.persistent, channel=channel.number, largest_frame=run.largest,
        producer=channel.producer, first_tag=run.first, expiration=run.kind.expiration,
        priority=run.kind.priority, blind=run.kind.blind,
        numbering=None if channel.numbers is None else channel.numbers.numbering(run.first), by_id=True,
    ).need  # fmt: skip


def rollback(channel: TransactedChannel, arguments: dict[str, Any]) -> None:
    """tx.rollback: drop the publishes. Settled deliveries are outstanding again, and not requeued."""
    channel.outstanding_again(_transaction_of(channel).end(channel))
    channel.output.answer("tx.rollback-ok")

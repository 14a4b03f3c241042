"""The output of a channel: frames in order, each sent once what it reports is safe. Owner: `Channel`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.amqp091.channel_state.held import Held
from broker.amqp091.codec.grammar import encode_frame
from broker.bind_waits import BindWait
from broker.model.statistics import AMQP091, Counts, Shares
from broker.model.values import Need, Scope

if TYPE_CHECKING:
    from broker.amqp091.channel_state.host import Host
    from broker.model.routing.publish_route import PublishRoute


class Output:
    """`held`: output that waits for gates, and output behind it. Implements `broker.connection.Holder`.

    `counts`: messages of the channel; `went`: those of `publish` by exchange.
    """

    __slots__ = ("connection", "counts", "held", "number", "went")

    def __init__(self, connection: Host, number: int) -> None:
        self.connection = connection
        self.number = number
        self.counts = Counts()
        self.went = Shares()
        connection.vhost.counts[AMQP091].begin(self.counts)
        self.held = Held(number, self.counts)

    def reply(
        self, frame: bytes, scope: Scope | None = None, after: Callable[[], None] | None = None,
        need: Need = Need.NONE, wait: BindWait | None = None,
    ) -> None:  # fmt: skip
        """Send `frame`, then run `after`, in channel order. With a scope: once changes in that scope are
        safe. With a need: once the need is met. With a wait: once that has ended, too."""
        vhost = self.connection.vhost
        if scope is not None:
            need = vhost.need(scope)
        if need is Need.NONE and not self.held and wait is None:
            if frame:
                self.connection.send(frame)
            if after is not None:
                after()
            return
        self.held.reply(frame, need, vhost.history.position, after, wait)
        self.connection.broker.holding[self] = None

    def answer(
        self, name: str, scope: Scope | None = None, *, need: Need = Need.NONE, wait: BindWait | None = None,
        **arguments: Any,
    ) -> None:  # fmt: skip
        """`reply` with a method frame."""
        self.reply(encode_frame(self.number, name, **arguments), scope, need=need, wait=wait)

    def count_published(self, count: int, exchange: str) -> None:
        """Messages of the channel came for this exchange."""
        if exchange is not self.went.name:
            self.went.turn(exchange, self.counts.publish)
        self.counts.publish += count

    def count_routed(self, count: int, route: PublishRoute, mandatory: bool) -> None:
        """Messages of the channel went this way."""
        queues, counts, of_exchange = len(route.queues), self.counts, route.counted
        of_exchange.publish += count
        if queues:
            counts.routed += count * queues
            of_exchange.routed += count * queues
        elif mandatory:
            counts.return_unroutable += count
        else:
            counts.drop_unroutable += count

    def ended(self) -> None:
        """The channel is closed. Idempotent."""
        self.connection.vhost.counts[AMQP091].end(self.counts)

    def drop(self) -> None:
        """Discard pending output."""
        self.held = Held(self.number, self.counts)
        self.connection.broker.holding.pop(self, None)

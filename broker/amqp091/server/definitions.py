"""Exchange and queue methods of a channel: each calls the virtual host and replies in channel order.

Called by `Channel.method`. The reply to a change waits until the change is as safe as its scope demands
(invariant 6). A passive declare changes nothing but waits too, because what it reports must survive. A client
without permission is refused whether or not the object exists. Anybody may declare passively, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.amqp091.channel_state.host import Host
from broker.amqp091.channel_state.output import Output
from broker.amqp091.server.consuming import ChannelConsumers
from broker.authorization import demand, demand_exchange, demand_queue, demand_topic
from broker.bind_waits import BindWait, wait_of
from broker.errors import NotFound
from broker.model.queue.direct_reply import REPLY_TO, is_direct_reply
from broker.model.queue.requeueing import Returning
from broker.model.values import Scope

_Arguments = dict[str, Any]


class DefiningChannel(Protocol):
    """The part of `Channel` that these methods use."""

    last_queue: str

    @property
    def connection(self) -> Host: ...
    @property
    def output(self) -> Output: ...
    @property
    def consumers(self) -> ChannelConsumers: ...
    def queue_name(self, name: str) -> str: ...
    def wait_for(self, returning: Returning, serve: Callable[[], None], *ids: int) -> None: ...


def _answer(channel: DefiningChannel, arguments: _Arguments, name: str, scope: Scope, **reply: Any) -> None:
    if not arguments.get("nowait", False):
        channel.output.answer(name, scope, **reply)


def _declare_exchange(channel: DefiningChannel, arguments: _Arguments) -> None:
    if not arguments["passive"]:
        demand_exchange(channel.connection, arguments["exchange"], arguments["arguments"])
    exchange = channel.connection.vhost.declare_exchange(
        arguments["exchange"], arguments["type"], passive=arguments["passive"], durable=arguments["durable"],
        auto_delete=arguments["auto_delete"], internal=arguments["internal"],
        arguments=arguments["arguments"],
    )  # fmt: skip
    _answer(channel, arguments, "exchange.declare-ok", exchange.scope)


def _delete_exchange(channel: DefiningChannel, arguments: _Arguments) -> None:
    demand(channel.connection, "configure", "exchange", arguments["exchange"])
    scope = channel.connection.vhost.delete_exchange(arguments["exchange"], if_unused=arguments["if_unused"])
    _answer(channel, arguments, "exchange.delete-ok", scope)


def _demand_exchanges(channel: DefiningChannel, arguments: _Arguments) -> None:
    demand(channel.connection, "write", "exchange", arguments["destination"])
    demand(channel.connection, "read", "exchange", arguments["source"])
    demand_topic(channel.connection, "read", arguments["source"], arguments["routing_key"])


def _wait_for(channel: DefiningChannel, arguments: _Arguments, exchange: str, ms: int) -> BindWait | None:
    """Until other nodes know what the exchange is bound for, at most so long; None: answer at once."""
    broker = channel.connection.broker
    if not ms or arguments.get("nowait", False):
        return None
    known = broker.hooks.binding_told(channel.connection.vhost.name, exchange)
    return None if known is None else broker.bind_waits.begin(broker.now + ms / 1000, known)


def _bind_exchange(channel: DefiningChannel, arguments: _Arguments) -> None:
    _demand_exchanges(channel, arguments)
    table, ms = wait_of(arguments["arguments"])
    scope = channel.connection.vhost.bind_exchange(
        arguments["destination"], arguments["source"], arguments["routing_key"], table
    )
    wait = _wait_for(channel, arguments, arguments["source"], ms)
    _answer(channel, arguments, "exchange.bind-ok", scope, wait=wait)


def _unbind_exchange(channel: DefiningChannel, arguments: _Arguments) -> None:
    _demand_exchanges(channel, arguments)
    scope = channel.connection.vhost.unbind_exchange(
        arguments["destination"], arguments["source"], arguments["routing_key"],
        wait_of(arguments["arguments"])[0],
    )  # fmt: skip
    _answer(channel, arguments, "exchange.unbind-ok", scope)


def _look_for_consumer(channel: DefiningChannel, arguments: _Arguments) -> None:
    """queue.declare of the name for direct replies. Says whether somebody waits for them, as in RabbitMQ.
    Raises NotFound."""
    name, vhost = arguments["queue"], channel.connection.vhost
    if name != REPLY_TO and name not in vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")
    _answer(
        channel, arguments, "queue.declare-ok", Scope.NONE, queue=name, message_count=0, consumer_count=1
    )  # fmt: skip


def _declare_queue(channel: DefiningChannel, arguments: _Arguments) -> None:
    name, connection = arguments["queue"], channel.connection
    if not name and arguments["passive"]:
        name = channel.queue_name(name)
    if name == REPLY_TO or is_direct_reply(name):
        _look_for_consumer(channel, arguments)
        return
    queue = connection.vhost.declare_queue(
        name, owner=connection, passive=arguments["passive"], durable=arguments["durable"],
        exclusive=arguments["exclusive"], auto_delete=arguments["auto_delete"],
        arguments=arguments["arguments"],
        permit=lambda name: demand_queue(connection, name, arguments["arguments"]),
    )  # fmt: skip
    channel.last_queue = queue.name
    _answer(
        channel, arguments, "queue.declare-ok", queue.scope, queue=queue.name,
        message_count=queue.total_count - queue.unacked_count, consumer_count=len(queue.consumers),
    )  # fmt: skip


def _demand_binding(channel: DefiningChannel, queue: str, exchange: str, key: str) -> None:
    demand(channel.connection, "write", "queue", queue)
    demand(channel.connection, "read", "exchange", exchange)
    demand_topic(channel.connection, "read", exchange, key)


def _bind_queue(channel: DefiningChannel, arguments: _Arguments) -> None:
    name = channel.queue_name(arguments["queue"])
    key = arguments["routing_key"]
    if not arguments["queue"] and not key:
        key = name
    _demand_binding(channel, name, arguments["exchange"], key)
    table, ms = wait_of(arguments["arguments"])
    scope = channel.connection.vhost.bind_queue(
        name, arguments["exchange"], key, table, owner=channel.connection
    )
    wait = _wait_for(channel, arguments, arguments["exchange"], ms)
    _answer(channel, arguments, "queue.bind-ok", scope, wait=wait)


def _unbind_queue(channel: DefiningChannel, arguments: _Arguments) -> None:
    name = channel.queue_name(arguments["queue"])
    _demand_binding(channel, name, arguments["exchange"], arguments["routing_key"])
    scope = channel.connection.vhost.unbind_queue(
        name, arguments["exchange"], arguments["routing_key"], wait_of(arguments["arguments"])[0],
        owner=channel.connection,
    )  # fmt: skip
    _answer(channel, arguments, "queue.unbind-ok", scope)


def _purge_queue(channel: DefiningChannel, arguments: _Arguments) -> None:
    name = channel.queue_name(arguments["queue"])
    demand(channel.connection, "read", "queue", name)
    queue = channel.connection.vhost.queue(name, owner=channel.connection)
    if queue.returning is not None:
        again = {**arguments, "queue": name}
        channel.wait_for(queue.returning, lambda: _purge_queue(channel, again), 50, 30)
        return
    removed = channel.connection.vhost.purge_queue(name, owner=channel.connection)
    _answer(channel, arguments, "queue.purge-ok", removed.scope, message_count=removed.messages)


def _delete_queue(channel: DefiningChannel, arguments: _Arguments) -> None:
    name = channel.queue_name(arguments["queue"])
    demand(channel.connection, "configure", "queue", name)
    with channel.consumers.answering_first():
        removed = channel.connection.vhost.delete_queue(
            name, owner=channel.connection, if_unused=arguments["if_unused"], if_empty=arguments["if_empty"]
        )
        _answer(channel, arguments, "queue.delete-ok", removed.scope, message_count=removed.messages)


DEFINITION_METHODS: dict[str, Callable[[DefiningChannel, _Arguments], None]] = {
    "exchange.declare": _declare_exchange,
    "exchange.delete": _delete_exchange,
    "exchange.bind": _bind_exchange,
    "exchange.unbind": _unbind_exchange,
    "queue.declare": _declare_queue,
    "queue.bind": _bind_queue,
    "queue.unbind": _unbind_queue,
    "queue.purge": _purge_queue,
    "queue.delete": _delete_queue,
}

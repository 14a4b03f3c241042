"""Queues, exchanges and bindings: declare, delete, bind, purge. The checks are those of the AMQP methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.authorization import demand, demand_exchange, demand_queue, demand_topic
from broker.errors import NotFound
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import Binding, Exchange
from broker.model.values import ExchangeType, need_of
from ha.adapter.management.operations.asker import Asker, asker_of
from ha.adapter.management.operations.binding_key import properties_key, with_name
from ha.adapter.management.operations.outcome import (
    FEW,
    Outcome,
    once_returned,
    when_dead_letters_are_made,
)

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.steps import Steps
    from ha.adapter.management.operations.arguments import Arguments

KINDS = ("queue", "exchange")
"""What a binding may lead to."""
_TYPES = tuple(known.value for known in ExchangeType)


def declare_queue(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `durable`, `auto_delete`, `arguments`. Answers whether it is `created`."""
    vhost, name = args.vhost(), args.filled("name")
    durable, auto_delete = args.flag("durable"), args.flag("auto_delete")
    arguments = args.table("arguments")
    args.end()
    asker = asker_of(broker, user, vhost)

    def declare() -> Outcome:
        known = name in asker.vhost.queues
        queue = asker.vhost.declare_queue(
            name, owner=asker, durable=durable, auto_delete=auto_delete, arguments=arguments,
            permit=lambda name: demand_queue(asker, name, arguments),
        )  # fmt: skip
        return Outcome(need_of(queue.scope), {"created": not known})

    yield FEW
    return (yield from when_dead_letters_are_made(declare))


def find_queue(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`. Refused if there is no such queue."""
    vhost, name = args.vhost(), args.filled("name")
    args.end()
    queue = _existing_queue(asker_of(broker, user, vhost), name)
    yield FEW
    return Outcome(need_of(queue.scope), {})


def delete_queue(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `if_unused`, `if_empty`. Answers how many `messages` were ready."""
    vhost, name = args.vhost(), args.filled("name")
    if_unused, if_empty = args.flag("if_unused"), args.flag("if_empty")
    args.end()
    asker = asker_of(broker, user, vhost)
    demand(asker, "configure", "queue", name)
    _existing_queue(asker, name)

    def delete() -> Outcome:
        removed = asker.vhost.delete_queue(name, owner=asker, if_unused=if_unused, if_empty=if_empty)
        return Outcome(need_of(removed.scope), {"messages": removed.messages})

    yield FEW
    return (yield from when_dead_letters_are_made(delete))


def purge(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`. Answers how many `messages` were removed."""
    vhost, name = args.vhost(), args.filled("name")
    args.end()
    asker = asker_of(broker, user, vhost)
    demand(asker, "read", "queue", name)
    yield from once_returned(asker.vhost.queue(name, owner=asker))
    removed = asker.vhost.purge_queue(name, owner=asker)
    yield FEW
    return Outcome(need_of(removed.scope), {"messages": removed.messages})


def declare_exchange(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `type`, `durable`, `auto_delete`, `internal`, `arguments`. Answers whether it is
    `created`."""
    vhost, name, kind = args.vhost(), args.filled("name"), args.choice("type", _TYPES, "direct")
    durable, auto_delete, internal = args.flag("durable"), args.flag("auto_delete"), args.flag("internal")
    arguments = args.table("arguments")
    args.end()
    asker = asker_of(broker, user, vhost)
    demand_exchange(asker, name, arguments)
    known = name in asker.vhost.exchanges
    exchange = asker.vhost.declare_exchange(
        name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
    )
    yield FEW
    return Outcome(need_of(exchange.scope), {"created": not known})


def delete_exchange(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `if_unused`."""
    vhost, name, if_unused = args.vhost(), args.filled("name"), args.flag("if_unused")
    args.end()
    asker = asker_of(broker, user, vhost)
    demand(asker, "configure", "exchange", name)
    asker.vhost.exchange(name)
    scope = asker.vhost.delete_exchange(name, if_unused=if_unused)
    yield FEW
    return Outcome(need_of(scope), {})


def bind(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `source`, `destination`, `destination_type`, `routing_key`, `arguments`. Answers whether it is
    `created`, and its `properties_key`."""
    vhost, source, destination = args.vhost(), args.filled("source"), args.filled("destination")
    kind, key = args.choice("destination_type", KINDS, "queue"), args.key("routing_key", "")
    arguments = args.table("arguments")
    args.end()
    asker = asker_of(broker, user, vhost)
    _demand_binding(asker, kind, destination, source)
    demand_topic(asker, "read", source, key)
    place = asker.vhost
    before = place.bindings
    if kind == "queue":
        scope = place.bind_queue(destination, source, key, arguments, owner=asker)
    else:
        scope = place.bind_exchange(destination, source, key, arguments)
    yield FEW
    made = properties_key(Binding(place.exchange(source), _target(asker, kind, destination), key, arguments))
    return Outcome(need_of(scope), {"created": place.bindings > before, "properties_key": made})


def unbind(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `source`, `destination`, `destination_type`, and either `properties_key` or `routing_key` and
    `arguments`."""
    vhost, source, destination = args.vhost(), args.filled("source"), args.filled("destination")
    kind, named = args.choice("destination_type", KINDS, "queue"), args.text("properties_key", "")
    key, arguments = args.key("routing_key", ""), args.table("arguments")
    args.end()
    asker = asker_of(broker, user, vhost)
    _demand_binding(asker, kind, destination, source)
    target = _target(asker, kind, destination)
    found = yield from _find_binding(asker.vhost.exchange(source), target, named, key, arguments)
    demand_topic(asker, "read", source, found.routing_key)
    place = asker.vhost
    if isinstance(target, Queue):
        scope = place.unbind_queue(destination, source, found.routing_key, found.arguments, owner=asker)
    else:
        scope = place.unbind_exchange(destination, source, found.routing_key, found.arguments)
    return Outcome(need_of(scope), {})


def _find_binding(
    source: Exchange, target: Queue | Exchange, named: str, key: str, arguments: dict[str, object]
) -> Steps[Binding]:
    """Raises NotFound."""
    yield FEW
    if not named:
        if (found := source.bindings.get(Binding(source, target, key, arguments).key)) is not None:
            return found
    else:
        of_target = [binding for binding in source.bindings.values() if binding.target is target]
        if (named_so := with_name(of_target, named)) is not None:
            return named_so
        yield FEW + len(source.bindings)
    raise NotFound(f"no such binding between exchange '{source.name}' and '{target.name}'")


def _demand_binding(asker: Asker, kind: str, destination: str, source: str) -> None:
    demand(asker, "write", "queue" if kind == "queue" else "exchange", destination)
    demand(asker, "read", "exchange", source)


def _target(asker: Asker, kind: str, name: str) -> Queue | Exchange:
    """Raises NotFound."""
    return _existing_queue(asker, name) if kind == "queue" else asker.vhost.exchange(name)


def _existing_queue(asker: Asker, name: str) -> Queue:
    """Raises NotFound."""
    found = asker.vhost.queues.get(name)
    if found is None:
        raise NotFound(f"no queue '{name}' in vhost '{asker.vhost.name}'")
    return found

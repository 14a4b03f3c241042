"""Checks an attach: what a client may send to and receive from. Raises the error that refuses it.

Called by `Links`. Attaching creates nothing, except for a `dynamic` source: a temporary queue for one client,
which is deleted with its link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proton import Link, Receiver, Sender, Terminus

from broker.amqp10.incoming import Incoming, IncomingHost
from broker.amqp10.outgoing import PRIORITY, REPLICATION_ID, Outgoing, OutgoingHost
from broker.authorization import demand, demand_queue, demand_topic
from broker.model.queue.arguments import CONFIRMED_ONLY
from broker.model.queue.link import is_link
from broker.model.vhost.producers import claim_of
from understudy.shared.amqp10.addresses import Address, of_queue, parse
from understudy.shared.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, Fault

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


class LinksHost(IncomingHost, OutgoingHost, Protocol):
    """The methods that links of both directions need."""

    def serves(self, served: Incoming | Outgoing) -> bool: ...
    def fail(self, served: Incoming | Outgoing, fault: Fault) -> None: ...


def incoming(links: LinksHost, link: Receiver) -> Incoming:
    """A link on which the client sends."""
    connection, wanted = links.connection, link.remote_target
    if wanted.type == Terminus.COORDINATOR:
        raise Fault(NOT_IMPLEMENTED, "transactions of AMQP 1.0 are not supported; those of 0-9-1 are")
    if wanted.dynamic:
        raise Fault(NOT_IMPLEMENTED, "a target cannot be dynamic, only a source")
    target: Address | None = None
    if wanted.address is not None:
        target = parse(wanted.address)
        demand(connection, "write", "exchange", target.exchange)
        demand_topic(connection, "write", target.exchange, target.key)
        if target.queue is not None:
            there = connection.vhost.named(target.queue)  # maybe the link queue of the way to another node
            if there is None or not is_link(there.name):
                queue, owner = (target.queue, connection) if there is None else (there.name, there.owner)
                there = connection.vhost.queue(queue, owner=owner)  # only consumers need to own it
            connection.vhost.shared.reconnecting.used(there)
        else:
            connection.vhost.route(target.exchange, target.key)
        link.target.address = wanted.address
    link.target.type = Terminus.TARGET
    link.source.copy(link.remote_source)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = Link.RCV_FIRST
    link.max_message_size = connection.settings.message_max
    name = connection.client_properties.get("producer")
    told = name and link.remote_snd_settle_mode != Link.SND_SETTLED
    properties = link.remote_properties if isinstance(link.remote_properties, dict) else {}
    claim = claim_of(properties) or claim_of(connection.client_properties)
    if claim is not None and link.remote_snd_settle_mode == Link.SND_SETTLED:
        raise Fault(INVALID_FIELD, "messages with numbers are not sent settled")
    return Incoming(links, link, target, f"{name}/{link.name}" if told else None, claim)


def outgoing(links: LinksHost, link: Sender) -> Outgoing:
    """A link on which the client receives."""
    connection, wanted = links.connection, link.remote_source
    _check_source(wanted)
    address = wanted.address
    if wanted.dynamic:
        queue = connection.vhost.declare_queue(
            "", owner=connection, exclusive=True, permit=lambda name: demand_queue(connection, name, {})
        )
        link.source.dynamic = True
        link.source.address = of_queue(queue.name)
    elif address is None:
        raise Fault(INVALID_FIELD, "a source without an address")
    else:
        queue = _queue(links, address)
        link.source.address = address
    link.source.type = Terminus.SOURCE
    link.target.copy(link.remote_target)
    browses = wanted.distribution_mode == Terminus.DIST_MODE_COPY
    if browses:
        link.source.distribution_mode = Terminus.DIST_MODE_COPY
    settled = browses or link.remote_snd_settle_mode == Link.SND_SETTLED
    link.snd_settle_mode = Link.SND_SETTLED if settled else Link.SND_UNSETTLED
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    told = link.remote_properties if isinstance(link.remote_properties, dict) else {}
    return Outgoing(
        links, link, queue, settled=settled, wants_id=_wants(told, REPLICATION_ID),
        confirmed_only=_confirmed_only(told, settled=settled), temporary=wanted.dynamic,
        priority=_priority(told.get(PRIORITY)), browses=browses,
    )  # fmt: skip


def _wants(told: dict[object, object], name: str) -> bool:
    value = told.get(name)
    if value is None or isinstance(value, bool):
        return value is True
    raise Fault(INVALID_FIELD, f"{name} is not a boolean")


def _confirmed_only(told: dict[object, object], *, settled: bool) -> bool:
    wanted = _wants(told, CONFIRMED_ONLY)
    if wanted and settled:
        raise Fault(INVALID_FIELD, f"a link with {CONFIRMED_ONLY} takes no settled messages")
    return wanted


def _priority(told: object) -> int:
    """The priority of a consumer, as RabbitMQ takes it: any whole number."""
    if told is None:
        return 0
    if isinstance(told, bool) or not isinstance(told, int):
        raise Fault(INVALID_FIELD, f"{PRIORITY} is not a whole number")
    return int(told)


def _check_source(wanted: Terminus) -> None:
    """Refuse filters, because ignoring one would send the client unwanted messages."""
    filters = wanted.filter
    if filters.next() is not None and filters.get_map():
        raise Fault(NOT_IMPLEMENTED, "filters and selectors are not supported")


def _queue(links: LinksHost, address: str) -> Queue:
    connection = links.connection
    source = parse(address)
    if source.queue is None:
        raise Fault(NOT_IMPLEMENTED, "a source is a queue; bind one to the exchange, and receive from that")
    demand(connection, "read", "queue", source.queue)
    return connection.vhost.queue(source.queue, owner=connection)

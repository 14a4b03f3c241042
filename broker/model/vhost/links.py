"""Both ends of a federation link in a serving virtual host.

Upstream: the link queue of one exchange and one broker downstream, and its bindings, which are the interest
of that broker. Downstream: the messages that arrive. Each change is history like any other. The
high-availability adapter calls these functions inside a tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from broker.errors import PreconditionFailed
from broker.model.history.records import Envelope, ExchangeDeclare, MessageId, QueueDeclare
from broker.model.history.value_codec import UnsupportedValue, canonical
from broker.model.queue.link import (
    BOUND_FROM,
    BY,
    ECHO,
    NODE,
    OWNER,
    Path,
    is_link,
    link_name,
    path_of,
    push_name,
)
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import EVERYWHERE, Binding, Exchange, check_binding
from broker.model.routing.node_routes import NODES, parts_of
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import finish
from broker.model.values import LINK_LIMITS, REPLICATE, ROOT, ExchangeType, Reason
from broker.model.vhost.federation_entries import LONGEST_NODE

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost

_QUEUES = "/queues/"
"""What the address of a queue begins with in AMQP 1.0."""
_LONGEST = 255
"""Octets of a `reply-to`."""

Wish = tuple[str, bytes]
"""Routing key and canonical arguments of a binding that a broker downstream wishes."""


class Interest(NamedTuple):
    """One binding that is wished upstream. `path`: the nodes through which the wish came."""

    routing_key: str
    arguments: Mapping[str, object]
    path: Path

    @property
    def wish(self) -> Wish:
        return self.routing_key, canonical(self.arguments)


# -- upstream


def declare_link(
    vhost: VirtualHost, exchange: Exchange, node: str, owner: str, limits: Mapping[str, object]
) -> Queue:
    """The link queue, which is as durable, and as replicated, as its exchange. One that exists stays as it
    is: see `limit`. `owner`: see `link.OWNER`; `limits`: queue arguments."""
    return _declare(vhost, exchange, link_name(exchange.name, node), {NODE: node, OWNER: owner, **limits})


def declare_nodes(vhost: VirtualHost) -> Exchange:
    """The exchange of the ways to other nodes."""
    found = vhost.exchanges.get(NODES)
    if found is None:
        declared = ExchangeDeclare(
            NODES, ExchangeType.DIRECT.value, True, False, True, {}, "all", EVERYWHERE, vhost.name
        )
        vhost._record(declared)
        found = Exchange(declared)
        vhost.add_exchange(found)
    return found


def declare_push(
    vhost: VirtualHost, exchange: Exchange, upstream: str, limits: Mapping[str, object]
) -> Queue:
    """The link queue for messages that are given to an upstream; else as `declare_link`."""
    return _declare(vhost, exchange, push_name(exchange.name, upstream), {**limits})


def _declare(vhost: VirtualHost, exchange: Exchange, name: str, arguments: dict[str, object]) -> Queue:
    found = vhost.queues.get(name)
    if found is not None:
        return found
    if exchange.replicate in ("none", "configuration", "all"):
        arguments[REPLICATE] = exchange.replicate
    declared = QueueDeclare(
        vhost.new_uuid(), name, exchange.durable, False, False, arguments, vhost=vhost.name
    )
    declared.scope = vhost.hooks.queue_scope(declared)
    vhost._record(declared)
    queue = vhost._make_queue(declared, None)
    vhost.expiries.used(queue)
    return queue


def limit(vhost: VirtualHost, queue: Queue, limits: Mapping[str, object]) -> None:
    """A link queue has these limits from now on, and comes back or not as they say. What is above them is
    dropped in this tick."""
    settings = (*LINK_LIMITS, ECHO)
    rest = {key: value for key, value in queue.arguments.items() if key not in settings}
    arguments = {**rest, **limits}
    if arguments == queue.arguments:
        return
    vhost._record(replace(queue.declaration(), arguments=arguments))
    before = queue.rules.expires
    vhost.set_arguments(queue, arguments)
    if queue.rules.expires != before:
        vhost.expiries.forget(queue)
        vhost.expiries.used(queue)


def with_global_reply(vhost: VirtualHost, raw: bytes) -> bytes:
    """A message that leaves the node at which it was published. If replies are to go to a queue of this node,
    they find it from everywhere. An address of AMQP 1.0 is quoted."""
    form, node = vhost.removals.format, vhost.shared.node
    told = form.reply_to(raw)
    quoted = told.startswith(_QUEUES)
    name = unquote(told.removeprefix(_QUEUES)) if quoted else told
    if not name or name not in vhost.queues or parts_of(name)[1] == node:
        return raw
    made = _QUEUES + quote(f"{name}@{node}", safe="") if quoted else f"{name}@{node}"
    return form.with_reply_to(raw, made) if len(made.encode()) <= _LONGEST else raw


def ask_for(vhost: VirtualHost, exchange: Exchange, queue: Queue, interest: Interest) -> Binding:
    """Bind the link queue. Raises PreconditionFailed for arguments that no binding may have."""
    key, arguments, path = interest
    check_binding(exchange.routes_as, key, arguments)
    try:
        binding = Binding(exchange, queue, key, {**arguments, BY: list(path)})
    except UnsupportedValue as error:
        raise PreconditionFailed(f"invalid arguments: {error}") from None
    if binding.key not in exchange.bindings:
        vhost._record(binding.bind_record())
        vhost.add_binding(binding)
    return binding


def forgo(vhost: VirtualHost, bindings: Iterable[Binding]) -> None:
    """Unbind the link queue. An auto-delete exchange without any other binding ends."""
    sources: dict[str, Exchange] = {}
    for binding in bindings:
        if binding.key in binding.source.bindings:
            vhost._record(binding.unbind_record())
            vhost.remove_binding(binding)
            sources[binding.source.name] = binding.source
    if sources:
        vhost._end_unbound(list(sources.values()))


def end_link(vhost: VirtualHost, queue: Queue, *, dropped: bool) -> None:
    """Delete a link queue with what waits there. `dropped`: that is to count as dropped."""
    vhost._end_queue(queue, Reason.DROPPED if dropped else Reason.DELETED)


# -- downstream


def behind(binding: Binding) -> Interest:
    """What a binding asks for; a link queue's says also through whom."""
    foreign = binding.arguments.get(BOUND_FROM)
    if isinstance(foreign, list):
        rest = {key: value for key, value in binding.arguments.items() if key != BOUND_FROM}
        return Interest(binding.routing_key, rest, nodes_of(foreign))
    path = path_of(binding.arguments) if is_link(binding.target.name) else ()
    if not path:
        return Interest(binding.routing_key, binding.arguments, ())
    rest = {key: value for key, value in binding.arguments.items() if key != BY}
    return Interest(binding.routing_key, rest, path)


def nodes_of(hops: list[object]) -> Path:
    """The nodes of a list of hops in RabbitMQ's form, whose newest one is the first."""
    tables = (hop for hop in reversed(hops) if isinstance(hop, dict))
    found = [(hop.get("cluster-name"), hop.get("vhost")) for hop in tables]
    return tuple(plain_node(name, vhost) for name, vhost in found if isinstance(name, str) and name)


def plain_node(cluster: str, vhost: object) -> str:
    """The name by which nodes know a virtual host of a broker that is no node: it is in no other one's."""
    where = f":{vhost}" if isinstance(vhost, str) and vhost != ROOT else ""
    text = "".join(letter if letter.isprintable() else "?" for letter in cluster + where).replace("@", "%")
    if len(text) <= LONGEST_NODE:
        return text
    return f"{text[: LONGEST_NODE - 17]}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def queue_there(exchange: str, node: str, vhost: str) -> str:
    """The queue of this node at a plain broker, which keeps names that begin with `amq.` to itself.
    RabbitMQ's own federation names its queues like this."""
    return f"federation: {exchange} -> {node}{'' if vhost == ROOT else f' ({vhost})'}"


def goes_on(binding: Binding) -> bool:
    """May the interest behind a binding be told to a further broker? RabbitMQ's says how far it may go."""
    hops = binding.arguments.get(BOUND_FROM)
    newest = hops[0] if isinstance(hops, list) and hops else None
    left = newest.get("hops") if isinstance(newest, dict) else None
    return not isinstance(left, int) or left > 1


class Arrived(NamedTuple):
    """What became of messages that arrived: how many were routed, went to no queue, or were refused by a full
    one."""

    routed: int
    unrouted: int
    refused: int


def arrive(
    vhost: VirtualHost, exchange: Exchange, envelope: Envelope, raws: list[bytes], path: Path,
    expiration: int | None, session: str | None = None, first: int = 0, origin: MessageId | None = None,
) -> Arrived:  # fmt: skip
    """Publish messages of one run of a node upstream to the exchange. They go to no link queue of a node on
    their `path`. `envelope`: theirs, there; `expiration`: the milliseconds that they have left; `session`:
    see `link_session`; `first`: the id of the first one in that link queue; `origin`: where it was
    published."""
    routed = unrouted = refused = 0
    at = 0
    for route, some in _routes(vhost, exchange, envelope.routing_key, raws, path):
        exchange.counts.publish += len(some)
        exchange.counts.routed += len(some) * len(route.queues)
        published = vhost.publish(
            route, some, persistent=envelope.persistent, channel=envelope.channel,
            largest_frame=envelope.largest_frame, producer=session, first_tag=first + at,
            expiration=expiration, priority=envelope.priority, blind=envelope.blind, path=path,
            origin=None if origin is None else (origin[0], origin[1] + at), by_id=True,
        )  # fmt: skip
        at += len(some)
        if not route.queues:
            unrouted += len(some)
        else:
            routed += published.accepted
            refused += len(some) - published.accepted
    return Arrived(routed, unrouted, refused)


def _routes(
    vhost: VirtualHost, exchange: Exchange, key: str, raws: list[bytes], path: Path
) -> Iterator[tuple[PublishRoute, list[bytes]]]:
    form = vhost.removals.format
    route = finish(vhost.find_arrival(exchange.name, key, path))
    together: list[bytes] = []
    for raw in raws:
        if not route.needs_headers and not form.has_copies(raw):
            together.append(raw)
            continue
        if together:
            yield route, together
            together = []
        headers = form.headers(raw)
        yield finish(vhost.find_by_headers(exchange.name, key, headers, raw, inner=True, path=path)), [raw]
    if together:
        yield route, together

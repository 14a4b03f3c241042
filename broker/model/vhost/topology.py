"""The graph of exchanges, bindings and queues of one virtual host, and its routes. No checks, no history.

`find` looks up a route in pieces, since one look-up may pass tens of thousands of bindings. Changes between
two pieces may be seen or not. A route found while the graph changed is only valid for the messages that it
was looked up for.

Owner: `Definitions`, which checks and records client operations. `applying` changes the graph directly. Every
change clears the memo of routes and raises `generation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from broker.errors import AccessRefused, NotFound
from broker.model.definition_octets import INDEX
from broker.model.queue.arguments import rules_of
from broker.model.queue.delays.delay_queue import delay_name, delay_of, is_internal
from broker.model.queue.link import Path, node_of
from broker.model.queue.origin import follows
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import (
    PEERS,
    Binding,
    BindingKey,
    Exchange,
    built_in_exchanges,
    copy_keys,
    target_key,
)
from broker.model.routing.forward import Forward, forwarded
from broker.model.routing.node_routes import NODES, best_way, parts_of
from broker.model.routing.publish_route import PublishRoute
from broker.model.statistics import PROTOCOLS, Tally
from broker.model.steps import Steps, finish
from broker.model.vhost.shared import Shared

ROUTE_MEMO = 16384
"""Maximum routes in the memo; a full memo is cleared."""


class Topology:
    """`queues` and `exchanges` by name.

    - `shared`: the state that all virtual hosts share.
    - `bindings`: their number.
    - `counts`: messages of its clients, by protocol.
    - `octets`: approximate memory of all this, without messages and consumers.
    """

    def __init__(self, name: str, shared: Shared) -> None:
        self.name = name
        self.shared = shared
        self.generation = 0
        self.counts: dict[str, Tally] = {protocol: Tally() for protocol in PROTOCOLS}
        self.exchanges: dict[str, Exchange] = built_in_exchanges(name)
        self.queues: dict[str, Queue] = {}
        self.bindings = 0
        self.looked = 0
        """Steps spent on finding routes since the start."""
        self.octets = sum(exchange.octets for exchange in self.exchanges.values())
        self._incoming: dict[bytes, dict[tuple[str, BindingKey], Binding]] = {}
        self._routes: dict[tuple[str, str], PublishRoute] = {}
        self._arrivals: dict[tuple[str, str, Path], PublishRoute] = {}
        """By exchange, routing key and path: of messages that other federation nodes have sent."""
        self.watchers: dict[str, list[Callable[[Binding, bool], None]]] = {}
        """By exchange: called with each binding that it gets (True) or loses (False)."""
        self.forwards: dict[str, tuple[Forward, ...]] = {}
        """By exchange: where its messages go besides, or instead."""

    def _changed(self) -> None:
        self.generation += 1
        self._routes.clear()
        self._arrivals.clear()
        self.shared.changed()

    @property
    def reach(self) -> int:
        """Maximum number of queues that one message reaches; at least 1."""
        return len(self.queues) or 1

    def add_queue(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.octets += queue.octets
        self.shared.queues_by_uuid[queue.uuid] = queue
        self._changed()

    def set_arguments(self, queue: Queue, arguments: Mapping[str, object]) -> None:
        """A queue gets other arguments, and the rules that follow from them. Not for one with a policy."""
        self.octets -= queue.octets
        queue.arguments = arguments
        queue.set_rules(rules_of(arguments))
        self.octets += queue.octets
        self._changed()

    def remove_queue(self, queue: Queue) -> list[Exchange]:
        """Remove a queue and its bindings. Returns the exchanges that were bound to it."""
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
        if self.shared.queues_by_uuid.pop(queue.uuid, None) is not None:
            self.octets -= queue.octets
        self._changed()
        return self._remove_incoming(target_key(queue))

    def add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self.octets += exchange.octets
        self._changed()

    def remove_exchange(self, exchange: Exchange) -> list[Exchange]:
        """Remove an exchange and all its bindings. Returns the exchanges that were bound to it."""
        if self.exchanges.pop(exchange.name, None) is not None:
            self.octets -= exchange.octets
        for binding in list(exchange.bindings.values()):
            self.remove_binding(binding)
        self._changed()
        return self._remove_incoming(target_key(exchange))

    def _remove_incoming(self, key: bytes) -> list[Exchange]:
        sources: dict[str, Exchange] = {}
        for binding in list(self._incoming.get(key, {}).values()):
            sources[binding.source.name] = binding.source
            self.remove_binding(binding)
        return list(sources.values())

    def add_binding(self, binding: Binding) -> bool:
        """Add a binding. Returns False if the same binding exists."""
        if binding.key in binding.source.bindings:
            return False
        of_target = self._incoming.setdefault(binding.key[0], {})
        self.octets += binding.source.add(binding) + (0 if of_target else INDEX)
        of_target[binding.source.name, binding.key] = binding
        self.bindings += 1
        self._changed()
        self._tell(binding, True)
        return True

    def remove_binding(self, binding: Binding) -> None:
        self.octets -= binding.source.remove(binding)
        of_target = self._incoming.get(binding.key[0], {})
        if of_target.pop((binding.source.name, binding.key), None) is not None:
            self.bindings -= 1
        if not of_target and self._incoming.pop(binding.key[0], None) is not None:
            self.octets -= INDEX
        self._changed()
        self._tell(binding, False)

    def _tell(self, binding: Binding, there: bool) -> None:
        for watcher in self.watchers.get(binding.source.name, ()) if self.watchers else ():
            watcher(binding, there)

    def bound_to(self, target: Queue | Exchange) -> list[Binding]:
        """The bindings that lead to a queue or an exchange."""
        return list(self._incoming.get(target_key(target), {}).values())

    def named(self, key: str, path: Path = ()) -> Queue | None:
        """Where the default exchange sends a message with that routing key. `QUEUE@NODE` is the queue of that
        whole name, else the queue of the node, here or by a link queue (`node_routes`)."""
        found = self.queues.get(key)
        if found is not None:
            return None if is_internal(key) else found
        name, node = parts_of(key) if self.shared.node else (key, "")
        if not node:
            return None
        if node == self.shared.node:
            return self.queues.get(name)
        ways = self.exchanges.get(NODES)
        if ways is None:
            return None
        return best_way((way for _, found in ways.matcher.match(node, {}) for way in found), path)

    # -- routes

    def known(self, exchange: str, routing_key: str) -> PublishRoute | None:
        """The route from the memo, or None."""
        return self._routes.get((exchange, routing_key))

    def find(self, exchange: str, routing_key: str) -> Steps[PublishRoute]:
        """The route of a publish, from the memo or looked up in pieces. Raises NotFound, or AccessRefused if
        the exchange is internal."""
        found = self._routes.get((exchange, routing_key))
        return found or (yield from self._remember(self._publishable(exchange), routing_key))

    def route(self, exchange: str, routing_key: str) -> PublishRoute:
        """Like `find`, at once."""
        return finish(self.find(exchange, routing_key))

    def find_inner(self, exchange: str, routing_key: str) -> Steps[PublishRoute]:
        """Like `find`, for the broker's own publishes (dead letters), which internal exchanges accept. Raises
        NotFound. While clients may reconnect, it does not count as a client's use, and is not put into the
        memo."""
        found = self._routes.get((exchange, routing_key))
        if found is None and self.shared.reconnecting.waiting:
            return (yield from self._look_up(self._existing(exchange), routing_key))
        return found or (yield from self._remember(self._existing(exchange), routing_key))

    def set_forwards(self, exchange: str, forwards: tuple[Forward, ...]) -> None:
        """Replace them."""
        if self.forwards.get(exchange, ()) != forwards:
            self.forwards[exchange] = forwards
            if not forwards:
                del self.forwards[exchange]
            self._changed()

    def find_arrival(self, exchange: str, routing_key: str, path: Path) -> Steps[PublishRoute]:
        """Like `find_inner`, of a message that came by `path`: it goes to none of these nodes."""
        found = self._arrivals.get((exchange, routing_key, path))
        if found is None:
            found = yield from self._look_up(self._existing(exchange), routing_key, path)
            if not found.one_off:
                if len(self._arrivals) >= ROUTE_MEMO:
                    self._arrivals.clear()
                self._arrivals[exchange, routing_key, path] = found
        return found

    def _look_up(self, source: Exchange, routing_key: str, path: Path = ()) -> Steps[PublishRoute]:
        since = self.generation
        queues, needs_headers = yield from self._reach(source, routing_key, None, path=path)
        if since == self.generation:
            return PublishRoute(
                source.name, routing_key, queues, needs_headers, since, counted=source.counts
            )  # fmt: skip
        return self._one_off(source.name, routing_key, queues, needs_headers)

    def _remember(self, source: Exchange, routing_key: str) -> Steps[PublishRoute]:
        self._note_use(source, (routing_key,))
        found = yield from self._look_up(source, routing_key)
        if not source.internal and not found.one_off:
            if len(self._routes) >= ROUTE_MEMO:
                self._routes.clear()
            self._routes[source.name, routing_key] = found
        return found

    def find_by_headers(
        self,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        raw: bytes = b"",
        *,
        inner: bool = False,
        path: Path = (),
    ) -> Steps[PublishRoute]:
        """The route of one message by its headers, needed for a headers exchange or for keys in `CC` and
        `BCC`. Not put into the memo. `raw`: the message. `inner`: as in `find_inner`; `path`: as in
        `find_arrival`."""
        source = self._existing(exchange) if inner else self._publishable(exchange)
        copies = copy_keys(headers)
        if not inner:
            self._note_use(source, (routing_key, *copies))
        queues, _ = yield from self._reach(source, routing_key, headers, copies, path, raw)
        return self._one_off(exchange, routing_key, queues, delay=delay_of(headers))

    def _one_off(
        self,
        exchange: str,
        routing_key: str,
        queues: Iterable[Queue],
        needs_headers: bool = False,
        *,
        delay: int = 0,
    ) -> PublishRoute:
        alive = tuple(queue for queue in queues if not queue.deleted)
        source = self.exchanges.get(exchange)
        return PublishRoute(
            exchange, routing_key, alive, needs_headers, self.generation, one_off=True, delay=delay,
            counted=None if source is None else source.counts,
        )  # fmt: skip

    def _note_use(self, source: Exchange, keys: Sequence[str]) -> None:
        """Note that a client publishes to these by name. The memo is empty when a node begins to serve, so
        every name comes here once."""
        self.shared.reconnecting.used(source)
        if source.name == "":
            for key in keys:
                if (queue := self.named(key)) is not None:
                    self.shared.reconnecting.used(queue)

    def renewed(self, route: PublishRoute) -> PublishRoute:
        """Look up a stale route again. A one-off route keeps its queues that still exist."""
        if not route.one_off:
            return self.route(route.exchange, route.routing_key)
        return self._one_off(route.exchange, route.routing_key, route.queues, delay=route.delay)

    def _existing(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def _publishable(self, name: str) -> Exchange:
        exchange = self._existing(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{self.name}'")
        return exchange

    def _delays(self, exchange: Exchange, headers: Mapping[str, object]) -> Queue | None:
        """The delay queue, if a message with these headers has to wait."""
        return self.queues.get(delay_name(exchange.name)) if delay_of(headers) else None

    def delayed(self, exchange: Exchange) -> int:
        """Messages that wait at a delayed-message exchange."""
        queue = self.queues.get(delay_name(exchange.name)) if exchange.delays else None
        return 0 if queue is None else queue.total_count

    def _targets(
        self, exchange: Exchange, keys: Sequence[str], headers: Mapping[str, object], path: Path, raw: bytes
    ) -> Steps[list[Queue | Exchange]]:
        """What the bindings of one exchange select, or its delay queue for a message that has to wait."""
        targets: list[Queue | Exchange] = []
        if exchange.delays and (delays := self._delays(exchange, headers)) is not None:
            targets.append(delays)
        elif exchange.name == "":
            named = (self.named(key, path) for key in keys)
            targets += [queue for queue in named if queue is not None]
        elif exchange.name != NODES:
            if exchange.one_key:
                keys = exchange.keys(keys, headers, partial(self.shared.removals.format.property_of, raw))
            for key in keys:
                for steps, bindings in exchange.matcher.match(key, headers):
                    targets += [binding.target for binding in bindings]
                    self.looked += steps
                    yield steps + len(bindings)
        return targets

    def _reach(
        self,
        source: Exchange,
        routing_key: str,
        headers: Mapping[str, object] | None,
        copies: Sequence[str] = (),
        path: Path = (),
        raw: bytes = b"",
    ) -> Steps[tuple[tuple[Queue, ...], bool]]:
        """The queues reached from `source`, each once, across cycles of exchanges; and whether headers
        decide.

        Without `headers`, an exchange that decides by them matches nothing, and the second result is True. If
        neither the routing key nor `copies` match anything, an exchange forwards to its alternate exchange,
        if that exists (as in RabbitMQ). Queues of federation nodes on the `path` are left out.
        """
        keys: Sequence[str] = (routing_key, *copies)
        queues: dict[Queue, None] = {}
        seen = {source.name}
        leaving = self.shared.leaving
        to_visit = [source]
        needs_headers = False
        while to_visit:
            exchange = to_visit.pop()
            if headers is None and exchange.by_headers:
                needs_headers = True
                continue
            targets = yield from self._targets(exchange, keys, headers or {}, path, raw)
            if self.forwards and exchange.name in self.forwards:
                targets = forwarded(self.forwards[exchange.name], targets, path)
            if not targets and exchange.alternate in self.exchanges and exchange.alternate != PEERS:
                targets = [self.exchanges[exchange.alternate]]
            for target in targets:
                if isinstance(target, Queue):
                    if (
                        not follows(target)
                        and target not in leaving
                        and not (path and node_of(target) in path)
                    ):
                        queues[target] = None
                elif target.name not in seen:
                    seen.add(target.name)
                    to_visit.append(target)
        return tuple(queues), needs_headers

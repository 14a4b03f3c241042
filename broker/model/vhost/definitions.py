"""Client operations on queues, exchanges and bindings: checks, changes, and their history.

Owner: `VirtualHost`, of which this is a base. Error codes follow AMQP 0-9-1 and, where it is silent,
RabbitMQ. The texts are RabbitMQ's, because clients know them. Every method appends a record if a sink must
see its change; the reply waits for `need(scope)` at `history.position`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, NoReturn

from broker.errors import (
    AccessRefused,
    CommandInvalid,
    DeadLettersPending,
    InternalError,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from broker.model.history.records import ExchangeDeclare, ExchangeDelete, QueueDeclare, QueueDelete, Record
from broker.model.history.value_codec import UnsupportedValue, canonical
from broker.model.queue.arguments import DELAYED_FOR, check_queue_arguments
from broker.model.queue.delays.delay_queue import delay_name, is_delay, is_internal
from broker.model.queue.direct_reply import is_direct_reply
from broker.model.queue.link import is_link, node_of
from broker.model.queue.origin import follows
from broker.model.queue.queue import Mode, Queue
from broker.model.routing.exchange import (
    DELAYED_TYPE,
    PEERS,
    Binding,
    Exchange,
    bound_marks,
    check_binding,
    check_exchange_arguments,
)
from broker.model.routing.node_routes import NODES
from broker.model.values import REPLICATE, ExchangeType, Need, Reason, Scope, need_of
from broker.model.vhost.directory import VHOST_LIMITS
from broker.model.vhost.policies import apply_to_new
from broker.model.vhost.shared import Shared
from broker.model.vhost.topology import Topology

Arguments = Mapping[str, object]
_NOTHING: Arguments = {}
_ALL = Scope.STORE | Scope.LINK
"""The scope for a missing object. Its deletion may still wait for confirms, so a reply that it is gone must
wait too."""


class Removed(NamedTuple):
    """The result of a purge or deletion: ready messages removed, and the scope touched (for `need`)."""

    messages: int
    scope: Scope


class Definitions(Topology):
    """Declares and deletes. `owner`: the connection that asks, compared by identity."""

    def __init__(self, name: str, shared: Shared) -> None:
        super().__init__(name, shared)
        self.hooks = shared.hooks
        self.history = shared.history
        self.new_uuid = shared.new_uuid
        self.directory = shared.directory
        self.pending = shared.pending
        self.expiries = shared.expiries
        self.reconnecting = shared.reconnecting
        self.removals = shared.removals
        self._owned: dict[object, list[Queue]] = {}

    @property
    def serving(self) -> bool:
        return self.shared.serving

    def need(self, scope: Scope) -> Need:
        """What the reply to a change in `scope` must wait for, at `history.position`."""
        return need_of(scope)

    def _record(self, record: Record) -> None:
        if not self.serving:
            raise InternalError("definitions were changed while not serving")
        if record.scope or self.history.ledger_wanted:
            self.history.append(record)

    def _no_queue(self, name: str) -> NoReturn:
        raise NotFound(f"no queue '{name}' in vhost '{self.name}'")

    def _no_exchange(self, name: str) -> NoReturn:
        raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")

    # -- exchanges

    def exchange(self, name: str) -> Exchange:
        """Raises NotFound."""
        found = self.exchanges.get(name)
        if found is None:
            self._no_exchange(name)
        return found

    def declare_exchange(
        self,
        name: str,
        type_: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> Exchange:
        """exchange.declare. Raises NotFound (passive), AccessRefused, PreconditionFailed, CommandInvalid."""
        if name == "":
            raise AccessRefused("operation not permitted on the default exchange")
        if passive:
            looked_at = self.exchange(name)
            self.reconnecting.used(looked_at)
            return looked_at
        try:
            known = ExchangeType(type_)
        except ValueError:
            raise CommandInvalid(f"unknown exchange type '{type_}'") from None
        declared = ExchangeDeclare(
            name, type_, durable, auto_delete, internal, _checked(arguments), vhost=self.name
        )
        check_exchange_arguments(known, declared.arguments, f"exchange '{name}' in vhost '{self.name}'")
        found = self.exchanges.get(name)
        if found is not None:
            self._check_same_exchange(found, declared)
            self.reconnecting.used(found)
            return found
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        declared.scope = self.hooks.exchange_scope(declared)
        self._record(declared)
        made = Exchange(declared)
        apply_to_new(self, made)
        self.add_exchange(made)
        if made.delays:
            self._make_delays(made)
        self.hooks.exchange_created(self.name, made.name)
        return made

    def _make_delays(self, exchange: Exchange) -> None:
        """Its delay queue, of the same kind as the exchange, in the same batch."""
        arguments: dict[str, object] = {DELAYED_FOR: exchange.name}
        if REPLICATE in exchange.arguments:
            arguments[REPLICATE] = exchange.arguments[REPLICATE]
        declared = QueueDeclare(
            self.new_uuid(), delay_name(exchange.name), exchange.durable, False, False, arguments,
            vhost=self.name,
        )  # fmt: skip
        declared.scope = self.hooks.queue_scope(declared)
        self._record(declared)
        self._make_queue(declared, None)

    def _end_delays(self, exchange: Exchange) -> None:
        """The exchange is gone, and what waited there goes with it."""
        queue = self.queues.get(delay_name(exchange.name)) if exchange.delays else None
        if queue is not None:
            self._end_queue(queue)

    def _check_same_exchange(self, found: Exchange, wanted: ExchangeDeclare) -> None:
        where = f"exchange '{found.name}' in vhost '{self.name}'"
        for arg, got, has in (
            ("type", wanted.type, found.type.value),
            ("durable", wanted.durable, found.durable),
            ("auto_delete", wanted.auto_delete, found.auto_delete),
            ("internal", wanted.internal, found.internal),
        ):
            _check_same(where, arg, got, has)
        _check_same(
            where,
            "alternate-exchange",
            *(a.get("alternate-exchange") for a in (wanted.arguments, found.arguments)),
        )
        if found.delays:
            types = [a.get(DELAYED_TYPE) for a in (wanted.arguments, found.arguments)]
            _check_same(where, DELAYED_TYPE, *types)

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Scope:
        """exchange.delete, also of a missing exchange. Raises AccessRefused, PreconditionFailed."""
        if name == "":
            raise AccessRefused("operation not permitted on the default exchange")
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        found = self.exchanges.get(name)
        if found is None:
            return _ALL
        if if_unused and found.bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._end_exchange(found)
        return found.scope

    def _end_exchange(self, exchange: Exchange) -> None:
        self._record(ExchangeDelete(exchange.name, exchange.scope, self.name))
        sources = self.remove_exchange(exchange)
        self._end_delays(exchange)
        self._end_unbound(sources)

    def _end_unbound(self, sources: list[Exchange], spared: Container[Exchange] = ()) -> None:
        """Delete auto-delete exchanges that lost their last binding, and then, in turn, those bound to
        them."""
        while sources:
            source = sources.pop()
            alive = self.exchanges.get(source.name) is source
            ends = source.auto_delete and source.bound and not source.bindings and source not in spared
            if alive and ends:
                self._record(ExchangeDelete(source.name, source.scope, self.name))
                sources += self.remove_exchange(source)
                self._end_delays(source)

    # -- queues

    def _live_queue(self, name: str) -> Queue | None:
        """The queue of this name. If its clients have left it and it waits for its deletion, it is deleted
        first. Raises LettersDue."""
        found = self.queues.get(name)
        reason = None if found is None else self.shared.leaving.reason(found)
        if found is None or reason is None:
            return found
        self._require_dead_letters(found)
        self._end_queue(found, reason)
        return None

    def _require_dead_letters(self, queue: Queue) -> None:
        """Before a queue is deleted: make dead letters of the messages that its clients refused. Raises
        LettersDue if this needs more ticks."""
        queue.make_dead_letters()
        if queue.dying:
            what = f"queue '{queue.name}' in vhost '{self.name}' is about to end"
            raise DeadLettersPending(
                f"{what}: messages that it held are being dead-lettered", queue.after_dying
            )

    def queue(self, name: str, *, owner: object) -> Queue:
        """The queue for get, consume and similar methods. Raises NotFound, ResourceLocked."""
        found = self._live_queue(name)
        if found is None:
            self._no_queue(name)
        self._check_owner(found, owner)
        return found

    def check_published(self, exchange: str, routing_key: str) -> None:
        """Called when a publish found no queue. Raises ResourceLocked if the routing key names a queue
        mirror."""
        found = self.queues.get(routing_key) if not exchange else None
        if found is not None and follows(found):
            self._refuse_mirror(found)

    def _refuse_mirror(self, queue: Queue) -> NoReturn:
        raise ResourceLocked(
            f"queue '{queue.name}' in vhost '{self.name}' is replicated from another broker:"
            f" 'understudy replicate --stop' makes it an ordinary queue"
        )

    def _refuse_link(self, queue: Queue) -> NoReturn:
        raise ResourceLocked(
            f"queue '{queue.name}' in vhost '{self.name}' holds what the federation node "
            f"'{node_of(queue)}' has not taken yet: no client uses it"
        )

    def _check_owner(self, queue: Queue, owner: object) -> None:
        if follows(queue):
            self._refuse_mirror(queue)
        if is_link(queue.name):
            self._refuse_link(queue)
        if is_delay(queue.name):
            raise ResourceLocked(
                f"queue '{queue.name}' in vhost '{self.name}' holds messages that wait: no client uses it"
            )
        if queue.exclusive and queue.owner is not owner:
            self._locked(queue)

    def _locked(self, queue: Queue) -> NoReturn:
        raise ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost '{self.name}'."
            " It could be originally declared on another connection or the exclusive property value does not"
            " match that of the original declaration."
        )

    def declare_queue(
        self,
        name: str,
        *,
        owner: object,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
        permit: Callable[[str], None] = lambda name: None,
        prefix: str = "amq.gen-",
    ) -> Queue:
        """queue.declare. An empty name makes one that begins with `prefix`, in a net of federated
        brokers `amq.gen-...@NODE`. The reply waits for `need(queue.scope)`.

        `permit` is called once with the queue's name, unless passive; it raises AccessRefused. An abandoned
        exclusive queue goes to the first connection that declares it. Raises NotFound (passive),
        ResourceLocked, PreconditionFailed, AccessRefused.
        """
        if passive and name in self.queues and (follows(self.queues[name]) or is_internal(name)):
            return self.queues[name]
        if passive:
            looked_at = self.queue(name, owner=owner)
            self.shared.used(looked_at)
            looked_at.settle()
            return looked_at
        if name:
            permit(name)
        self.shared.churn.queue_declared += 1
        found = self._live_queue(name) if name else None
        declared = QueueDeclare(
            b"", name, durable, exclusive, auto_delete, _checked(arguments), vhost=self.name
        )
        check_queue_arguments(declared.arguments, f"queue '{name}' in vhost '{self.name}'")
        if found is not None:
            self.shared.used(self._redeclare(found, declared, owner))
            found.settle()
            return found
        if name.startswith("amq."):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        declared.uuid = self.new_uuid()
        if not name:
            declared.name = prefix + base64.urlsafe_b64encode(declared.uuid).decode().rstrip("=")
            if self.shared.node:
                declared.name += f"@{self.shared.node}"
            permit(declared.name)
        self._check_room(declared.name)
        declared.scope = self.hooks.queue_scope(declared)
        self._record(declared)
        made = self._make_queue(declared, owner if exclusive else None)
        self.expiries.used(made)
        self.shared.churn.queue_created += 1
        return made

    def _check_room(self, name: str) -> None:
        """Raises PreconditionFailed if the virtual host has as many queues as it may. The broker's own do not
        count."""
        most = None if is_direct_reply(name) else self.directory.limit(VHOST_LIMITS, self.name, "max-queues")
        if most is None or len(self.queues) < most:
            return
        if sum([not (is_internal(queue) or is_direct_reply(queue)) for queue in self.queues]) >= most:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({most}) is reached"
            )

    def _redeclare(self, found: Queue, wanted: QueueDeclare, owner: object) -> Queue:
        unclaimed = found.exclusive and found.owner is None and wanted.exclusive
        if not unclaimed:
            self._check_owner(found, owner)
        where = f"queue '{found.name}' in vhost '{self.name}'"
        _check_same(where, "durable", wanted.durable, found.durable)
        _check_same(where, "auto_delete", wanted.auto_delete, found.auto_delete)
        if wanted.exclusive is not found.exclusive:
            self._locked(found)
        for key in sorted({*wanted.arguments, *found.arguments}):
            if key.startswith("x-"):
                absent = "classic" if key == "x-queue-type" else None  # as in RabbitMQ
                _check_same(where, key, *(a.get(key, absent) for a in (wanted.arguments, found.arguments)))
        if unclaimed:
            found.owner = owner
            self._owned.setdefault(owner, []).append(found)
        return found

    def _make_queue(self, declared: QueueDeclare, owner: object) -> Queue:
        mode = Mode.ACTIVE if self.serving else Mode.REPLICA
        queue = Queue(
            declared, self.history, self.pending.append, mode=mode, epoch=self.history.epoch, owner=owner,
            removals=self.removals,
        )  # fmt: skip
        queue.window = self.shared.window
        if self.serving:
            apply_to_new(self, queue)
            self.shared.keep_in(queue)
        if owner is not None:
            self._owned.setdefault(owner, []).append(queue)
        self.add_queue(queue)
        self.hooks.queue_created(queue)
        return queue

    def delete_queue(
        self, name: str, *, owner: object, if_unused: bool = False, if_empty: bool = False
    ) -> Removed:
        """queue.delete, also of a missing queue. Raises ResourceLocked, PreconditionFailed, LettersDue."""
        found = self._live_queue(name)
        if found is None:
            return Removed(0, _ALL)
        if not is_link(name) or found.consumers:
            self._check_owner(found, owner)
        if if_unused and found.consumers:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' in use")
        found.settle()
        if if_empty and (found.message_count or found.returning is not None):
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' is not empty")
        self._require_dead_letters(found)
        return Removed(self._end_queue(found), found.scope)

    def _end_queue(
        self, queue: Queue, reason: Reason = Reason.DELETED, spared: Container[Exchange] = ()
    ) -> int:
        """Delete a queue for good: remove its messages for `reason`, make the record, notify consumers.
        Returns how many messages were ready. `spared`: exchanges that stay even without a binding."""
        queue.settle()
        count = queue.end(reason)
        self._record(QueueDelete(queue.uuid, queue.name, queue.scope))
        self._drop_queue(queue, spared)
        self.shared.churn.queue_deleted += 1
        return count

    def _drop_queue(self, queue: Queue, spared: Container[Exchange] = ()) -> None:
        if queue.scope & Scope.LINK:
            self.shared.deleted_queues.add(queue.uuid, queue.ends())
        sources = self.remove_queue(queue)
        self.shared.producers.queue_gone(queue)
        owned = self._owned.get(queue.owner)
        if queue.owner is not None and owned is not None:
            owned.remove(queue)
            if not owned:
                del self._owned[queue.owner]
        self.expiries.forget(queue)
        self.removals.forget(queue)
        self.shared.leaving.forget(queue)
        consumers = [*queue.consumers, *queue.browsers]
        queue.consumers.clear()
        queue.browsers.clear()
        for consumer in consumers:
            consumer.sink.cancelled(consumer)
        self.hooks.queue_deleted(queue)
        if self.serving:
            self._end_unbound(sources, spared)

    def purge_queue(self, name: str, *, owner: object) -> Removed:
        """queue.purge: remove ready messages. Raises NotFound, ResourceLocked."""
        found = self.queue(name, owner=owner)
        found.settle()
        count = found.purge()
        self.history.gather()
        return Removed(count, found.scope)

    # -- bindings; each returns the binding's scope

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: Arguments | None = None,
        *,
        owner: object,
    ) -> Scope:
        """queue.bind. Raises NotFound, ResourceLocked, AccessRefused (default exchange),
        PreconditionFailed."""
        target = self.queue(queue, owner=owner)
        if exchange == PEERS:
            _check_watcher(target)
        return self._bind(self._source(exchange), target, routing_key, arguments)

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: Arguments | None = None,
        *,
        owner: object,
    ) -> Scope:
        """queue.unbind, also of a missing binding, queue or exchange, as in RabbitMQ. Raises ResourceLocked,
        AccessRefused."""
        source = self._bindable_exchange(exchange)
        if source is None or self._live_queue(queue) is None:
            return _ALL
        return self._unbind(source, self.queue(queue, owner=owner), routing_key, arguments)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> Scope:
        """exchange.bind. Raises NotFound, AccessRefused (default exchange at either end),
        PreconditionFailed."""
        if PEERS in (source, destination):
            raise AccessRefused(f"no exchange may be bound to '{PEERS}', nor '{PEERS}' to an exchange")
        return self._bind(self._source(source), self._source(destination), routing_key, arguments)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> Scope:
        """exchange.unbind, also of a missing binding or exchange, as in RabbitMQ. Raises AccessRefused."""
        ends = self._bindable_exchange(source), self._bindable_exchange(destination)
        if ends[0] is None or ends[1] is None:
            return _ALL
        return self._unbind(ends[0], ends[1], routing_key, arguments)

    def _source(self, name: str) -> Exchange:
        return self._bindable_exchange(name) or self._no_exchange(name)

    def _bindable_exchange(self, name: str) -> Exchange | None:
        """An exchange whose bindings clients may change, or None. Raises AccessRefused."""
        if name == "":
            raise AccessRefused("operation not permitted on the default exchange")
        if name == NODES:
            raise AccessRefused(f"exchange '{NODES}' is for the ways between federated brokers")
        return self.exchanges.get(name)

    def _bind(
        self, source: Exchange, target: Queue | Exchange, key: str, arguments: Arguments | None
    ) -> Scope:
        checked = _checked(arguments)
        check_binding(source.routes_as, key, checked)
        binding = Binding(source, target, key, checked)
        self.reconnecting.used(source)
        self.reconnecting.used(target)
        if binding.key not in source.bindings:
            if source.auto_delete and not source.bound and binding.scope != source.scope:
                for mark in bound_marks(source):
                    self._record(mark)
            self._record(binding.bind_record())
            self.add_binding(binding)
        return binding.scope

    def _unbind(
        self, source: Exchange, target: Queue | Exchange, key: str, arguments: Arguments | None
    ) -> Scope:
        binding = source.bindings.get(Binding(source, target, key, _checked(arguments)).key)
        if binding is None:
            return source.scope & target.scope
        self._record(binding.unbind_record())
        self.remove_binding(binding)
        self._end_unbound([source])
        return binding.scope


def _check_watcher(queue: Queue) -> None:
    """What the nodes of a pair say goes to no other queue or exchange. Raises AccessRefused."""
    if not queue.exclusive:
        raise AccessRefused(f"only exclusive queues may be bound to '{PEERS}', not queue '{queue.name}'")
    if queue.rules.dead_letter_exchange is not None:
        raise AccessRefused(
            f"queue '{queue.name}' has a dead-letter exchange: no such queue may be bound to '{PEERS}'"
        )


def _checked(arguments: Arguments | None) -> Arguments:
    """Arguments that history can store. Raises PreconditionFailed for values that no field table holds."""
    try:
        canonical(arguments or _NOTHING)
    except UnsupportedValue as error:
        raise PreconditionFailed(f"invalid arguments: {error}") from None
    return arguments or _NOTHING


def _check_same(where: str, arg: str, got: object, has: object) -> None:
    if type(got) is not type(has) or got != has:
        raise PreconditionFailed(
            f"inequivalent arg '{arg}' for {where}: received {_shown(got)} but current is {_shown(has)}"
        )


def _shown(value: object) -> str:
    return "none" if value is None else f"'{str(value).lower() if isinstance(value, bool) else value}'"

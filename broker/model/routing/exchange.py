"""Exchanges and bindings: what an exchange holds, and how each exchange type selects bindings.

Owner: `Topology`, which adds and removes bindings and follows exchange-to-exchange bindings
(`Topology.reach`). The default exchange has no bindings here: it finds queues by name in the topology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from broker.errors import PreconditionFailed
from broker.model.definition_octets import BINDING, EXCHANGE, INDEX, TOPIC_NODE, of_table, of_text
from broker.model.history.records import Bind, ExchangeDeclare, Unbind
from broker.model.history.value_codec import canonical
from broker.model.octets import key_in_table
from broker.model.queue.arguments import field_type, value_fault
from broker.model.queue.link import RECEIVED_FROM
from broker.model.routing.hashing import (
    ConsistentHashMatcher,
    ModulusHashMatcher,
    RandomMatcher,
    hash_input,
    weight_fault,
)
from broker.model.routing.headers_matcher import X_MATCH, HeadersMatcher
from broker.model.routing.topic_trie import TopicTrie
from broker.model.statistics import Counts
from broker.model.values import REPLICATE, ExchangeType, Scope

if TYPE_CHECKING:
    from broker.model.policy import Policy
    from broker.model.queue.queue import Queue

EVERYWHERE = Scope.STORE | Scope.LINK
"""Scope of the built-in exchanges. A binding from one has the scope of its target."""

EVENTS = "amq.failover"
"""The exchange for membership events, named after Qpid's. It is internal: clients can only bind to it."""

PEERS = "amq.peer"
"""The exchange for what the nodes of a pair say to each other, named after OpenAMQ's. Applications cannot use
it; an administrator can bind queues that are exclusive to a connection."""

BUILT_IN: dict[str, ExchangeType] = {
    "": ExchangeType.DIRECT,
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.topic": ExchangeType.TOPIC,
    "amq.headers": ExchangeType.HEADERS,
    "amq.match": ExchangeType.HEADERS,
    EVENTS: ExchangeType.TOPIC,
    PEERS: ExchangeType.TOPIC,
}


INTERNAL = (EVENTS, PEERS)
BindingKey = tuple[bytes, str, bytes]
"""Target (a queue's UUID, or `x` and an exchange's name), routing key, canonical arguments."""


def target_key(target: Queue | Exchange) -> bytes:
    """Identifies a queue or exchange; stable over restarts. The prefix tells the two apart."""
    uuid: bytes | None = getattr(target, "uuid", None)
    return b"q" + uuid if uuid is not None else b"x" + target.name.encode()


def key_of(record: Bind | Unbind) -> BindingKey:
    """The key of the binding that a record creates or deletes."""
    target = b"q" + record.queue if record.queue is not None else b"x" + record.target.encode()
    return target, record.routing_key, canonical(record.arguments)


class Binding:
    """A binding. Immutable."""

    __slots__ = ("arguments", "key", "routing_key", "source", "target")

    def __init__(
        self, source: Exchange, target: Queue | Exchange, routing_key: str, arguments: Mapping[str, object]
    ) -> None:
        self.source = source
        self.target = target
        self.routing_key = routing_key
        self.arguments = arguments
        self.key: BindingKey = (target_key(target), routing_key, canonical(arguments))

    @property
    def octets(self) -> int:
        """Approximate memory, without the exchange's index."""
        return BINDING + of_text(self.routing_key) + len(self.key[2]) + of_table(self.arguments)

    @property
    def scope(self) -> Scope:
        """The scope that both ends share, because a binding needs both."""
        return self.source.scope & self.target.scope

    @property
    def queue_uuid(self) -> bytes | None:
        """16 bytes, or None when the target is an exchange."""
        uuid: bytes | None = getattr(self.target, "uuid", None)
        return uuid

    def bind_record(self) -> Bind:
        return Bind(
            self.source.name, self.queue_uuid, self.target.name, self.routing_key, self.arguments, self.scope,
            self.source.vhost,
        )  # fmt: skip

    def unbind_record(self) -> Unbind:
        return Unbind(
            self.source.name, self.queue_uuid, self.target.name, self.routing_key, self.arguments, self.scope,
            self.source.vhost,
        )  # fmt: skip


PropertyOf = Callable[[str], object]
"""A property of the message that is routed, by its name; None: it has none."""
Found = tuple[int, Collection[Binding]]
"""Steps for a piece of matching, not counting one for each binding; and the bindings found."""


class Matcher(Protocol):
    """Selects bindings for one exchange type. `add` and `remove` return the octets of the index that they
    take or free. `match` works in pieces."""

    def add(self, binding: Binding) -> int: ...

    def remove(self, binding: Binding) -> int: ...

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[Found]: ...


class DirectMatcher:
    def __init__(self) -> None:
        self._by_key: dict[str, dict[BindingKey, Binding]] = {}

    def add(self, binding: Binding) -> int:
        of_key = self._by_key.setdefault(binding.routing_key, {})
        of_key[binding.key] = binding
        return INDEX if len(of_key) == 1 else 0

    def remove(self, binding: Binding) -> int:
        of_key = self._by_key.get(binding.routing_key, {})
        of_key.pop(binding.key, None)
        if of_key:
            return 0
        self._by_key.pop(binding.routing_key, None)
        return INDEX

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[Found]:
        return _at_once(self._by_key.get(routing_key, {}))


class FanoutMatcher:
    def __init__(self) -> None:
        self._all: dict[BindingKey, Binding] = {}

    def add(self, binding: Binding) -> int:
        self._all[binding.key] = binding
        return 0

    def remove(self, binding: Binding) -> int:
        self._all.pop(binding.key, None)
        return 0

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[Found]:
        return _at_once(self._all)


class TopicMatcher:
    def __init__(self) -> None:
        self._trie: TopicTrie[Binding] = TopicTrie()

    def add(self, binding: Binding) -> int:
        return TOPIC_NODE * self._trie.add(binding.routing_key, binding.key, binding)

    def remove(self, binding: Binding) -> int:
        return TOPIC_NODE * self._trie.remove(binding.routing_key, binding.key)

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[Found]:
        return self._trie.match(routing_key)


class UpstreamMatcher(FanoutMatcher):
    """Of RabbitMQ's exchange type x-federation-upstream: all, but for messages that came through the broker
    that takes from it, or through too many. `arguments`: of the exchange."""

    def __init__(self, arguments: Mapping[str, object]) -> None:
        super().__init__()
        hops = arguments.get(MAX_HOPS)
        self._hops = hops if isinstance(hops, int) else 1
        self._taker = arguments.get(DOWNSTREAM_NAME), arguments.get(DOWNSTREAM_VHOST)

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[Found]:
        came = headers.get(RECEIVED_FROM)
        if isinstance(came, list) and (len(came) >= self._hops or any(map(self._is_taker, came))):
            return iter(())
        return super().match(routing_key, headers)

    def _is_taker(self, hop: object) -> bool:
        return isinstance(hop, Mapping) and (hop.get("cluster-name"), hop.get("vhost")) == self._taker


def _at_once(found: Mapping[BindingKey, Binding]) -> Iterator[Found]:
    return iter(((0, found.values()),))


def copy_keys(headers: Mapping[str, object]) -> list[str]:
    """Further routing keys of a message, from CC and BCC (https://www.rabbitmq.com/docs/sender-selected). The
    publish checks have already rejected values that are not lists, and too many keys."""
    lists = [headers.get(name) for name in ("CC", "BCC")]
    keys = (key_in_table(field) for some in lists if isinstance(some, list) for field in some)
    return [key for key in keys if key is not None]


def check_exchange_arguments(type_: ExchangeType, arguments: Mapping[str, object], where: str) -> None:
    """Raises PreconditionFailed for an alternate exchange that is not a string, an unknown replication level,
    or wrong arguments of a type that needs some. Other arguments are kept unchecked."""
    alternate = arguments.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        found = field_type(alternate)
        raise PreconditionFailed(f"invalid type '{found}' for arg 'alternate-exchange' in {where}")
    if type_ is ExchangeType.FEDERATION_UPSTREAM and type(arguments.get(MAX_HOPS)) is not int:
        raise PreconditionFailed(f"Argument {MAX_HOPS} missing, or no number, in {where}")
    _check_hashed(arguments if type_ is ExchangeType.CONSISTENT_HASH else {})
    if type_ is ExchangeType.DELAYED and _delayed_type(arguments) is None:
        raise PreconditionFailed(
            f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type, in {where}"
        )
    if REPLICATE in arguments and (fault := value_fault(REPLICATE, arguments[REPLICATE])) is not None:
        raise PreconditionFailed(f"invalid arg '{REPLICATE}' for {where}: {fault}")


def _check_hashed(arguments: Mapping[str, object]) -> None:
    by_header, by_property = arguments.get(HASH_HEADER), arguments.get(HASH_PROPERTY)
    if by_header is not None and by_property is not None:
        raise PreconditionFailed(f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive")
    if by_property is not None and by_property not in HASH_PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {by_property!s:.80}")
    if by_header is not None and not isinstance(by_header, str):
        raise PreconditionFailed(f"invalid type '{field_type(by_header)}' for arg '{HASH_HEADER}'")


def _delayed_type(arguments: Mapping[str, object]) -> ExchangeType | None:
    """The type as which a delayed-message exchange routes; None: it is not one of these."""
    try:
        found = ExchangeType(arguments.get(DELAYED_TYPE))
    except ValueError:
        return None
    return found if found is not ExchangeType.DELAYED else None


def check_binding(type_: ExchangeType, routing_key: str, arguments: Mapping[str, object]) -> None:
    """`type_`: as which the exchange routes. Raises PreconditionFailed for an unknown `x-match` value, and
    for a key that is no weight."""
    if type_ is ExchangeType.CONSISTENT_HASH and (fault := weight_fault(routing_key)) is not None:
        raise PreconditionFailed(fault)
    how = arguments.get("x-match", "all")
    if type_ is ExchangeType.HEADERS and how not in X_MATCH:
        raise PreconditionFailed(f"invalid x-match field value {how!r}; expected one of {', '.join(X_MATCH)}")


_MATCHERS: dict[ExchangeType, Callable[[], Matcher]] = {
    ExchangeType.DIRECT: DirectMatcher,
    ExchangeType.FANOUT: FanoutMatcher,
    ExchangeType.TOPIC: TopicMatcher,
    ExchangeType.HEADERS: HeadersMatcher,
    ExchangeType.CONSISTENT_HASH: ConsistentHashMatcher,
    ExchangeType.MODULUS_HASH: ModulusHashMatcher,
    ExchangeType.RANDOM: RandomMatcher,
}
_BY_MESSAGE = (ExchangeType.HEADERS, ExchangeType.FEDERATION_UPSTREAM, ExchangeType.RANDOM)
"""Types that route each message by itself, whatever its routing key."""
_ONE_KEY = (ExchangeType.CONSISTENT_HASH, ExchangeType.MODULUS_HASH, ExchangeType.RANDOM)
"""Types that take no notice of further routing keys."""
HASH_HEADER, HASH_PROPERTY = "hash-header", "hash-property"
HASH_PROPERTIES = ("correlation_id", "message_id", "timestamp")
DELAYED_TYPE = "x-delayed-type"
MAX_HOPS = "x-max-hops"
DOWNSTREAM_NAME, DOWNSTREAM_VHOST = "x-downstream-name", "x-downstream-vhost"
"""Arguments of x-federation-upstream: brokers that a message may come through, and who takes."""


class Exchange:
    """One exchange.

    - `bindings`: those with this exchange as source.
    - `bound`: it has had a binding (for auto-delete).
    - `routes_as`: its type, or that by which a delayed-message exchange routes.
    - `by_headers`: each message decides, and not its routing key alone.
    - `one_key`: further routing keys of a message do not count.
    - `hashed`: the argument that names what of a message is hashed, and its value; None: the routing key.
    - `alternate`: from its arguments, or from the policy `ruled_by`.
    """

    __slots__ = (
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "bound",
        "by_headers",
        "counts",
        "durable",
        "hashed",
        "internal",
        "matcher",
        "name",
        "one_key",
        "replicate",
        "routes_as",
        "ruled_by",
        "scope",
        "type",
        "vhost",
    )

    def __init__(self, declared: ExchangeDeclare) -> None:
        self.name = declared.name
        self.vhost = declared.vhost
        self.type = ExchangeType(declared.type)
        self.durable = declared.durable
        self.auto_delete = declared.auto_delete
        self.internal = declared.internal
        self.arguments = declared.arguments
        alternate = declared.arguments.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else None
        self.ruled_by: Policy | None = None
        self.replicate = declared.replicate
        self.scope = declared.scope
        self.bound = False
        self.counts = Counts()
        self.bindings: dict[BindingKey, Binding] = {}
        delayed = self.type is ExchangeType.DELAYED
        self.routes_as = (_delayed_type(self.arguments) or ExchangeType.FANOUT) if delayed else self.type
        self.hashed = self._hashed()
        self.by_headers = delayed or self.routes_as in _BY_MESSAGE or self.hashed is not None
        self.one_key = self.routes_as in _ONE_KEY
        upstream = self.routes_as is ExchangeType.FEDERATION_UPSTREAM
        self.matcher: Matcher = UpstreamMatcher(self.arguments) if upstream else _MATCHERS[self.routes_as]()

    def _hashed(self) -> tuple[str, str] | None:
        for key in (HASH_HEADER, HASH_PROPERTY):
            found = self.arguments.get(key)
            if self.routes_as is ExchangeType.CONSISTENT_HASH and isinstance(found, str):
                return key, found
        return None

    def keys(self, keys: Sequence[str], headers: Mapping[str, object], found: PropertyOf) -> Sequence[str]:
        """The keys by which a message is routed here. `keys`: its routing key, then the further ones."""
        if self.hashed is not None:
            how, name = self.hashed
            return (hash_input(headers.get(name) if how == HASH_HEADER else found(name)),)
        return keys[:1] if self.one_key else keys

    @property
    def delays(self) -> bool:
        """Whether it keeps messages for a while."""
        return self.type is ExchangeType.DELAYED

    def set_scope(self, scope: Scope, replicate: str) -> None:
        """Not while it serves: routes cache the scopes of their targets."""
        self.scope, self.replicate = scope, replicate

    @property
    def built_in(self) -> bool:
        return self.name in BUILT_IN

    @property
    def octets(self) -> int:
        """Approximate memory, without its bindings."""
        root = TOPIC_NODE if self.routes_as is ExchangeType.TOPIC else 0
        return EXCHANGE + root + of_text(self.name) + of_table(self.arguments)

    def add(self, binding: Binding) -> int:
        """Add a binding. Returns its approximate octets."""
        self.bound = True
        self.bindings[binding.key] = binding
        return binding.octets + self.matcher.add(binding)

    def remove(self, binding: Binding) -> int:
        """Remove a binding. Returns its approximate octets, or 0 if it was not there."""
        if self.bindings.pop(binding.key, None) is None:
            return 0
        return binding.octets + self.matcher.remove(binding)

    def declaration(self) -> ExchangeDeclare:
        return ExchangeDeclare(
            self.name,
            self.type.value,
            self.durable,
            self.auto_delete,
            self.internal,
            self.arguments,
            self.replicate,
            self.scope,
            self.vhost,
        )


def bound_marks(exchange: Exchange) -> list[Bind | Unbind]:
    """Records that tell backups that an exchange has been bound, for a binding that they do not get: the
    exchange is bound to itself and unbound."""
    mark = Binding(exchange, exchange, "", {})
    return [mark.bind_record(), mark.unbind_record()]


def built_in_exchanges(vhost: str) -> dict[str, Exchange]:
    """The exchanges that every virtual host has. They are in no definitions and no history."""
    return {
        name: Exchange(
            ExchangeDeclare(name, type_.value, True, False, name in INTERNAL, {}, "all", EVERYWHERE, vhost)
        )
        for name, type_ in BUILT_IN.items()
    }

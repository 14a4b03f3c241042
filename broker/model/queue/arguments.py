"""The optional arguments (`x-...`) of queues and consumers: checked on declaration, and read as rules. Pure.

The only module that knows their names, types and limits. It refuses what RabbitMQ refuses, with RabbitMQ's
texts (`rabbit_amqqueue:check_declare_arguments`), because clients and people know them. Unknown arguments are
kept and compared, and have no effect.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.errors import PreconditionFailed
from broker.model.history.recent_ids import LONGEST as LONGEST_WINDOW
from broker.model.history.recent_ids import MOST, Window, window_of
from broker.model.values import LEVELS, REPLICATE, Need, level_of

Arguments = Mapping[str, object]

LONGEST = 315_360_000_000
"""Maximum milliseconds of a TTL or an expiry: ten years, as in RabbitMQ since 3.12."""

MOST_PRIORITIES = 255
DELAYED_FOR = "x-delayed-for"
"""Argument of delay queues, and of no client's: the exchange whose messages wait there."""


class OverflowRule(enum.Enum):
    """What a full queue does."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


@dataclass(slots=True, frozen=True)
class QueueRules:
    """The rules of one queue. None: no such rule."""

    message_ttl: int | None = None
    """Milliseconds. 0: a message that cannot be delivered at once expires."""
    expires: int | None = None
    """Milliseconds without use, above 0."""
    max_length: int | None = None
    """Ready messages."""
    max_length_bytes: int | None = None
    """Octets of the bodies of ready messages."""
    overflow: OverflowRule = OverflowRule.DROP_HEAD
    dead_letter_exchange: str | None = None
    """The empty string is the default exchange."""
    dead_letter_routing_key: str | None = None
    """None: a message keeps its own routing key."""
    last_value_key: str | None = None
    """The header, or else the property, of which only the newest message for each value is kept."""
    group: str | None = None
    """The header, or else the property, by which messages are in groups."""
    shared_groups: bool = False
    """A group has its consumer only while that holds messages of it."""
    max_priority: int | None = None
    """1 to 255. None: no priorities."""
    delivery_limit: int | None = None
    """Maximum number of times that a message may come back from consumers; None: no limit."""
    consumer_timeout: int | None = None
    """Milliseconds that a client may keep a message unacknowledged; 0: any time. None: as the broker has
    it."""
    single_active: bool = False
    """Only the consumer that came first gets messages; the others wait."""
    confirm: Need | None = None
    """What the confirm of a persistent message waits for. None: as the node has it."""
    dedup: Window | None = None
    """A message whose id was enqueued within this window is not enqueued again."""
    by_due: bool = False
    """A delay queue: the message that expires first is the next."""

    @property
    def limited(self) -> bool:
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def dead_letters(self) -> bool:
        return self.dead_letter_exchange is not None


NO_RULES = QueueRules()


# -- checks of one value: RabbitMQ's text for a fault, or None

_AMQP_NAMES = {
    "bool": "bool", "int": "signedint", "str": "longstr", "bytes": "longstr", "float": "double",
    "Float32": "float", "Timestamp": "timestamp", "datetime": "timestamp", "Decimal": "decimal",
    "NoneType": "void", "dict": "table", "list": "array", "tuple": "array",
}  # fmt: skip


def field_type(value: object) -> str:
    """RabbitMQ's name for the type of a table field."""
    name = type(value).__name__
    return _AMQP_NAMES.get(name, name)


def _whole(value: object) -> str | None:
    """Accepts an integer of any width, but no boolean or timestamp."""
    return None if type(value) is int else f'"expected integer, got {field_type(value)}"'


def _not_negative(value: object) -> str | None:
    if type(value) is int and value < 0:
        return f"{{value_negative,{value}}}"
    return _whole(value)


def _duration(value: object) -> str | None:
    if type(value) is int and value > LONGEST:
        return f"{{value_too_large,{value}}}"
    return _not_negative(value)


def _expiry(value: object) -> str | None:
    return "{value_zero,0}" if type(value) is int and value == 0 else _duration(value)


def _priorities(value: object) -> str | None:
    if type(value) is int and value > MOST_PRIORITIES:
        return f"{{max_value_exceeded,{value}}}"
    return _not_negative(value)


def _boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{field_type(value)}}}"


def _text(value: object) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{field_type(value)}}}"


def _name(value: object) -> str | None:
    """Accepts an exchange name or a routing key, which is sent as a short string."""
    if not isinstance(value, str):
        return _text(value)
    try:
        octets = len(value.encode())
    except UnicodeEncodeError:
        return '"not UTF-8"'
    return None if octets <= 255 else f'"longer than 255 octets: {octets}"'


def _header(value: object) -> str | None:
    """Accepts the name of a header or a property."""
    return '"empty"' if value == "" else _name(value)


def _overflow(value: object) -> str | None:
    known = isinstance(value, str) and value in {rule.value for rule in OverflowRule}
    return _text(value) or (None if known else "invalid_overflow")


def _one_of(what: str, *known: object) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        if type(value) is not type(known[0]):
            return f"{{unacceptable_type,{field_type(value)}}}"
        return None if value in known else f"\"unsupported queue {what} '{value!s:.60}'\""

    return check


def _at_least_one(value: object) -> str | None:
    return "{value_zero,0}" if type(value) is int and value == 0 else _not_negative(value)


def _word(fault: str, *known: str) -> Callable[[object], str | None]:
    """Accepts the `known` words. `fault`: RabbitMQ's text for any other word."""
    return lambda value: _text(value) or (None if value in known else fault)


def _level(value: object) -> str | None:
    """Checks `x-replicate`, which RabbitMQ does not have."""
    return None if level_of(value) is not None else f"{value!r:.60} is not one of {', '.join(LEVELS)}"


def _window(value: object) -> str | None:
    """Checks `x-dedup-window`, which RabbitMQ does not have."""
    if window_of(value) is not None:
        return None
    if not isinstance(value, str) and type(value) is not int:
        return f"{{unacceptable_type,{field_type(value)}}}"
    return (
        f"{value!r:.60} is not a number of ids from 1 to {MOST}, alone or with a time of at most "
        f"{LONGEST_WINDOW // 86_400_000} days (10000, 10000/90s, 10000/10m, 10000/12h)"
    )


BROWSE = "x-browse"
LAST_VALUE = "x-last-value-key"
DEDUP_WINDOW = "x-dedup-window"
"""Of our own: see `recent_ids`."""
GROUP, SHARED_GROUPS = "x-message-group", "x-message-group-shared"
"""Of our own, of consumers and of queues, as in Qpid."""
REPLICATION_ID = "x-replication-id"
"""Consumer argument that requests the header of the same name, with `<queue uuid hex>:<epoch>:<sequence>`."""

CONFIRMED_ONLY = "x-confirmed-only"
"""Consumer argument: messages come only once they could be confirmed (`until_confirmed`)."""

QUEUE_TYPES = ("classic", "quorum", "rabbit_classic_queue", "rabbit_quorum_queue")
"""A quorum queue is accepted because queues of a pair are replicated. Streams are not supported."""

_CHECKS: Mapping[str, Callable[[object], str | None]] = {
    "x-queue-type": _one_of("type", *QUEUE_TYPES),
    "x-expires": _expiry,
    "x-message-ttl": _duration,
    "x-dead-letter-exchange": _name,
    "x-dead-letter-routing-key": _name,
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-priority": _priorities,
    "x-overflow": _overflow,
    "x-queue-mode": _one_of("mode", "default", "lazy"),
    "x-queue-version": _one_of("version", 1, 2),
    "x-single-active-consumer": _boolean,
    "x-delivery-limit": _whole,
    "x-consumer-timeout": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-quorum-initial-group-size": _at_least_one,
    "x-dead-letter-strategy": _word("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-queue-leader-locator": _word(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
    REPLICATE: _level,
    LAST_VALUE: _header,
    GROUP: _header,
    SHARED_GROUPS: _boolean,
    DEDUP_WINDOW: _window,
}

WHOLE_NUMBERS = frozenset((
    "x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-queue-version",
    "x-delivery-limit", "x-consumer-timeout", "x-max-in-memory-length", "x-max-in-memory-bytes",
    "x-quorum-initial-group-size",
))  # fmt: skip
"""Arguments with integer values."""

_OF_A_CONSUMER: Mapping[str, Callable[[object], str | None]] = {
    "x-priority": _whole,
    "x-cancel-on-ha-failover": _boolean,
    BROWSE: _boolean,
    REPLICATION_ID: _boolean,
    CONFIRMED_ONLY: _boolean,
}

_STREAMS = frozenset(
    ("x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes", "x-initial-cluster-size")
)
_FOREIGN = {
    "classic": _STREAMS | {
        "x-dead-letter-strategy", "x-quorum-initial-group-size", "x-max-in-memory-length",
        "x-max-in-memory-bytes",
    },
    "quorum": _STREAMS | {"x-max-priority", "x-queue-mode", "x-queue-version"},
}  # fmt: skip
"""Arguments that RabbitMQ refuses for the queue type. Here a delivery limit is allowed for both types."""


# -- checks of a whole table


def value_fault(argument: str, value: object) -> str | None:
    """Why the value of a known argument is refused, in RabbitMQ's words; None if it is valid."""
    return _CHECKS[argument](value)


def fault_of(arguments: Arguments) -> tuple[str, str] | None:
    """The first refused argument, and the end of the error text; None if all are valid."""
    for key, check in _CHECKS.items():
        if key in arguments and (fault := check(arguments[key])) is not None:
            return key, f": {fault}"
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        return "x-dead-letter-routing-key", ": routing_key_but_no_dlx_defined"
    kinds = [key for key in (LAST_VALUE, GROUP, "x-max-priority") if key in arguments]
    if len(kinds) > 1:
        return kinds[0], f" of a queue with {kinds[1]}"
    type_ = str(arguments.get("x-queue-type", "classic")).removeprefix("rabbit_").removesuffix("_queue")
    for key in sorted(_FOREIGN[type_].intersection(arguments)):
        return key, f" of queue type {type_}"
    return None


def check_queue_arguments(arguments: Arguments, where: str) -> None:
    """Raises PreconditionFailed for an invalid argument. `where`: for example `queue 'q' in vhost '/'`."""
    if DELAYED_FOR in arguments:
        raise PreconditionFailed(f"invalid arg '{DELAYED_FOR}' for {where}: it is the broker's own")
    fault = fault_of(arguments) if arguments else None
    if fault is not None:
        raise PreconditionFailed(f"invalid arg '{fault[0]}' for {where}{fault[1]}")


def check_consumer_arguments(arguments: Arguments, where: str) -> None:
    """Raises PreconditionFailed for an invalid consumer argument
    (`rabbit_amqqueue:check_consume_arguments`)."""
    for key, check in _OF_A_CONSUMER.items():
        if key in arguments and (fault := check(arguments[key])) is not None:
            raise PreconditionFailed(f"invalid arg '{key}' for {where}: {fault}")


def priority_of(arguments: Arguments) -> int:
    """The priority of a consumer; 0 without one."""
    priority = arguments.get("x-priority")
    return priority if type(priority) is int else 0


def rules_of(arguments: Arguments) -> QueueRules:
    """Rules from arguments. Invalid values are ignored, because earlier versions stored them unchecked."""
    if not arguments:
        return NO_RULES
    exchange = _text_of(arguments, "x-dead-letter-exchange")
    delayed_for = arguments.get(DELAYED_FOR)
    if isinstance(delayed_for, str):
        exchange = delayed_for
    priorities = _number_of(arguments, "x-max-priority")
    returns = _number_of(arguments, "x-delivery-limit")
    return QueueRules(
        message_ttl=_number_of(arguments, "x-message-ttl"),
        expires=_number_of(arguments, "x-expires"),
        max_length=_number_of(arguments, "x-max-length"),
        max_length_bytes=_number_of(arguments, "x-max-length-bytes"),
        overflow=OverflowRule(_text_of(arguments, "x-overflow") or OverflowRule.DROP_HEAD.value),
        dead_letter_exchange=exchange,
        dead_letter_routing_key=(
            None if exchange is None else _text_of(arguments, "x-dead-letter-routing-key")
        ),
        group=_text_of(arguments, GROUP),
        shared_groups=arguments.get(SHARED_GROUPS) is True,
        last_value_key=_text_of(arguments, LAST_VALUE),
        max_priority=None if priorities is None else max(1, priorities),  # as in RabbitMQ
        delivery_limit=None if returns is None or returns < 0 else returns,
        consumer_timeout=_number_of(arguments, "x-consumer-timeout"),
        single_active=arguments.get("x-single-active-consumer") is True,
        dedup=window_of(arguments.get(DEDUP_WINDOW)),
        by_due=DELAYED_FOR in arguments,
    )


def _number_of(arguments: Arguments, key: str) -> int | None:
    value = arguments.get(key)
    return value if isinstance(value, int) and _CHECKS[key](value) is None else None


def _text_of(arguments: Arguments, key: str) -> str | None:
    value = arguments.get(key)
    return value if isinstance(value, str) and _CHECKS[key](value) is None else None

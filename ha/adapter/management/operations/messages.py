"""Messages: get some from a queue, publish one to an exchange. For a look or a test, not for applications."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Any

from broker.amqp091.codec.content import OCTET, PROPERTIES, TABLE, TEXT, read_content, write_content
from broker.amqp091.codec.properties import headers_of, without_bcc
from broker.amqp10.conversion import as_0_9_1, is_stored
from broker.authorization import demand, demand_copies, demand_topic
from broker.errors import PreconditionFailed, ResourceError
from broker.model.octets import as_octets, is_unicode
from broker.model.statistics import AMQP091
from broker.model.values import Need, Reason, need_of
from broker.model.vhost.turns import publish_in_turns
from broker.model.vhost.windows import keys_of
from ha.adapter.management.definitions_view import to_json
from ha.adapter.management.operations.arguments import Fault
from ha.adapter.management.operations.asker import asker_of
from ha.adapter.management.operations.outcome import FEW, WAIT, Outcome, once_returned

if TYPE_CHECKING:
    from broker.amqp091.codec.content import Framed
    from broker.engine import Broker
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue
    from broker.model.routing.publish_route import PublishRoute
    from broker.model.steps import Steps
    from broker.model.vhost.enqueueing import Published
    from ha.adapter.management.operations.arguments import Arguments
    from ha.adapter.management.operations.asker import Asker

KEEP, KEEP_COUNTED, TAKE, REJECT = MODES = (
    "ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false",
)  # fmt: skip
"""What becomes of messages that were got, in RabbitMQ's words. `reject_requeue_true` counts against the
queue's delivery limit; `reject_requeue_false` makes dead letters."""
ENCODINGS = ("auto", "base64")
"""`auto`: a string if the body is UTF-8."""
MOST = 10_000
"""Messages in one answer."""
ROOM = 2 << 20
"""Octets of messages in one answer. The last ones may exceed it."""
_AT_ONCE, _ROOM_AT_ONCE = 200, 256 << 10
"""Messages, and octets of bodies, that are got in one piece."""
_AROUND = 300
"""Octets of a message in JSON, besides its body."""
LARGEST = 4 << 20
"""Octets of one body in an answer."""
_PER_MESSAGE = 60
"""Steps for getting a message."""
_OCTETS_A_STEP = 512


def get(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `count`, `ackmode`, `encoding`, `truncate` (octets of each body, or absent). Answers
    with `messages`, as RabbitMQ's API has them."""
    vhost, name = args.vhost(), args.filled("name")
    count, mode = args.number("count", 1, MOST, 1), args.choice("ackmode", MODES, KEEP)
    encoding = args.choice("encoding", ENCODINGS, "auto")
    most = args.number("truncate", 0, 1 << 40, LARGEST + 1)
    args.end()
    asker = asker_of(broker, user, vhost)
    demand(asker, "read", "queue", name)
    queue = asker.vhost.queue(name, owner=asker)
    yield from once_returned(queue)
    asker.vhost.shared.used(asker.vhost.queue(name, owner=asker))
    taken: list[Entry] = []
    found: list[dict[str, Any]] = []
    octets = 0
    while len(taken) < count and octets < ROOM:
        some = _taken(queue, count - len(taken), most, begins=not taken)
        if not some:
            break
        found += [shown_message(entry, encoding, most) for entry in some]
        octets += sum(min(_size(entry), most) + _AROUND for entry in some)
        taken += some
        yield FEW + _PER_MESSAGE * len(some) + octets // _OCTETS_A_STEP
    for counts in (queue.counts, asker.vhost.counts[AMQP091].ended):
        for entry in taken:
            counts.got(False, entry[1].redelivered)
        counts.ack += len(taken) if mode == TAKE else 0
    for at, message in enumerate(found, 1):
        message["message_count"] = queue.message_count + len(found) - at
    return Outcome((yield from _settle(queue, taken, mode)), {"messages": found})


def _taken(queue: Queue, count: int, most: int, *, begins: bool) -> list[Entry]:
    """Some messages from the head, unacknowledged from now on. Raises PreconditionFailed, with nothing taken,
    if the very first one (`begins`) is too large to be shown."""
    taken: list[Entry] = []
    octets = 0
    while len(taken) < min(count, _AT_ONCE) and octets < _ROOM_AT_ONCE and not queue.deleted:
        if (entry := queue.pop(no_ack=False)) is None:
            break
        shown = min(_size(entry), most)
        if shown > LARGEST:
            queue.requeue([entry], failed=False)
            if begins and not taken:
                raise PreconditionFailed(
                    f"the message has {_size(entry)} octets, and an answer has room for {LARGEST}: ask for "
                    "fewer octets of each body ('truncate'), or consume it"
                )
            break
        taken.append(entry)
        octets += shown
    return taken


def _size(entry: Entry) -> int:
    """Octets of the body."""
    return int.from_bytes(entry[2][11:19], "big")


def _settle(queue: Queue, taken: list[Entry], mode: str) -> Steps[Need]:
    """Do with the messages what `mode` says. Returns what the answer waits for."""
    if mode in (KEEP, KEEP_COUNTED):
        queue.requeue(taken, failed=mode == KEEP_COUNTED)
        return Need.NONE
    reason = Reason.ACKED if mode == TAKE else Reason.REJECTED
    dies = reason is Reason.REJECTED and queue.rules.dead_letters
    made: list[bool] = []
    if not queue.drop(taken, reason, after=lambda: made.append(True)):
        while not made and not queue.deleted:
            yield WAIT
    queue.history.gather()
    return Need.DURABLE if dies else need_of(queue.content_scope)


def shown_message(entry: Entry, encoding: str, most: int) -> dict[str, Any]:
    """One message, with `most` octets of its body."""
    _, envelope, raw = entry
    if is_stored(raw):
        raw = as_0_9_1(raw)
    content = read_content(without_bcc(raw) if envelope.blind else raw)
    body = content.body[:most]
    text = _text(body, whole=len(body) == len(content.body)) if encoding == "auto" else None
    return {
        "payload_bytes": len(content.body), "redelivered": envelope.redelivered,
        "exchange": envelope.exchange, "routing_key": _key(envelope.routing_key),
        "properties": {name: to_json(value) for name, value in content.properties.items()},
        "payload": b64encode(body).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }  # fmt: skip


def _text(body: bytes, *, whole: bool) -> str | None:
    """The body as text, if it is UTF-8. A character that was cut in two is left out."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        cut = not whole and len(body) - error.start < 4 and error.reason == "unexpected end of data"
        return body[: error.start].decode() if cut else None


def _key(key: str) -> Any:
    return key if is_unicode(key) else to_json(as_octets(key))


# -- publish


def publish(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `exchange`, `routing_key`, `payload`, `payload_encoding`, `properties`. Answers whether the
    message was `routed`: also False if a full queue refused it (`rejected`)."""
    vhost, exchange, key = args.vhost(), args.name("exchange", ""), args.key("routing_key", "")
    body = _body(args.text("payload"), args.choice("payload_encoding", ("string", "base64"), "string"))
    properties = args.table("properties")
    args.end()
    asker = asker_of(broker, user, vhost)
    _check_properties(properties, asker)
    framed = _framed(properties, body, broker)
    if len(body) > broker.settings.message_max:
        raise PreconditionFailed(f"message size {len(body)} is larger than {broker.settings.message_max}")
    if broker.pausing:
        raise ResourceError(f"publishers are paused: {broker.block_reason}")
    demand(asker, "write", "exchange", exchange)
    demand_topic(asker, "write", exchange, key)
    if framed.checked.copies:
        demand_copies(asker, exchange, headers_of(framed.raw))
    place = asker.vhost
    route = yield from place.find(exchange, key)
    if not route.queues:
        place.check_published(exchange, key)
    if route.needs_headers or framed.checked.copies:
        route = yield from place.find_by_headers(exchange, key, headers_of(framed.raw), framed.raw)
    if route.windows and (fault := keys_of(place.removals.format, [framed.raw])[1]) is not None:
        raise fault
    _count(asker, route)
    accepted, need = yield from _published(broker, asker, route, framed)
    routed = bool(route.queues) and accepted
    rejected = {} if accepted else {"rejected": True}
    return Outcome(need, {"routed": routed, **rejected})


def _count(asker: Asker, route: PublishRoute) -> None:
    """As one message of a client, for statistics."""
    totals = asker.vhost.counts[AMQP091].ended
    totals.publish += 1
    totals.routed += len(route.queues)
    if not route.queues:
        totals.return_unroutable += 1
    route.counted.publish += 1
    route.counted.routed += len(route.queues)


def _published(broker: Broker, asker: Asker, route: PublishRoute, framed: Framed) -> Steps[tuple[bool, Need]]:
    """Publish to all queues of the route. Returns whether all accepted it, and what the answer waits for."""
    kind = framed.checked
    reports: list[Published] = []

    def publish_some(part: PublishRoute, some: list[bytes], _at: int) -> Published:
        return asker.vhost.publish(
            part, some, persistent=kind.persistent, channel=1, largest_frame=framed.largest,
            expiration=kind.expiration, priority=kind.priority, blind=kind.blind, by_id=True,
        )  # fmt: skip

    def report(done: Published, _at: int, _count: int) -> None:
        reports.append(done)

    yield from publish_in_turns(route, [framed.raw], broker.settings.share, publish_some, report)
    return all(done.accepted for done in reports), max((done.need for done in reports), default=Need.NONE)


def _framed(properties: dict[str, Any], body: bytes, broker: Broker) -> Framed:
    try:
        return write_content(properties, body, broker.settings.frame_max)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise Fault(f"'properties': {error}") from None


def _check_properties(properties: dict[str, Any], asker: Asker) -> None:
    """Raises Fault, PreconditionFailed."""
    for name, value in properties.items():
        kind = PROPERTIES.get(name)
        if kind is None:
            raise Fault(f"'properties': there is no {name[:60]!a}; there are {', '.join(PROPERTIES)}")
        right: type = {TEXT: str, TABLE: dict}.get(kind, int)
        if not isinstance(value, right) or isinstance(value, bool):
            what = {TEXT: "a string", TABLE: "an object", OCTET: "a number from 0 to 255"}
            raise Fault(f"'properties': {name} must be {what.get(kind, 'a number of seconds since 1970')}")
    user = properties.get("user_id")
    if user is not None and asker.user and user != asker.user:
        raise PreconditionFailed(
            f"user_id property set to '{user[:60]}' but authenticated user was '{asker.user}'"
        )


def _body(payload: str, encoding: str) -> bytes:
    """Raises Fault."""
    if encoding == "string":
        return payload.encode()
    try:
        return b64decode(payload, validate=True)
    except (NotBase64, ValueError):
        raise Fault("'payload' is not base64") from None

"""What was said in a run, read off the wire: the bytes of every connection as events for a reader.

Owner: `story`. Fed by the network's tap while a run is told again. Cuts frames by itself; what nodes say to
each other it reads with the core's own codecs, since it judges nothing. What cannot be read is told as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.model.history.record_codec import decode_records
from broker.model.history.records import (
    Bind,
    Dequeue,
    EnqueueRun,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    RawRun,
    Record,
    Unbind,
)
from ha.core.backup.coming_contents import ComingContents
from ha.core.primary.consistency_checkpoints import parse_checkpoint
from ha.core.record.in_sync_record import record_from_json
from ha.core.wire.known_targets import HeardTargets
from ha.core.wire.link import (
    Ack,
    BatchHead,
    Frame,
    Method,
    StreamDecoder,
    parse_ack,
    parse_batch,
    parse_begin,
    parse_position,
    parse_queue,
)
from ha.core.wire.queue_snapshot import HaveDecoder, decode_piece, total
from tests.ha.telling import epoch_text, ids_text, readable, record_line
from tests.simulation.clients import wire
from tests.simulation.harness.inspection import key_of

PREAMBLE = wire.PREAMBLE
EXTENSION = 250
EVENT = "an event"
"""Of a message that no client has sent, as of `inspection.key_of`."""
POINTS = "consistency checkpoints"
REGISTER = "register"
"""Host of the authority that keeps the record."""
CIB = "CIB"
"""Lane of the authority under `pacemaker`: the nodes' own CIBs."""


@dataclass(slots=True)
class Item:
    """One thing that an event speaks of: a message, a queue, or both."""

    text: str
    keys: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()


@dataclass(slots=True)
class Event:
    """`group`: how many of its like are counted when they are folded; empty for one that is never folded.
    `news` is set where it says more than its like did before."""

    at: float
    kind: str
    """say, log, does, status, life, around, fault, or end."""
    source: str
    text: str
    target: str = ""
    items: list[Item] = field(default_factory=list)
    group: str = ""
    news: bool = False
    ack: Ack | None = None
    position: tuple[int, int] | None = None
    stream: str = ""
    held: bool = False
    """Said to somebody whom nothing reaches, or who reads nothing, at that time."""
    last: bool = False
    """A node was about to say it when a checker objected."""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*(item.keys for item in self.items))

    @property
    def queues(self) -> frozenset[str]:
        return frozenset().union(*(item.queues for item in self.items))


Tell = Callable[[Event], None]


@dataclass(slots=True)
class Names:
    """What the stream has taught so far: queues by UUID, messages by id."""

    queues: dict[bytes, str] = field(default_factory=dict)
    messages: dict[tuple[bytes, int, int], str] = field(default_factory=dict)

    def queue(self, uuid: bytes | None) -> str:
        return self.queues.get(uuid or b"", "?") if uuid else "?"


class Ear:
    """Hears every connection; `tell` is given each event."""

    def __init__(self, now: Callable[[], float], tell: Tell) -> None:
        self._now = now
        self._tell = tell
        self.names = Names()
        self._talks: dict[str, ClientTalk | LinkTalk] = {}
        self._cutters: dict[tuple[str, str], Cutter] = {}

    def hear(self, stream: str, source: str, target: str, data: bytes) -> None:
        """The network's tap: one connection's bytes, as they are handed to the kernel of `source`."""
        if REGISTER in (source, target):
            return  # told by those who ask it
        talk = self._talks.get(stream)
        if talk is None:
            kind = LinkTalk if stream.startswith("link-") else ClientTalk
            talk = self._talks[stream] = kind(stream, source, self.names)
        cutter = self._cutters.setdefault((stream, source), Cutter())
        for number, payload in cutter.feed(data):
            try:
                for event in talk.frame(source, target, number, payload):
                    event.at, event.source, event.target, event.stream = self._now(), source, target, stream
                    self._tell(event)
            except Exception as error:  # a mutant may say what no decoder takes: tell the rest all the same
                text = f"(what nobody can read: {error})"
                self._tell(Event(self._now(), "say", source, text, target, stream=stream))


class Cutter:
    """One direction of a connection, cut into frames. The preamble is skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Type and payload of each whole frame."""
        data = self._rest + data
        at = 0
        if not self._begun and len(data) >= 8:
            self._begun = True
            at = 8 if data.startswith(b"AMQP") else 0
        while self._begun and len(data) - at >= 7:
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if len(data) - at < size + 8:
                break
            yield data[at], data[at + 7 : at + 7 + size]
            at += size + 8
        self._rest = data[at:]


def said(text: str, *items: Item, group: str = "", news: bool = False) -> Event:
    """An event whose when and who the Ear fills in."""
    return Event(0.0, "say", "", text, items=list(items), group=group, news=news)


class ClientTalk:
    """One connection of a client or of the operator."""

    def __init__(self, stream: str, dialer: str, names: Names) -> None:
        self._dialer = dialer
        self._published = 0
        self._waiting: dict[int, str] = {}
        """Publish tags that are not confirmed yet."""
        self._delivered: dict[int, str] = {}
        self._consumed: dict[str, str] = {}
        """Queues by consumer tag."""
        self._got = ""
        self._command = ""
        self._part: list[str] = []
        """Keys of what was published and settled since the last end of a transaction."""
        self._content: tuple[str, wire.Arguments] | None = None

    def frame(self, source: str, target: str, kind: int, payload: bytes) -> Iterator[Event]:
        if kind == wire.METHOD:
            if int.from_bytes(payload[:2], "big") == EXTENSION:
                yield from self._management(int.from_bytes(payload[2:4], "big"), json.loads(payload[8:]))
                return
            item = wire.Parser().feed(wire.frame(kind, 0, payload))[0]
            if isinstance(item, wire.Method):
                yield from self._method(source == self._dialer, item.name, item.arguments)
        elif kind == wire.BODY and self._content is not None:
            (name, arguments), self._content = self._content, None
            end = payload.find(b">")
            key = payload[1:end].decode(errors="replace") if payload.startswith(b"<") else EVENT
            yield self._message(name, arguments, key)

    def _method(self, by_client: bool, name: str, arguments: wire.Arguments) -> Iterator[Event]:
        match name:
            case "basic.publish" | "basic.deliver" | "basic.get-ok" | "basic.return":
                self._content = name, arguments
            case "basic.ack" | "basic.nack" | "basic.reject":
                settle = self._settled if by_client else self._confirmed
                yield settle(name, arguments)
            case "basic.consume":
                self._consumed[arguments["tag"]] = arguments["queue"]
                yield said(name, _queue(arguments["queue"]), group="subscriptions")
            case "basic.consume-ok":
                yield said(name, _queue(self._consumed.get(arguments["tag"], "")), group="answers")
            case "basic.get":
                self._got = arguments["queue"]
                yield said(name, _queue(self._got), group="gets")
            case "connection.open-ok":
                yield said("lets it in", group="connections")
            case "connection.close":
                code = arguments["code"]
                text = (
                    "closes its connection"
                    if code == 200
                    else f"closes: {code} {readable(arguments['text'])}"
                )
                yield said(text, group="connections")
            case "channel.close":
                yield said(f"closes the channel: {arguments['code']} {arguments['text']}")
            case _ if name.split(".")[0] in ("queue", "exchange"):
                named = [str(arguments[n]) for n in ("queue", "exchange") if arguments.get(n)]
                yield said(" ".join([name, *named]), *map(_queue, named), group="definitions")
            case _ if name.split(".")[0] == "tx":
                yield said(name, *(Item(key, frozenset({key})) for key in self._part), group="transactions")
                if name in ("tx.commit-ok", "tx.rollback-ok"):
                    self._part = []

    def _message(self, name: str, arguments: wire.Arguments, key: str) -> Event:
        if name == "basic.publish":
            self._published += 1
            self._waiting[self._published] = key
            self._part.append(key)
            to = arguments["exchange"] or arguments["key"]
            return said(f"publish to {to}", Item(key, frozenset({key})), group="publishes")
        again = ", redelivered" if arguments.get("redelivered") else ""
        if name == "basic.return":
            return said("return", Item(key, frozenset({key})), group="returns")
        queue = self._consumed.get(arguments.get("consumer", ""), self._got)
        self._delivered[arguments["tag"]] = key
        item = Item(f"{key}{again}", frozenset({key}), frozenset({queue}))
        return said(f"deliver from {queue}", item, group="deliveries")

    def _confirmed(self, name: str, arguments: wire.Arguments) -> Event:
        tag, multiple = arguments["tag"], arguments["multiple"]
        keys = [self._waiting.pop(t) for t in sorted(self._waiting) if t == tag or (multiple and t < tag)]
        items = [Item(key, frozenset({key})) for key in keys]
        return said("confirm" if name == "basic.ack" else "nack", *items, group="confirms")

    def _settled(self, name: str, arguments: wire.Arguments) -> Event:
        tag, multiple = arguments["tag"], arguments.get("multiple")
        tags = [t for t in self._delivered if t == tag or (multiple and t < tag)]
        items = [Item(key, frozenset({key})) for key in (self._delivered.pop(t) for t in tags)]
        self._part += [key for item in items for key in item.keys]
        word = name.removeprefix("basic.") + (", requeue" if arguments.get("requeue") else "")
        return said(word, *items, group="acks of consumers")

    def _management(self, method: int, document: dict[str, Any]) -> Iterator[Event]:
        if method == Method.MANAGE:
            self._command = document["command"]
            args = document.get("args") or {}
            more = (
                ", force-lossy" if args.get("force_lossy") else f" to {args['to']}" if args.get("to") else ""
            )
            text = f"{self._command}{more}"
        else:
            text = f"{'ok' if document['ok'] else 'refused'}: {readable(document['reason'])}"
        yield said(text, group="" if self._command in ("promote", "demote", "switchover") else "questions")


def _queue(name: str) -> Item:
    return Item("", queues=frozenset({name}))


class LinkTalk:
    """One link: a backup dials, its primary answers."""

    def __init__(self, stream: str, dialer: str, names: Names) -> None:
        self._dialer = dialer
        self._names = names
        self._decoder = StreamDecoder(Frame)
        self._contents = ComingContents()
        self._targets = HeardTargets()
        self._have = HaveDecoder()
        self._hellos: dict[bool, tuple[object, ...]] = {}
        self._last_ack: Ack | None = None

    def frame(self, source: str, target: str, kind: int, payload: bytes) -> Iterator[Event]:
        if kind != wire.METHOD:
            return
        if int.from_bytes(payload[:2], "big") != EXTENSION:
            item = wire.Parser().feed(wire.frame(kind, 0, payload))[0]
            if isinstance(item, wire.Method) and item.name == "connection.close":
                yield said(f"closes the link: {item.arguments['code']} {readable(item.arguments['text'])}")
            return
        method, body = int.from_bytes(payload[2:4], "big"), payload[8:]
        match method:
            case Method.HELLO | Method.HELLO_OK:
                yield self._hello(method == Method.HELLO, json.loads(body))
            case Method.HAVE:
                self._have.feed(body)
            case Method.JOIN:
                yield self._join(json.loads(body))
            case Method.JOIN_OK:
                yield _join_ok(json.loads(body))
            case Method.ACK:
                yield self._ack(parse_ack(body))
            case Method.DATA:
                for frame, content in self._decoder.feed(body):
                    yield from self._stream(frame, content)
            case Method.HANDOVER:
                notice = json.loads(body)
                position, off = notice["position"], notice["off"]
                soon = "hands over soon" if off is None else f"does not hand over: {off}"
                yield said(soon if position is None else f"hands over at {position[1]}", news=True)
            case Method.FAREWELL:
                yield said("stops, and need not be waited for", news=True)
            case Method.EXCLUDED:
                notice = json.loads(body)
                yield said(
                    f"excluded by revision {notice['record'].get('revision')}: {notice.get('reason')}",
                    news=True,
                )

    def _hello(self, asks: bool, document: dict[str, Any]) -> Event:
        record = document.get("record")
        shown = (
            document["status"],
            document["epoch"],
            document.get("promoting"),
            record and record["revision"],
        )
        telling = bool(document["epoch"]) or bool(document.get("promoting"))
        news, self._hellos[asks] = telling and self._hellos.get(asks) != shown, shown
        text = (
            f"{'hello' if asks else 'hello-ok'}: {document['status']}, epoch {epoch_text(document['epoch'])}"
        )
        if document.get("promoting"):
            text += ", being promoted"
        return said(text, group="hellos", news=news)

    def _join(self, document: dict[str, Any]) -> Event:
        held = self._have.whole()
        self._have = HaveDecoder()
        queues = ", ".join(
            f"{self._names.queue(uuid)} ({ids_text(ids)})" for uuid, ids in held.items() if total(ids)
        )
        empty = f"{len(held)} empty queues" if held else "nothing"
        text = f"join, from epoch {epoch_text(document['epoch'])}, holding {queues or empty}"
        return said(text, news=True)

    def _ack(self, ack: Ack) -> Event:
        last, self._last_ack = self._last_ack, ack
        event = said(f"ack: applied {ack.applied.n}, durable {ack.durable.n}", group="acks")
        if ack.complete and not (last and last.complete):
            event.text += ", copy complete"
            event.news = True
        if last is not None and ack.record > last.record:
            event.text += f", record {epoch_text(ack.record.epoch)}.{ack.record.revision} on disk"
            event.news = True
        event.ack = ack
        return event

    # -- the stream

    def _stream(self, frame: Frame, body: bytes) -> Iterator[Event]:
        match frame:
            case Frame.BATCH:
                yield self._batch(parse_batch(body))
            case Frame.BATCH_OF_CONTENTS:
                yield self._batch(self._contents.batch(body))
            case Frame.BATCH_OF_TARGETS:
                yield self._batch(self._targets.batch(body))
            case Frame.DEFINITIONS:
                position, rest = parse_position(body)
                items = [item for record in decode_records(rest) for item in self._record(record)]
                shown = any(item.text for item in items)
                yield said(f"definitions of {position.n}", *items, group="definitions", news=shown)
            case Frame.DEFINED:
                position, _ = parse_position(body)
                yield said(f"definitions are whole; history goes on from {position.n}", news=True)
            case Frame.CONTENT:
                self._contents.piece(body)
                yield said("a piece of a message", group="pieces of messages")
            case Frame.CONTENT_GONE:
                self._contents.gone(body)
                yield said("that message is not published", group="pieces of messages")
            case Frame.QUEUE_BEGIN:
                uuid, live_from = parse_begin(body)
                name = self._names.queue(uuid)
                item = Item("", queues=frozenset({name}))
                yield said(f"snapshot of {name}, up to id {live_from - 1}", item, group="snapshots")
            case Frame.QUEUE_RUNS:
                uuid, rest = parse_queue(body)
                upto, ids, records = decode_piece(rest)
                items = [item for record in decode_records(records) for item in self._record(record)]
                name = self._names.queue(uuid)
                what = f"of {name} up to {epoch_text(upto[0])}:{upto[1]} keep {ids_text(ids)}"
                what += f", fetched{'' if items else ': nothing'}"
                yield said(what, *items, _queue(name), group="snapshot pieces")
            case Frame.QUEUE_END:
                uuid, _ = parse_queue(body)
                name = self._names.queue(uuid)
                yield said(
                    f"snapshot of {name} is whole", Item("", queues=frozenset({name})), group="snapshots"
                )
            case Frame.GUARD:
                position, _ = parse_position(body)
                yield said(f"guard: from after {position.n} on confirms wait for you", news=True)
            case Frame.RECORD:
                record = record_from_json(json.loads(body))
                yield said(record_line(record), news=True)
            case Frame.CHECKPOINT:
                yield said(f"consistency checkpoint {parse_checkpoint(body)[0]}", group=POINTS)

    def _batch(self, head: BatchHead) -> Event:
        items = [item for record in decode_records(head.payload) for item in self._record(record)]
        event = said(f"batch {head.position.n}", *items, group="batches")
        event.position = head.position
        return event

    def _record(self, record: Record) -> Iterator[Item]:
        names = self._names
        match record:
            case EnqueueRun():
                yield from self._enqueue(record)
            case Dequeue():
                queue = names.queue(record.queue)
                for first, last in record.ranges:
                    for sequence in range(first, last + 1):
                        key = names.messages.get((record.queue, record.epoch, sequence), "?")
                        text = f"{key} leaves {queue} ({record.reason.ledger_name})"
                        yield Item(text, frozenset({key}), frozenset({queue}))
            case QueueDeclare():
                names.queues[record.uuid] = record.name
                yield Item(f"declare {record.name}", queues=frozenset({record.name}))
            case QueueDelete():
                yield Item(f"delete {record.name}", queues=frozenset({record.name}))
            case ExchangeDeclare() | ExchangeDelete():
                yield Item(f"{type(record).__name__[8:].lower()} {record.name}")
            case Bind() | Unbind():
                text = f"{type(record).__name__.lower()} {record.target} to {record.source}"
                yield Item(text, queues=frozenset({record.target}))

    def _enqueue(self, record: EnqueueRun) -> Iterator[Item]:
        raws = record.raws.split() if isinstance(record.raws, RawRun) else record.raws
        queues = [self._names.queue(uuid) for uuid in record.queues]
        for n, raw in enumerate(raws):
            key = key_of(raw)
            for uuid, first in zip(record.queues, record.firsts, strict=True):
                self._names.messages[uuid, record.envelope.epoch, first + n] = key
            yield Item(f"{key} to {', '.join(queues)}", frozenset({key}), frozenset(queues))


def _join_ok(document: dict[str, Any]) -> Event:
    if not document.get("ok"):
        return said(f"join refused: {readable(str(document.get('reason')))}")
    record = record_from_json(document["record"])
    expected = ", you are expected" if document.get("expected") else ""
    return said(f"join-ok, {record_line(record)}{expected}", news=True)

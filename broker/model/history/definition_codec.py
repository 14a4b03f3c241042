"""Binary form of definition and directory records. The table in `record_codec` uses these functions."""

from __future__ import annotations

from broker.model.history.record_reader import Reader, text_bytes
from broker.model.history.records import (
    Bind,
    ConsumerSeen,
    EntryDelete,
    EntryPut,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    Unbind,
)
from broker.model.history.value_codec import encode_value
from broker.model.values import ROOT, Scope


def _of(vhost: str) -> bytes:
    """The virtual host at the end of a record. Empty for `/`, as in records from before virtual hosts."""
    return b"" if vhost == ROOT else text_bytes(vhost)


def _vhost(body: Reader) -> str:
    return body.text() if body.at < len(body.data) else ROOT


def encode_queue_declare(record: QueueDeclare) -> list[bytes]:
    flags = record.durable | record.exclusive << 1 | record.auto_delete << 2
    return [
        record.uuid,
        bytes([flags]),
        text_bytes(record.name),
        text_bytes(record.replicate),
        encode_value(record.arguments),
        _of(record.vhost),
    ]


def decode_queue_declare(body: Reader, scope: Scope) -> QueueDeclare:
    uuid, flags = bytes(body.take(16)), body.take(1)[0]
    name, replicate, arguments = body.text(), body.text(), body.table()
    return QueueDeclare(
        uuid, name, bool(flags & 1), bool(flags & 2), bool(flags & 4), arguments, replicate, scope,
        _vhost(body),
    )  # fmt: skip


def encode_queue_delete(record: QueueDelete) -> list[bytes]:
    return [record.uuid, text_bytes(record.name)]


def decode_queue_delete(body: Reader, scope: Scope) -> QueueDelete:
    return QueueDelete(bytes(body.take(16)), body.text(), scope)


def encode_exchange_declare(record: ExchangeDeclare) -> list[bytes]:
    flags = record.durable | record.auto_delete << 1 | record.internal << 2
    return [
        bytes([flags]),
        text_bytes(record.name),
        text_bytes(record.type),
        text_bytes(record.replicate),
        encode_value(record.arguments),
        _of(record.vhost),
    ]


def decode_exchange_declare(body: Reader, scope: Scope) -> ExchangeDeclare:
    flags = body.take(1)[0]
    name, type_, replicate, arguments = body.text(), body.text(), body.text(), body.table()
    return ExchangeDeclare(
        name, type_, bool(flags & 1), bool(flags & 2), bool(flags & 4), arguments, replicate, scope,
        _vhost(body),
    )  # fmt: skip


def encode_exchange_delete(record: ExchangeDelete) -> list[bytes]:
    return [text_bytes(record.name), _of(record.vhost)]


def decode_exchange_delete(body: Reader, scope: Scope) -> ExchangeDelete:
    return ExchangeDelete(body.text(), scope, _vhost(body))


def encode_bind(record: Bind | Unbind) -> list[bytes]:
    return [
        bytes([record.queue is not None]),
        record.queue or bytes(16),
        text_bytes(record.source),
        text_bytes(record.target),
        text_bytes(record.routing_key),
        encode_value(record.arguments),
        _of(record.vhost),
    ]


def decode_bind(body: Reader, scope: Scope) -> Bind:
    to_queue, uuid = body.take(1)[0], bytes(body.take(16))
    source, target, routing_key = body.text(), body.text(), body.text()
    arguments = body.table()
    return Bind(source, uuid if to_queue else None, target, routing_key, arguments, scope, _vhost(body))


def decode_unbind(body: Reader, scope: Scope) -> Unbind:
    same = decode_bind(body, scope)
    return Unbind(same.source, same.queue, same.target, same.routing_key, same.arguments, scope, same.vhost)


def encode_consumer_seen(record: ConsumerSeen) -> list[bytes]:
    return [record.queue]


def decode_consumer_seen(body: Reader, scope: Scope) -> ConsumerSeen:
    return ConsumerSeen(bytes(body.take(16)), scope)


def encode_entry_put(record: EntryPut) -> list[bytes]:
    return [*encode_entry_delete(record), encode_value(record.value)]


def decode_entry_put(body: Reader, scope: Scope) -> EntryPut:
    kind, vhost, name = body.text(), body.text(), body.text()
    return EntryPut(kind, vhost, name, body.table(), scope)


def encode_entry_delete(record: EntryPut | EntryDelete) -> list[bytes]:
    return [text_bytes(record.kind), text_bytes(record.vhost), text_bytes(record.name)]


def decode_entry_delete(body: Reader, scope: Scope) -> EntryDelete:
    return EntryDelete(body.text(), body.text(), body.text(), scope)

"""Queues and messages of a quarantine as JSON, for the command and for the console."""

from __future__ import annotations

from typing import Any

from ha.adapter.quarantine import routing_key_fields
from understudy.quarantine.message import Message
from understudy.quarantine.reader import QuarantineFolder, QueueSummary


def summary_json(entry: QueueSummary) -> dict[str, Any]:
    return {
        "queue": entry.queue, "name": entry.name, "messages": entry.messages, "bytes": entry.size,
        "republished": entry.republished, "in_doubt": entry.in_doubt, "oldest_ms": entry.oldest_ms or None,
        "newest_ms": entry.newest_ms or None,
        "ids": {str(epoch): ids.ranges() for epoch, ids in sorted(entry.ids.items())},
    }  # fmt: skip


def message_json(message: Message, folder: QuarantineFolder) -> dict[str, Any]:
    text = text_of(message.body)
    return {
        "queue": message.queue, "name": message.title, "id": message.id, "epoch": message.epoch,
        "sequence": message.sequence, "exchange": message.exchange, **routing_key_fields(message.routing_key),
        "persistent": message.persistent, "enqueued": message.enqueued or None,
        "republished": folder.notes is not None and folder.notes.is_republished(message),
        "in_doubt": folder.notes is not None and folder.notes.is_in_doubt(message),
        "properties": plain(message.properties()),
        "body": text if text is not None else None,
        "body_hex": message.body.hex() if text is None else None,
    }  # fmt: skip


def text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def plain(value: Any) -> Any:
    """The value in types that JSON has."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)

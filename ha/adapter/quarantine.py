"""Quarantine: readable files of the messages that a rejoining node held and its new primary never had.

Owner: ReplicaVhost, which calls `export` before it drops them. One JSON object a line, one file an export,
under `<data_dir>/quarantine`; durable on return. Exporting twice does no harm: a reader goes by (queue,
epoch, sequence).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from broker.amqp10.conversion import as_0_9_1, is_stored
from broker.model.history.records import Entry
from broker.model.octets import as_octets, is_unicode, readable
from broker.model.values import ROOT

if TYPE_CHECKING:
    from broker.store.files import FileLayer

_FRAME_HEAD = 7
_BODY = 3


class Quarantine:
    """The quarantine folder of one node life."""

    def __init__(self, files: FileLayer, directory: str, incarnation: int) -> None:
        self._files = files
        self._directory = f"{directory}/quarantine"
        self._incarnation = incarnation
        self._exports = 0
        self.count = 0
        """Messages exported in this life."""

    def export(self, queue: bytes, name: str, entries: list[Entry], vhost: str = ROOT) -> str:
        """Write and sync; returns the path. OSError if that fails: then nothing may be dropped."""
        of = {} if vhost == ROOT else {"vhost": vhost}
        self._files.make_directory(self._directory)
        self._exports += 1
        path = f"{self._directory}/{queue.hex()}-{self._incarnation}-{self._exports}.jsonl"
        file = self._files.open_append(path)
        try:
            for at in range(0, len(entries), 1000):
                lines = [
                    json.dumps(_line(queue, name, entry) | of, sort_keys=True)
                    for entry in entries[at : at + 1000]
                ]
                file.write(("\n".join(lines) + "\n").encode())
            file.sync()
        finally:
            file.close()
        self._files.sync_directory(self._directory)
        self.count += len(entries)
        return path


def _line(queue: bytes, name: str, entry: Entry) -> dict[str, Any]:
    sequence, envelope, raw = entry
    body = _body(as_0_9_1(raw) if is_stored(raw) else raw)
    return {
        "queue": queue.hex(), "name": name, "epoch": envelope.epoch, "sequence": sequence,
        "exchange": envelope.exchange, **routing_key_fields(envelope.routing_key),
        "persistent": envelope.persistent, "enqueued_ms": envelope.wall_ms,
        "body": body.decode("utf-8", "replace"), "frames": base64.b64encode(raw).decode(),
    }  # fmt: skip


def routing_key_fields(key: str) -> dict[str, str]:
    """The key as text. If it is not UTF-8, also as octets, so that the message can be published again."""
    if is_unicode(key):
        return {"routing_key": key}
    octets = base64.b64encode(as_octets(key)).decode()
    return {"routing_key": readable(key), "routing_key_base64": octets}


def _body(raw: bytes) -> bytes:
    """The message's body: the payloads of its body frames."""
    parts: list[bytes] = []
    at = 0
    while at + _FRAME_HEAD <= len(raw):
        size = int.from_bytes(raw[at + 3 : at + 7], "big")
        if raw[at] == _BODY:
            parts.append(raw[at + _FRAME_HEAD : at + _FRAME_HEAD + size])
        at += _FRAME_HEAD + size + 1
    return b"".join(parts)

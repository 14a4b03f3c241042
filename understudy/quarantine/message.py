"""One message in quarantine: parsed strictly from its line of an export, and prepared for republishing.

A republished message keeps the octets of its original properties. They are not decoded and encoded again,
because no client library returns every field type unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.amqp091.codec.fields import read_octets, read_table, text_or_octets, write_longstr, write_shortstr
from broker.amqp091.codec.frames import BODY, FRAME_END, HEADER, OVERHEAD, body_of
from broker.amqp091.codec.properties import HEADERS, PROPERTIES_AT, USER_ID, check, entries_of, table_span
from broker.amqp10.conversion import as_0_9_1, is_stored
from broker.errors import AmqpError
from broker.model.octets import as_octets, as_text, is_unicode
from broker.model.values import ROOT, titled

ORIGIN_HEADER = "x-quarantined"
"""Header of a republished message: its queue's UUID and its replication id in quarantine."""
USER_HEADER = f"{ORIGIN_HEADER}-user-id"
CC_HEADER = f"{ORIGIN_HEADER}-cc"

_PROPERTIES = (
    ("content_type", "text"), ("content_encoding", "text"), ("application_headers", "table"),
    ("delivery_mode", "octet"), ("priority", "octet"), ("correlation_id", "text"), ("reply_to", "text"),
    ("expiration", "text"), ("message_id", "text"), ("timestamp", "long"), ("type", "text"),
    ("user_id", "text"), ("app_id", "text"), ("cluster_id", "text"),
)  # fmt: skip
"""In the order of their flags, from bit 15 down (AMQP 0-9-1, section 4.2.6.1 and class basic)."""
_UUID = re.compile("[0-9a-f]{32}")
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""


@dataclass(slots=True, frozen=True)
class Message:
    """One message in quarantine. `epoch`-`sequence` was its replication id in the queue `queue`."""

    queue: str
    """The queue's UUID, 32 hexadecimal digits."""
    name: str
    """The queue's name when it was exported."""
    epoch: int
    sequence: int
    exchange: str
    routing_key: str
    """In the form of `broker.model.octets`."""
    persistent: bool
    enqueued_ms: int
    """Wall clock of the primary that received it, in ms since 1970; 0 if unknown."""
    frames: bytes
    """Content header and body frames, as stored."""
    vhost: str = ROOT
    """The queue's virtual host."""

    @property
    def title(self) -> str:
        return titled(self.vhost, self.name)

    @property
    def id(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @property
    def enqueued(self) -> str:
        """ISO 8601, UTC; empty if unknown."""
        return datetime.fromtimestamp(self.enqueued_ms / 1000, UTC).isoformat() if self.enqueued_ms else ""

    @property
    def body(self) -> bytes:
        """The body as a 0-9-1 client gets it."""
        return body_of(as_0_9_1(self.frames) if is_stored(self.frames) else self.frames)

    @property
    def origin(self) -> str:
        """The value of `x-quarantined`, which is unique for each message."""
        return f"{self.queue} {self.id}"

    def properties(self) -> dict[str, Any]:
        """AMQP's basic properties, by py-amqp's names (`application_headers` is the table of headers). A
        string that is not UTF-8 is returned as bytes."""
        found: dict[str, Any] = {}
        for name, start, end in _spans(self.frames):
            match dict(_PROPERTIES)[name]:
                case "text":
                    found[name] = text_or_octets(read_octets(self.frames, start)[0])
                case "table":
                    found[name] = read_table(self.frames, start)[0]
                case _:
                    found[name] = int.from_bytes(self.frames[start:end], "big")
        return found

    def republished(self, user: str, *, route: bool) -> bytes:
        """The octets of the properties, flags first, for the republished message.

        They differ from the original in three points. `x-quarantined` is added. A user id other than `user`
        moves to a header, because a broker lets no user publish in another's name. Without `route`, the
        further routing keys of `CC` move to a header and `BCC` is dropped, because they would deliver the
        message to other queues, too.
        """
        raw = self.frames
        start, end = table_span(raw)
        added = {ORIGIN_HEADER: _text_value(self.origin)}
        flags = int.from_bytes(raw[PROPERTIES_AT : PROPERTIES_AT + 2], "big") | HEADERS
        properties_end = int.from_bytes(raw[3:7], "big") + OVERHEAD - 1
        after = raw[end:properties_end]
        for name, first, last in _spans(raw):
            if name == "user_id" and (owner := read_octets(raw, first)[0]) != user.encode():
                after = raw[end:first] + raw[last:properties_end]
                flags &= ~USER_ID
                added[USER_HEADER] = _text_value(owner)
        kept: list[tuple[str, bytes]] = []
        for key, _, begin, stop in entries_of(raw, start, end) if end > start else ():
            if key == "CC" and not route:
                added[CC_HEADER] = raw[begin + 1 + len(key) : stop]
            elif key != "BCC" or route:
                kept.append((key, raw[begin:stop]))
        table = b"".join(entry for key, entry in kept if key not in added)
        table += b"".join(write_shortstr(key) + value for key, value in added.items())
        head = flags.to_bytes(2, "big") + raw[PROPERTIES_AT + 2 : start]
        return head + len(table).to_bytes(4, "big") + table + after


def _text_value(text: str | bytes) -> bytes:
    return b"S" + write_longstr(text)


def _spans(raw: bytes) -> list[tuple[str, int, int]]:
    """Name, start and end of each property in a checked content header frame."""
    flags = int.from_bytes(raw[PROPERTIES_AT : PROPERTIES_AT + 2], "big")
    at, found = PROPERTIES_AT + 2, []
    for place, (name, kind) in enumerate(_PROPERTIES):
        if flags & 1 << 15 - place:
            match kind:
                case "text":
                    size = 1 + raw[at]
                case "table":
                    size = 4 + int.from_bytes(raw[at : at + 4], "big")
                case "octet":
                    size = 1
                case _:
                    size = 8
            found.append((name, at, at + size))
            at += size
    return found


def parsed(line: bytes) -> Message:
    """The message in one line of an export. Raises ValueError, whose text is one line, if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    queue = _of(record, "queue", str)
    if not _UUID.fullmatch(queue):
        raise ValueError("'queue' is not 32 hexadecimal digits")
    message = Message(
        queue=queue, name=_name(record, "name"), epoch=_number(record, "epoch"),
        sequence=_number(record, "sequence"), exchange=_name(record, "exchange"),
        routing_key=_routing_key(record), persistent=_of(record, "persistent", bool),
        enqueued_ms=_number(record, "enqueued_ms", _LATEST_MS), frames=_decoded(record, "frames"),
        vhost=_name(record, "vhost") if "vhost" in record else ROOT,
    )  # fmt: skip
    _check_frames(message.frames)
    return message


def _of(record: dict[str, Any], key: str, kind: type) -> Any:
    if key not in record:
        raise ValueError(f"no {key!r}")
    if type(record[key]) is not kind:
        raise ValueError(f"{key!r} is not a {kind.__name__}")
    return record[key]


def _name(record: dict[str, Any], key: str) -> str:
    """A text that can name a queue, an exchange or a virtual host."""
    text: str = _of(record, key, str)
    if not is_unicode(text) or len(text.encode()) > 255 or "\0" in text:
        raise ValueError(f"{key!r} is not a short string of AMQP")
    return text


def _routing_key(record: dict[str, Any]) -> str:
    """Any octets that fit in a short string. A key that is not UTF-8 has a field of its own."""
    key = "routing_key_base64"
    if key in record:
        text = as_text(_decoded(record, key))
    elif not is_unicode(text := _of(record, key := "routing_key", str)):
        raise ValueError(f"{key!r} is not Unicode: half of a surrogate pair")
    if len(as_octets(text)) > 255:
        raise ValueError(f"{key!r} is not a short string of AMQP")
    return text


def _number(record: dict[str, Any], key: str, most: int = (1 << 63) - 1) -> int:
    number: int = _of(record, key, int)
    if not 0 <= number <= most:
        raise ValueError(f"{key!r} is not from 0 to {most}")
    return number


def _decoded(record: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(_of(record, key, str), validate=True)
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from None


def _check_frames(raw: bytes) -> None:
    """Check that `raw` is one whole content header, the body that it announces, and nothing else."""
    at, body = 0, 0
    while at < len(raw):
        size = int.from_bytes(raw[at + 3 : at + 7], "big")
        end = at + OVERHEAD + size
        if end > len(raw) or raw[end - 1] != FRAME_END or raw[at] != (BODY if at else HEADER):
            raise ValueError(f"'frames': invalid frame at octet {at}")
        body += size if at else 0
        at = end
    if len(raw) < PROPERTIES_AT + 3:
        raise ValueError("'frames': no content header")
    announced = int.from_bytes(raw[11:19], "big")
    if raw[7:9] != b"\0\x3c" or announced != body:
        raise ValueError(f"'frames': a body of {body} octets, but {announced} are announced")
    try:
        check(raw[PROPERTIES_AT : int.from_bytes(raw[3:7], "big") + OVERHEAD - 1])
    except AmqpError as error:
        raise ValueError(f"'frames': invalid properties: {error.text}") from None

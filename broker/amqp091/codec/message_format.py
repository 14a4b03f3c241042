"""The model's `MessageFormat` for AMQP 0-9-1 content frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.amqp091.codec.dead_letter import cycles, dead_lettered
from broker.amqp091.codec.frames import OVERHEAD
from broker.amqp091.codec.named_value import property_of, value_of
from broker.amqp091.codec.properties import PROPERTIES_AT, check, headers_of, with_header
from broker.amqp091.codec.reply_to import reply_to_of, with_reply_to
from broker.model.queue.delays.delay_queue import DELAY, delay_of
from broker.model.queue.removals import Death


class Amqp091Format:
    """Implements `broker.model.queue.removals.MessageFormat`."""

    def body_size(self, raw: bytes) -> int:
        return int.from_bytes(raw[11:19], "big")

    def dead_lettered(self, raw: bytes, death: Death, *, drop_cc: bool) -> tuple[bytes, int]:
        made = dead_lettered(raw, death, drop_cc=drop_cc)
        return made, int.from_bytes(made[3:7], "big") + OVERHEAD

    def cycles(self, raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
        return cycles(raw, queues, reason)

    def headers(self, raw: bytes) -> dict[str, Any]:
        return headers_of(raw)

    def value(self, raw: bytes, name: str) -> object:
        return value_of(raw, name)

    def property_of(self, raw: bytes, name: str) -> object:
        return property_of(raw, name.replace("_", "-"))

    def released(self, raw: bytes) -> tuple[bytes, int, int | None]:
        made = with_header(raw, DELAY, -delay_of(headers_of(raw)))
        size = int.from_bytes(made[3:7], "big")
        return made, size + OVERHEAD, check(made[PROPERTIES_AT : size + 7]).expiration

    def has_copies(self, raw: bytes) -> bool:
        return raw.find(b"CC", 0, int.from_bytes(raw[3:7], "big")) >= 0

    def reply_to(self, raw: bytes) -> str:
        return reply_to_of(raw)

    def with_reply_to(self, raw: bytes, text: str) -> bytes:
        return with_reply_to(raw, text)


MESSAGE_FORMAT = Amqp091Format()

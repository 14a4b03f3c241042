"""The wire format of queue mirrors: how a broker asks a broker of another cluster for one queue.

Methods 40-46 of extension class 250, on a connection of its own that has logged in with the HA identity: ASK
and ANSWER until a broker there serves the queue; then HAVE and GO, and from then on DATA, one ordered stream
of frames (`link.frame`), and ACK the other way, until ENDED. Pure codec.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import asdict, dataclass
from typing import Any

from ha.core.errors import LinkError
from ha.core.record.in_sync_record import count, label
from ha.core.wire.link import UUID, VERSION, parse_json, read_json, to_json

MOST_HAVE = 64 << 20
"""Octets of HAVE before a GO: ranges of ids of one queue."""
LONGEST_REASON = 300
_U64 = struct.Struct(">Q")


class MirrorMethod(enum.IntEnum):
    """From the follower, unless its comment says otherwise."""

    ASK = 40
    ANSWER = 41
    """From the source: whether it serves that queue."""
    HAVE = 42
    """A piece of the ids held, cut anywhere."""
    GO = 43
    """The queue's uuid: send it."""
    DATA = 44
    """From the source."""
    ACK = 45
    """Octets of the stream that are taken."""
    ENDED = 46
    """From the source: nothing more comes, and why."""


class MirrorFrame(enum.IntEnum):
    """Types of stream frames, source to follower."""

    DECLARED = 1
    """The queue, as an encoded QueueDeclare record: the first frame."""
    PIECE = 2
    """The id up to which it goes, which ids the source holds of those after the piece before, then encoded
    EnqueueRun records of what the follower lacked. It drops all others of that stretch."""
    LEFT = 3
    """Encoded Dequeue records, of ids that earlier pieces have passed."""
    WHOLE = 4
    """All that the source held when the stream began is told; what comes is new."""
    TOTAL = 5
    """How many messages the source holds just here."""


@dataclass(slots=True, frozen=True)
class Question:
    """Does the broker serve that queue? `uuid`: the one wanted, in hex; "": any of that name."""

    queue: str
    uuid: str
    node_id: str
    name: str
    cluster_id: str
    version: int = VERSION

    def encode(self) -> bytes:
        return to_json(asdict(self))


def parse_question(payload: bytes) -> Question:
    return read_json(payload, "a question for a queue", _question_of)


def _question_of(document: dict[str, Any]) -> Question:
    return Question(
        _text(document["queue"]), label(document["uuid"]), label(document["node_id"]),
        one_line(label(document["name"])), label(document["cluster_id"]), count(document["version"]),
    )  # fmt: skip


@dataclass(slots=True, frozen=True)
class SourceAnswer:
    """`ok`: it does, in `epoch`, as the queue `uuid`. Else `reason` is a sentence, and `gone` says that it
    serves and has no such queue (any more). `wall_ms`: the clock by which it dates messages; 0: it does not
    say."""

    ok: bool
    reason: str
    name: str
    epoch: int = 0
    uuid: str = ""
    gone: bool = False
    wall_ms: int = 0

    def encode(self) -> bytes:
        return to_json({**asdict(self), "reason": self.reason[:LONGEST_REASON]})


def parse_answer(payload: bytes) -> SourceAnswer:
    return read_json(payload, "an answer about a queue", _answer_of)


def _answer_of(document: dict[str, Any]) -> SourceAnswer:
    answer = SourceAnswer(
        bool(document["ok"]), one_line(_text(document["reason"])), one_line(label(document["name"])),
        count(document["epoch"]), label(document["uuid"]), bool(document["gone"]),
        count(document.get("wall_ms", 0)),
    )  # fmt: skip
    if answer.ok and len(bytes.fromhex(answer.uuid)) != UUID:
        raise ValueError(answer.uuid)
    return answer


def encode_end(reason: str) -> bytes:
    return to_json({"reason": reason[:LONGEST_REASON]})


def parse_end(payload: bytes) -> str:
    """Returns the reason."""
    return one_line(str(parse_json(payload, "the end of a queue").get("reason", "")))


def encode_number(number: int) -> bytes:
    return _U64.pack(number)


def parse_number(payload: bytes) -> int:
    if len(payload) != _U64.size:
        raise LinkError(f"a number of {len(payload)} bytes")
    return int(_U64.unpack(payload)[0])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def one_line(text: str) -> str:
    """Make the text fit for a log: one line, of bounded length, of printable characters."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:LONGEST_REASON])

"""What a node decided, in the words of transcripts. Pure functions."""

from __future__ import annotations

import re
from typing import Any

from broker.model.history.replication_id_set import ReplicationIdSet
from ha.core.effects import (
    ClosePeer,
    Effect,
    ExpelPeer,
    FenceOutput,
    PauseInput,
    ResumeInput,
    ResumeOutput,
    SaveRecord,
    SendMethod,
    SendStream,
    StartServing,
    StopServing,
    SwapRegister,
)  # fmt: skip
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.wire.link import Frame, Method, parse_json

QUIET = frozenset({
    Method.HELLO, Method.HELLO_OK, Method.HEARTBEAT, Method.ACK, Method.MANAGE_OK, Method.PEER_MESSAGE,
})  # fmt: skip

_LIST = re.compile(r"\[((?:'[^']*'(?:, (?='))?)*)\]")
"""Of names, or empty, as Python writes it."""


def describe(effect: Effect) -> str | None:
    """One line, or None for what is said all the time."""
    match effect:
        case SendMethod(method=Method.HANDOVER, payload=payload):
            said = parse_json(payload)
            soon = "soon" if said["off"] is None else f"not: {said['off']}"
            return f"send handover, {soon if said['position'] is None else 'now'}"
        case SendMethod(method=method):
            return None if method in QUIET else f"send {Method(method).name.lower()}"
        case SendStream(parts=parts):
            return f"stream {', '.join(_frames(b''.join(parts)))}"
        case SaveRecord(record=record, incomplete=incomplete):
            return f"save {record_line(record)}{', copy incomplete' if incomplete else ''}"
        case StartServing(epoch=epoch):
            return f"serve in epoch {epoch_text(epoch)}"
        case StopServing():
            return "stop serving"
        case SwapRegister(expected=expected, record=record):
            what = f"{epoch_text(expected.epoch)}.{expected.revision}" if expected is not None else "nothing"
            return f"ask the register to replace {what} by {record_line(record)}"
        case PauseInput():
            return "pause input"
        case ResumeInput():
            return "resume input"
        case FenceOutput():
            return "fence output"
        case ResumeOutput():
            return "resume output"
        case ClosePeer(text=text) | ExpelPeer(text=text):
            return None if text == "this is myself" else f"close: {readable(text)}"
        case _:
            return None


def record_line(record: InSyncRecord) -> str:
    """Version, owner, who is in sync."""

    def name(who: Incarnation) -> str:
        return record.names.get(who.node_id, "?")

    names = ", ".join(sorted(name(who) for who in record.in_sync)) or "nobody"
    return f"record {epoch_text(record.epoch)}.{record.revision} of {name(record.owner)}, in sync: {names}"


def _frames(stream: bytes) -> list[str]:
    found = []
    at = 0
    while at < len(stream):
        found.append(Frame(stream[at + 4]).name.lower())
        at += 5 + int.from_bytes(stream[at : at + 4], "big")
    return found


def epoch_text(epoch: int) -> str:
    """Counter and node number."""
    return f"{epoch >> 16}/{epoch & 0xFFFF}"


def ids_text(ids: dict[int, ReplicationIdSet]) -> str:
    """Ranges by epoch: `1/1: 1-3, 5; 2/2: 1`."""
    spans = {
        epoch: ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in found.ranges())
        for epoch, found in sorted(ids.items())
    }
    return "; ".join(f"{epoch_text(epoch)}: {text}" for epoch, text in spans.items()) or "nothing"


def readable(text: str) -> str:
    """Epochs as counter/number and lists of names in words, so that a transcript can be read."""
    words = []
    for word in _LIST.sub(lambda found: found[1].replace("'", "") or "nothing", text).split(" "):
        digits = word.strip("(),:;[]")
        epoch = digits.isdigit() and 0xFFFF < int(digits) < 1 << 64
        words.append(word.replace(digits, epoch_text(int(digits))) if epoch else word)
    return " ".join(words)


def verdict(answer: dict[str, Any]) -> str:
    """What an operator was told."""
    return f"{'ok' if answer['ok'] else 'refused'}: {readable(answer['reason'])}"

"""Reads what brokers have put into quarantine, and keeps note of what was published again.

A rejoining broker writes the messages that its new primary never had to `DATA_DIR/quarantine`, one JSON
object a line, before it drops them (`ha.adapter.quarantine` is the writer, docs/QUARANTINE.md the format).
Reading needs no running broker and changes nothing. What an operator has published again is noted in
`republished.jsonl` beside the exports, so that it is not published a second time.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import amqp

from broker.amqp091.frames import body_of
from broker.amqp10.conversion import as_0_9_1, is_stored
from broker.model.replication_id_set import ReplicationIdSet
from broker.model.values import ROOT, titled

NOTED = "republished.jsonl"
NODE = "node.json"
"""What every data folder has."""
_HEAD_AT = 7
"""Where a content header's payload begins in its frame."""


class Unreadable(Exception):
    """A folder, file or message cannot be read. `str()` is one line with the place."""


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
    persistent: bool
    enqueued_ms: int
    """Wall clock of the primary that took it, in ms since 1970; 0 if not known."""
    frames: bytes
    """Content header and body frames, as they were stored."""
    vhost: str = ROOT
    """The virtual host that the queue was in."""

    @property
    def title(self) -> str:
        return titled(self.vhost, self.name)

    @property
    def id(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @property
    def enqueued(self) -> str:
        """ISO 8601, UTC; empty if not known."""
        return datetime.fromtimestamp(self.enqueued_ms / 1000, UTC).isoformat() if self.enqueued_ms else ""

    @property
    def body(self) -> bytes:
        """As a 0-9-1 client gets it."""
        return body_of(as_0_9_1(self.frames) if is_stored(self.frames) else self.frames)

    def properties(self) -> dict[str, Any]:
        """AMQP's basic properties, by py-amqp's names (`application_headers` is the table of headers).
        Raises Unreadable.
        """
        content = amqp.Message()
        try:
            content.inbound_header(self.frames, _HEAD_AT)
        except (ValueError, LookupError, TypeError, struct.error) as error:
            raise Unreadable(f"{self.title} {self.id}: properties that cannot be read: {error}") from None
        properties: dict[str, Any] = content.properties
        return properties


@dataclass(slots=True)
class Damage:
    """A line that could not be read."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


@dataclass(slots=True)
class QueueSummary:
    """What is in quarantine of one queue."""

    queue: str
    name: str
    messages: int = 0
    size: int = 0
    """Octets of all bodies."""
    republished: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    ids: dict[int, ReplicationIdSet] = field(default_factory=dict)
    """By epoch."""

    def add(self, message: Message, *, republished: bool) -> None:
        self.messages += 1
        self.size += len(message.body)
        self.republished += republished
        at = message.enqueued_ms
        if at:
            self.oldest_ms = min(self.oldest_ms or at, at)
            self.newest_ms = max(self.newest_ms, at)
        self.ids.setdefault(message.epoch, ReplicationIdSet()).add(message.sequence)


class QuarantineFolder:
    """The quarantine of one node. `path`: its data folder, or the `quarantine` folder in it."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise Unreadable(f"{path}: no such folder")
        inside = path / "quarantine"
        self.path = path if path.name == "quarantine" and not inside.is_dir() else inside
        if not self.path.is_dir() and not (path / NODE).exists():
            raise Unreadable(f"{path}: not a data folder: it has neither {NODE} nor quarantine")
        self.damage: list[Damage] = []
        """Lines that the last walk left out; a torn last line, which a crash in mid-export leaves, is not
        among them: those messages were not dropped then, and are exported again.
        """
        self._done = self._republished()

    def files(self) -> list[Path]:
        """The exports, oldest first."""
        if not self.path.is_dir():
            return []
        found = (p for p in self.path.iterdir() if p.suffix == ".jsonl" and p.name != NOTED)
        return sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))

    def size(self) -> int:
        """Octets of all exports."""
        return sum(path.stat().st_size for path in self.files())

    def messages(self, progress: Callable[[int], None] = lambda octets: None) -> Iterator[Message]:
        """Every message once, whatever number of times it was exported. `progress` gets the octets of each
        line. Raises Unreadable if a file cannot be opened.
        """
        self.damage = []
        seen: dict[tuple[str, int], ReplicationIdSet] = {}
        for path in self.files():
            try:
                with path.open("rb") as file:
                    for number, line in enumerate(file, 1):
                        progress(len(line))
                        message = self._parsed(path, number, line)
                        if message is None:
                            continue
                        ids = seen.setdefault((message.queue, message.epoch), ReplicationIdSet())
                        if message.sequence not in ids:
                            ids.add(message.sequence)
                            yield message
            except OSError as error:
                raise Unreadable(f"{path}: {error.strerror or error}") from None

    def summary(self, progress: Callable[[int], None] = lambda octets: None) -> list[QueueSummary]:
        """Per queue, by name."""
        found: dict[str, QueueSummary] = {}
        for message in self.messages(progress):
            entry = found.get(message.queue)
            if entry is None:
                entry = found[message.queue] = QueueSummary(message.queue, message.title)
            entry.add(message, republished=self.is_republished(message))
        return sorted(found.values(), key=lambda entry: (entry.name, entry.queue))

    def is_republished(self, message: Message) -> bool:
        ids = self._done.get((message.queue, message.epoch))
        return ids is not None and message.sequence in ids

    def note_republished(self, messages: list[Message], where: str) -> None:
        """Durable on return: the broker at `where` has confirmed these. OSError if it cannot be written."""
        batch: dict[tuple[str, int], ReplicationIdSet] = {}
        for message in messages:
            batch.setdefault((message.queue, message.epoch), ReplicationIdSet()).add(message.sequence)
        if not batch:
            return
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [
            json.dumps({"queue": queue, "epoch": epoch, "ids": ids.ranges(), "to": where, "at": at})
            for (queue, epoch), ids in batch.items()
        ]
        with (self.path / NOTED).open("a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)  # a crash may have torn the last note: those are published twice
            file.write(("\n".join(lines) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        for key, ids in batch.items():
            self._done[key] = self._done.get(key, ReplicationIdSet()).union(ids)

    def _republished(self) -> dict[tuple[str, int], ReplicationIdSet]:
        done: dict[tuple[str, int], ReplicationIdSet] = {}
        path = self.path / NOTED
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return done
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror or error}") from None
        for number, line in enumerate(lines, 1):
            try:
                if line:
                    record = json.loads(line)
                    ids = done.setdefault((str(record["queue"]), int(record["epoch"])), ReplicationIdSet())
                    for first, last in record["ids"]:
                        ids.add_range(int(first), int(last))
            except (ValueError, KeyError, TypeError):
                if number < len(lines):  # but for a torn end
                    raise Unreadable(f"{path}:{number}: not a note of what was republished") from None
        return done

    def _parsed(self, path: Path, number: int, line: bytes) -> Message | None:
        try:
            return _message(json.loads(line))
        except (ValueError, KeyError, TypeError, binascii.Error, IndexError) as error:
            if line.endswith(b"\n"):
                self.damage.append(Damage(path, number, f"not a message in quarantine: {_one_line(error)}"))
            return None


def _message(record: dict[str, Any]) -> Message:
    message = Message(
        queue=str(record["queue"]), name=str(record["name"]), epoch=int(record["epoch"]),
        sequence=int(record["sequence"]), exchange=str(record["exchange"]),
        routing_key=str(record["routing_key"]), persistent=bool(record["persistent"]),
        enqueued_ms=int(record["enqueued_ms"]), frames=base64.b64decode(record["frames"], validate=True),
        vhost=str(record.get("vhost", ROOT)),
    )  # fmt: skip
    if len(message.frames) < 22 or message.frames[0] != 2:
        raise ValueError("its frames are not those of a message")
    return message


def _one_line(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())

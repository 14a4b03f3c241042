"""Reads the quarantine of a node.

Before a rejoining broker drops messages that are not in the primary's history, it writes them to
`DATA_DIR/quarantine`, one JSON object a line (`ha.adapter.quarantine` writes; format:
docs/how-to/quarantine.md). Reading needs no running broker and changes nothing. `journal` knows what was
republished.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broker.model.history.replication_id_set import ReplicationIdSet
from understudy.quarantine.journal import NOTED, Notes, NotesError
from understudy.quarantine.message import Message, parsed

NODE = "node.json"
"""A file that every data directory has."""
_EXPORT = re.compile(r"([0-9a-f]{32})-([0-9]+)-([0-9]+)")
"""Queue UUID, incarnation of the node, number of the export in that incarnation."""


class Unreadable(Exception):
    """A folder cannot be read. `str()` is one line with the place."""


@dataclass(slots=True)
class Damage:
    """A line that cannot be read, or a file that cannot be read from that line on."""

    path: Path
    line: int
    offset: int
    """Octets before the line in the file."""
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}, octet {self.offset}: {self.why}"


@dataclass(slots=True)
class QueueSummary:
    """Totals of one queue's messages in quarantine."""

    queue: str
    name: str
    messages: int = 0
    size: int = 0
    """Octets of all bodies."""
    republished: int = 0
    in_doubt: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    ids: dict[int, ReplicationIdSet] = field(default_factory=dict)
    """Sequences by epoch."""

    def add(self, message: Message, notes: Notes | None) -> None:
        self.messages += 1
        self.size += len(message.body)
        if notes is not None:
            self.republished += notes.is_republished(message)
            self.in_doubt += notes.is_in_doubt(message)
        at = message.enqueued_ms
        if at:
            self.oldest_ms = min(self.oldest_ms or at, at)
            self.newest_ms = max(self.newest_ms, at)
        self.ids.setdefault(message.epoch, ReplicationIdSet()).add(message.sequence)


class QuarantineFolder:
    """The quarantine of one node. `path`: its data directory, or the folder `quarantine` in it."""

    def __init__(self, path: Path) -> None:
        """Raises Unreadable if `path` is not such a folder."""
        inside = path / "quarantine"
        try:
            if not path.exists():
                raise Unreadable(f"{path}: no such folder")
            if not path.is_dir():
                raise Unreadable(f"{path}: not a folder")
            self.path = path if path.name == "quarantine" and not inside.is_dir() else inside
            if not self.path.is_dir() and not (path / NODE).exists():
                raise Unreadable(f"{path}: not a data directory: it has neither {NODE} nor quarantine")
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror or error}") from None
        self.damage: list[Damage] = []
        """Faults that the last walk found. A torn last line, which a crash during an export leaves, is no
        longer a fault once the node has exported that queue again."""
        self.notes: Notes | None = None
        self.notes_damage = ""
        """Why the notes cannot be read; nothing may then be published."""
        try:
            self.notes = Notes(self.path)
        except NotesError as error:
            self.notes_damage = str(error)

    def files(self) -> list[Path]:
        """The exports, oldest first. Raises Unreadable."""
        try:
            if not self.path.is_dir():
                return []
            found = [p for p in self.path.iterdir() if p.suffix == ".jsonl" and p.name != NOTED]
            return [path for _, _, path in sorted((p.lstat().st_mtime_ns, p.name, p) for p in found)]
        except OSError as error:
            raise Unreadable(f"{error.filename or self.path}: {error.strerror or error}") from None

    def size(self) -> int:
        """Octets of all exports. Raises Unreadable."""
        return sum(path.stat().st_size for path in self.files() if path.is_file())

    def messages(self, progress: Callable[[int], None] = lambda octets: None) -> Iterator[Message]:
        """Yield every message once, however often it was exported. `progress` gets the octets of each line.
        Faults are in `damage`, and reading continues after them. Raises Unreadable."""
        self.damage = []
        seen: dict[tuple[str, int], ReplicationIdSet] = {}
        files = self.files()
        for path in files:
            number, offset = 1, 0
            try:
                if not path.is_file():
                    raise OSError("not a file")
                with path.open("rb") as file:
                    for line in file:
                        message = self._message(Damage(path, number, offset, ""), line, files)
                        number, offset = number + 1, offset + len(line)
                        progress(len(line))
                        if message is None:
                            continue
                        ids = seen.setdefault((message.queue, message.epoch), ReplicationIdSet())
                        if message.sequence not in ids:
                            ids.add(message.sequence)
                            yield message
            except OSError as error:
                self.damage.append(Damage(path, number, offset, f"{error.strerror or error}"))

    def summary(self, progress: Callable[[int], None] = lambda octets: None) -> list[QueueSummary]:
        """Totals for each queue, by name. Raises Unreadable."""
        found: dict[str, QueueSummary] = {}
        for message in self.messages(progress):
            entry = found.get(message.queue)
            if entry is None:
                entry = found[message.queue] = QueueSummary(message.queue, message.title)
            entry.add(message, self.notes)
        return sorted(found.values(), key=lambda entry: (entry.name, entry.queue))

    def _message(self, place: Damage, line: bytes, files: list[Path]) -> Message | None:
        try:
            return parsed(line)
        except ValueError as error:
            if line.endswith(b"\n"):
                place.why = f"not a message in quarantine: {error}"
                self.damage.append(place)
            elif not _exported_again(place.path, files):
                place.why = "torn: the node was stopped during the export; it exports again when it rejoins"
                self.damage.append(place)
            return None


def _exported_again(path: Path, files: list[Path]) -> bool:
    """Is there a later export of the queue? A node drops nothing before an export of it is whole."""
    torn = _EXPORT.fullmatch(path.stem)
    if torn is None:
        return False
    others = (found for other in files if (found := _EXPORT.fullmatch(other.stem)) is not None)
    return any(found[1] == torn[1] and _order(found) > _order(torn) for found in others)


def _order(export: re.Match[str]) -> tuple[int, int]:
    return int(export[2]), int(export[3])

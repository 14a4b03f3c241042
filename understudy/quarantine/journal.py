"""The notes of a quarantine: what was republished and what is in doubt, one JSON object a line, beside the
exports.

Owner: `QuarantineFolder` in `reader.py`. Before a batch is published, its messages are noted as "sending".
Once the results are known, they are noted as "confirmed" or "not published". Each note is durable before the
next step. Messages that are only "sending" are in doubt. The first note also reserves disk space for the
second one, so a disk that fills up in between leaves nothing in doubt.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from broker.model.history.replication_id_set import ReplicationIdSet
from understudy.quarantine.message import Message
from understudy.shared.text import shown

NOTED = "republished.jsonl"
SENDING, CONFIRMED, NOT_PUBLISHED = "sending", "confirmed", "not published"

_Ids = dict[tuple[str, int], ReplicationIdSet]
"""By queue UUID and epoch."""


class NotesError(Exception):
    """The notes cannot be read or written. `str()` is one line with the file and the line."""


class Notes:
    """The notes of one quarantine folder."""

    def __init__(self, folder: Path) -> None:
        """Read the notes. Raises NotesError if they cannot be read."""
        self.path = folder / NOTED
        self._done: _Ids = {}
        self._doubt: _Ids = {}
        self._last: dict[tuple[str, int], str] = {}
        """Time of the last noted confirm, by queue UUID and epoch."""
        self._file: int | None = None
        self._end = 0
        """Octets of whole notes. Anything behind them is reserved space, or torn by a crash."""
        try:
            self._read(self.path.read_bytes())
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failure(error) from None

    def is_republished(self, message: Message) -> bool:
        return _in(self._done, message)

    def is_in_doubt(self, message: Message) -> bool:
        """Was it sent, but never confirmed? It may have been published."""
        return _in(self._doubt, message) and not self.is_republished(message)

    def last_confirmed(self, messages: Iterable[Message]) -> str:
        """Time of the last noted confirm of the messages' queues, in UTC; "" if unknown."""
        return max((self._last.get((m.queue, m.epoch), "") for m in messages), default="")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the notes for the caller, and read them again. Raises NotesError if another process has the
        lock, or if the notes cannot be written."""
        try:
            self._file = file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failure(error) from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._done, self._doubt, self._last = {}, {}, {}
                self._read(self.path.read_bytes())
                _sync_directory(self.path.parent)
            except BlockingIOError:
                raise NotesError(f"{self.path}: another republish is running on this quarantine") from None
            except OSError as error:
                raise self._failure(error) from None
            yield
            self._give_back(file)
        finally:
            self._file = None
            os.close(file)

    def begin(self, messages: list[Message], where: str) -> None:
        """Note that these messages are about to be published to the broker at `where`, and reserve space for
        their results. Durable on return. Raises NotesError if that fails; publish nothing then."""
        if not messages:
            return
        file, notes = self._open(), _lines(SENDING, messages, where)
        at_worst = sum(len(_lines(NOT_PUBLISHED, [message], where)) for message in messages)
        try:
            os.posix_fallocate(file, self._end, len(notes) + at_worst)
            self._append(file, notes)
        except OSError as error:
            self._give_back(file)
            raise self._failure(error) from None
        _add(self._doubt, messages)

    def settle(self, confirmed: list[Message], not_published: list[Message], where: str) -> None:
        """Note the results of messages that were begun. Durable on return. Raises NotesError if that fails;
        the messages are then in doubt."""
        notes = _lines(CONFIRMED, confirmed, where) + _lines(NOT_PUBLISHED, not_published, where)
        if not notes:
            return
        try:
            self._append(self._open(), notes)
        except OSError as error:
            raise self._failure(error) from None
        _add(self._done, confirmed)
        _take(self._doubt, [*confirmed, *not_published])

    # -- the file

    def _open(self) -> int:
        if self._file is None:
            raise RuntimeError("notes can only be written within `writing`")
        return self._file

    def _append(self, file: int, notes: bytes) -> None:
        at, left = self._end, notes
        while left:
            count = os.pwrite(file, left, at)
            at, left = at + count, left[count:]
        os.fsync(file)
        self._end = at

    def _give_back(self, file: int) -> None:
        """Release the reserved space behind the last note. If that fails, it does no harm."""
        try:
            os.ftruncate(file, self._end)
        except OSError:
            pass

    def _failure(self, error: OSError) -> NotesError:
        return NotesError(f"{self.path}: {error.strerror or error}")

    def _read(self, octets: bytes) -> None:
        self._end = octets.rfind(b"\n") + 1
        for number, line in enumerate(octets[: self._end].splitlines(), 1):
            try:
                self._heed(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise NotesError(
                    f"{self.path}:{number}: not a valid note; if you remove the line, its messages count "
                    "as not republished, or as in doubt"
                ) from None

    def _heed(self, record: dict[str, object]) -> None:
        key = str(record["queue"]), int(str(record["epoch"]))
        state = record.get("state", CONFIRMED)
        done = self._done.setdefault(key, ReplicationIdSet())
        doubt = self._doubt.setdefault(key, ReplicationIdSet())
        ranges = record["ids"]
        if state not in (SENDING, CONFIRMED, NOT_PUBLISHED) or not isinstance(ranges, list):
            raise ValueError(state)
        for first, last in ranges:
            if state == SENDING:
                doubt.add_range(int(first), int(last))
            else:
                doubt.discard_range(int(first), int(last))
            if state == CONFIRMED:
                done.add_range(int(first), int(last))
        if state == CONFIRMED:
            self._last[key] = max(self._last.get(key, ""), shown(str(record.get("at", ""))))


def _lines(state: str, messages: Iterable[Message], where: str) -> bytes:
    batch: _Ids = {}
    _add(batch, messages)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    lines = (
        {"queue": queue, "epoch": epoch, "ids": ids.ranges(), "state": state, "to": where, "at": at}
        for (queue, epoch), ids in batch.items()
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _in(ids: _Ids, message: Message) -> bool:
    found = ids.get((message.queue, message.epoch))
    return found is not None and message.sequence in found


def _add(ids: _Ids, messages: Iterable[Message]) -> None:
    for message in messages:
        ids.setdefault((message.queue, message.epoch), ReplicationIdSet()).add(message.sequence)


def _take(ids: _Ids, messages: Iterable[Message]) -> None:
    for message in messages:
        if (found := ids.get((message.queue, message.epoch))) is not None:
            found.discard(message.sequence)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

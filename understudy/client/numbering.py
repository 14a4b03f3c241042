"""Numbers of a publisher's messages over all its processes: a small file beside its ledger.

A broker takes no number of a producer twice into one queue. It knows exactly which of the newest `SPAN`
numbers a queue has had, and takes all older ones for had. So a number never means two messages, and no
message is sent while one that is `SPAN` numbers older is in doubt.

The file has the epoch of the newest process (`epoch`), the first number whose outcome the application may not
know (`next_number`), and the first number that no process ever used (`unused_from`). It is written

- when a process begins, before the broker hears of it: with a higher epoch, so that the broker fences the
  older process;
- before a message is sent whose number has no room yet: `unused_from` then gives room for `SPAN` numbers;
- when the publisher is closed.

Each write makes a new file, syncs it, and puts it in the place of the old one, under a lock of the folder. A
process that finds a higher epoch there has been replaced, and changes nothing.

Role: used by the publishers of both kits. Owner: one publisher, on its thread.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from understudy.shared.file_errors import of_file
from understudy.shared.folders import make_folders
from understudy.shared.text import shown

SPAN = 1024
"""Numbers from the oldest message in doubt to the newest one: the broker's window."""
LONGEST_NAME = 255
"""Octets."""
HIGHEST = 1 << 53
"""Readers of ledgers take no higher numbers."""
_HIGHEST_EPOCH = 1 << 62
_LARGEST = 4096
"""Octets of a file that may be one of these."""


class NotExactlyOnce(Exception):
    """A publisher cannot make sure that no message is in a queue twice, and sends nothing. Or a consumer
    cannot make sure that no message is processed twice. `str()` is one line, and says what to do."""


class Fenced(NotExactlyOnce):
    """A newer process has taken this publisher's name: this one may not publish any more."""


@dataclass(slots=True, frozen=True)
class _State:
    epoch: int
    next_number: int
    unused_from: int


class Numbers:
    """The numbers of one publisher in this process.

    `known`: there is a file. `epoch`: of this process. `next_number`: as in the file. `unused_from`: when
    this process began, no other had used this number or a higher one. `limit`: messages below this number may
    be sent now.
    """

    def __init__(self, directory: str, name: str, epoch: int) -> None:
        """Read the file, and note this process in it. `epoch` is the least that this process may have.

        Raises NotExactlyOnce, and ValueError for a name that is too long.
        """
        if len(name.encode()) > LONGEST_NAME:
            raise ValueError(f"the name of an exactly-once publisher has at most {LONGEST_NAME} octets")
        self.name = name
        self.path = f"{directory}/{quote(name, safe='')}.producer.json"
        self._directory = directory
        with self._locked():
            found = self._read()
            self.known = found is not None
            self.epoch = epoch if found is None else max(epoch, found.epoch + 1)
            self.next_number = 1 if found is None else found.next_number
            self.unused_from = self.next_number if found is None else found.unused_from
            self.limit = self.unused_from
            if found is not None:
                self._write(self.next_number, self.unused_from)

    def create(self) -> None:
        """Make the file of a publisher that is new, or said from where it goes on. Raises NotExactlyOnce."""
        with self._locked():
            found = self._read()
            if found is not None and found.epoch != self.epoch:  # not of this process, interrupted here
                raise Fenced(
                    f"publisher {shown(self.name)}: another process has begun to publish under this name:"
                    " end it first, or use another name"
                )
            self._write(self.next_number, self.limit)
            self.known = True

    def go_on_at(self, number: int) -> None:
        """The next message has this number. Numbers that were used before may follow."""
        self.next_number = number
        if not self.known:
            self.unused_from = number
        self.limit = min(self.unused_from, number + SPAN)

    def make_room(self, oldest: int) -> None:
        """Allow messages up to `SPAN` numbers from `oldest` on, the oldest one whose outcome the application
        may not know. Without a file, nothing is sent before `create`. Raises NotExactlyOnce."""
        if oldest + SPAN <= self.limit:
            return
        if self.known:
            self._change(oldest, max(self.unused_from, oldest + SPAN))
        self.limit = oldest + SPAN

    def close(self, oldest: int, unused: int) -> None:
        """`unused`: no message of this process had this number or a higher one. Raises NotExactlyOnce."""
        self._change(oldest, max(self.unused_from, unused))

    def _change(self, next_number: int, unused_from: int) -> None:
        with self._locked():
            found = self._read()
            if found is not None and found.epoch > self.epoch:
                raise Fenced(
                    f"publisher {shown(self.name)} may not go on: a newer process has noted itself in"
                    f" {self.path}: end this one"
                )
            self._write(next_number, unused_from)
        self.next_number = next_number

    # -- the file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder. Raises NotExactlyOnce for any error of the file system."""
        try:
            make_folders(self._directory, 0o700)
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield
            finally:
                os.close(folder)
        except OSError as error:
            why = of_file(error, self.path)
            raise NotExactlyOnce(f"cannot keep the publisher's numbers in {self.path}: {why}") from error

    def _read(self) -> _State | None:
        try:
            with open(self.path, "rb") as file:
                data = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        try:
            return self._parsed(json.loads(data) if len(data) <= _LARGEST else None)
        except (ValueError, RecursionError):
            raise NotExactlyOnce(
                f"{self.path} does not have the numbers of publisher {shown(self.name)}: delete it,"
                " and call `resume(at=N)`, where N is the first number that may be unconfirmed"
            ) from None

    def _parsed(self, told: Any) -> _State:
        """Raises ValueError."""
        if not isinstance(told, dict) or told.get("producer") != self.name or told.get("v") != 1:
            raise ValueError
        found = [told.get(key) for key in ("epoch", "next_number", "unused_from")]
        epoch, next_number, unused_from = [value if type(value) is int else -1 for value in found]
        if not (0 <= epoch < _HIGHEST_EPOCH and 1 <= next_number <= unused_from <= HIGHEST + SPAN):
            raise ValueError
        return _State(epoch, next_number, unused_from)

    def _write(self, next_number: int, unused_from: int) -> None:
        """Durable on return, whole or not at all. Raises OSError."""
        state = {
            "v": 1, "producer": self.name, "epoch": self.epoch, "next_number": next_number,
            "unused_from": unused_from,
        }  # fmt: skip
        part = self.path + ".part"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            os.write(fd, json.dumps(state).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(part, self.path)
        folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

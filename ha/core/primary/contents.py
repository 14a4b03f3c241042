"""Contents: octets of large messages that go to the backups while the client still sends them.

A batch is sent whole, and what comes after it waits. So a large message does not go with its batch: its
octets go before, in pieces, with the batches of others between them, and the batch names them. Of a message
that is dropped, or that no batch brings, the backups are told so.

Owner: Primary, which lends it the backups. A backup gets all of a message ahead, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ha.core.primary.content import Content, Progress, Source
from ha.core.primary.remote_backup import RemoteBackup
from ha.core.tuning import Tuning
from ha.core.wire.link import Frame, content_number, frame

Stream = Callable[[RemoteBackup, list[bytes]], int]


class Place(NamedTuple):
    """A record of a batch that has the octets of a content from `at` on."""

    record: int
    at: int
    content: Content


class Contents:
    """The messages that go ahead, and how far each backup has them."""

    def __init__(self, tuning: Tuning, backups: Callable[[], Iterable[RemoteBackup]], stream: Stream) -> None:
        self._tuning = tuning
        self._backups = backups
        self._stream = stream
        self._numbers = 0
        self._open: dict[int, Content] = {}
        self.whole: dict[int, Content] = {}
        """Those that a batch of this tick may bring, by the identity of their octets."""

    def begin(self, source: Source) -> Content | None:
        """A large message begins to come. None if it does not go ahead: no backup follows, or as much as
        allowed is on its way already."""
        following = [backup for backup in self._backups() if backup.live and not backup.behind]
        if not following or sum(c.octets for c in self._open.values()) >= self._tuning.contents_max:
            return None
        self._numbers += 1
        content = self._open[self._numbers] = Content(self._numbers, source)
        for backup in following:
            backup.contents[content.number] = Progress(content)
        return content

    def piece(self, content: Content, octets: bytes | bytearray) -> None:
        """More of it has come. Small parts are joined: each piece is worth a frame of the link."""
        if content.number not in self._open:
            return
        enough = self._tuning.contents_piece
        if content.rest or len(octets) < enough:
            content.rest += octets
            if len(content.rest) < enough:
                return
            octets = bytes(content.rest)
            content.rest.clear()
        content.cut(octets)
        for backup in self._backups():
            self.send(backup)
        self._heed(content)

    def complete(self, content: Content, raw: bytes, at: int) -> None:
        """All of it has come: its pieces are `raw[at : at + octets]`. As `raw` it is published, if it is."""
        if content.number in self._open:
            if content.rest:
                content.cut(content.rest)
            content.raw, content.at = raw, at
            self.whole[id(raw)] = content

    def drop(self, content: Content) -> None:
        """A batch has brought it, or none does: then backups that have a part of it are told so."""
        if self._open.pop(content.number, None) is None:
            return
        self.whole.pop(id(content.raw), None)
        for backup in self._backups():
            progress = backup.contents.pop(content.number, None)
            if progress is not None and progress.pieces:
                self._stream(backup, frame(Frame.CONTENT_GONE, [content_number(content.number)]))
        self._congest(content, False)

    def end_tick(self) -> None:
        """No later batch brings a message that was whole in this tick. A backup that is gone is not waited
        for."""
        for content in list(self.whole.values()):
            self.drop(content)
        for content in self._open.values():
            if content.congested:
                self._heed(content)

    def send(self, backup: RemoteBackup, *, only: Content | None = None) -> None:
        """As much as the window lets, the oldest first. `only`: all that is left of this one, at once."""
        found = backup.contents.values() if only is None else [backup.contents[only.number]]
        room = self._tuning.contents_window - backup.in_flight
        parts: list[bytes] = []
        for progress in found:
            number, pieces = content_number(progress.content.number), progress.content.pieces
            while progress.pieces < len(pieces) and (room > 0 or only is not None):
                piece = pieces[progress.pieces]
                parts += frame(Frame.CONTENT, [number, piece])
                progress.pieces += 1
                progress.octets += len(piece)
                room -= len(piece)
        self._stream(backup, parts)

    def moved(self, backup: RemoteBackup) -> None:
        """A backup has taken more."""
        if backup.contents:
            self.send(backup)
            for progress in list(backup.contents.values()):
                self._heed(progress.content)

    def places(self, backup: RemoteBackup, places: list[Place]) -> list[Place]:
        """Those of `places` whose octets this backup has; what is left of them is sent, and counts as
        brought."""
        found = [place for place in places if place.content.number in backup.contents]
        for content in {place.content.number: place.content for place in found}.values():
            self.send(backup, only=content)
            del backup.contents[content.number]
        return found

    def _heed(self, content: Content) -> None:
        """Its client waits while some backup lags behind what has come of it. Pieces that were sent to all
        backups are held no longer."""
        found = [b.contents[content.number] for b in self._backups() if content.number in b.contents]
        content.let_go(min((progress.pieces for progress in found), default=len(content.pieces)))
        behind = [content.octets - progress.octets for progress in found]
        most = self._tuning.contents_window // (2 if content.congested else 1)
        self._congest(content, max(behind, default=0) > most)

    def _congest(self, content: Content, congested: bool) -> None:
        if congested is not content.congested:
            content.congested = congested
            content.source.congest(congested)

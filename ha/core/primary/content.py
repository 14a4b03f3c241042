"""One large message whose octets go to the backups before its batch does. See `contents`, which owns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class Source(Protocol):
    """The connection that sends a message."""

    def congest(self, congested: bool) -> None:
        """True: the backups lag behind it, read no more from it. False: go on."""


@dataclass(slots=True, eq=False)
class Content:
    """One message on its way. `raw[at : at + octets]` is what its pieces make, once it is whole. `rest`: what
    has come and is not enough for a piece. `gone`: so many pieces are not held any more."""

    number: int
    source: Source
    pieces: list[bytes] = field(default_factory=list)
    octets: int = 0
    gone: int = 0
    rest: bytearray = field(default_factory=bytearray)
    raw: bytes | None = None
    at: int = 0
    congested: bool = False

    def cut(self, octets: bytes | bytearray) -> None:
        """One more piece."""
        self.pieces.append(bytes(octets))
        self.octets += len(octets)

    def let_go(self, end: int) -> None:
        """The pieces before `end` are no longer needed."""
        if end > self.gone:
            self.pieces[self.gone : end] = [b""] * (end - self.gone)
            self.gone = end


@dataclass(slots=True)
class Progress:
    """What of one content has been sent to one backup."""

    content: Content
    pieces: int = 0
    octets: int = 0

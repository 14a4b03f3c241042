"""ContentAhead: one large message, as the broker shows it to the core. Owner: the connection that receives
it."""

from __future__ import annotations

from ha.core.ha_broker import HaBroker
from ha.core.primary.content import Content
from ha.core.primary.primary import Primary


class ContentAhead:
    """Implements `broker.hooks.LargeMessage`. Does nothing once its primary has ended."""

    def __init__(self, core: HaBroker, primary: Primary, content: Content) -> None:
        self._core = core
        self._primary = primary
        self._content = content
        self._whole = False

    @property
    def _serves(self) -> bool:
        return self._core.primary is self._primary

    def piece(self, octets: bytes | bytearray) -> None:
        if self._serves:
            self._primary.contents.piece(self._content, octets)

    def whole(self, raw: bytes, at: int) -> None:
        self._whole = True
        if self._serves:
            self._primary.contents.complete(self._content, raw, at)

    def dropped(self) -> None:
        if self._serves and not self._whole:
            self._primary.contents.drop(self._content)

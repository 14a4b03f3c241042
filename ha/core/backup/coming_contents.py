"""ComingContents: what a backup holds of large messages that come ahead of their batches. See `contents`.

Owner: BrokerReplicator, one per link.
"""

from __future__ import annotations

from ha.core.errors import LinkError
from ha.core.wire.link import FRAME_LIMIT, BatchHead, parse_batch_of_contents, parse_content


class ComingContents:
    """By number, the pieces of each."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[bytes]] = {}
        self.octets = 0

    def piece(self, body: bytes) -> None:
        """CONTENT. LinkError if it is too much."""
        number, octets = parse_content(body)
        self.octets += len(octets)
        if self.octets > FRAME_LIMIT:
            raise LinkError(f"{self.octets} bytes of messages that are in no batch")
        self._pieces.setdefault(number, []).append(octets)

    def gone(self, body: bytes) -> None:
        """CONTENT_GONE. LinkError if nothing of it has come."""
        self._forget(parse_content(body)[0])

    def batch(self, body: bytes) -> BatchHead:
        """BATCH_OF_CONTENTS, as BATCH would have been. LinkError if nothing of a message has come."""
        numbers: set[int] = set()

        def take(number: int) -> list[bytes]:
            numbers.add(number)
            return self._of(number)

        head = parse_batch_of_contents(body, take)
        for number in numbers:
            self._forget(number)
        return head

    def _of(self, number: int) -> list[bytes]:
        pieces = self._pieces.get(number)
        if pieces is None:
            raise LinkError(f"message {number} of the link, of which nothing has come")
        return pieces

    def _forget(self, number: int) -> None:
        self.octets -= sum(map(len, self._of(number)))
        del self._pieces[number]

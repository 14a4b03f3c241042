"""Which message a consumer with `exactly_once` has in hand, and which it skips.

Role: between `ConsumerBase` and its memory of processed messages (`processed`). Owner: the consumer.

The application has at most one message in hand, so that a transaction holds the work of one message. The
message stays in hand when the connection is lost: its work may be done all the same. It then comes again, but
is looked for in the memory only after the application has acked or rejected it.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from understudy.client.ledgers import ID_HEADER, ReplicationId
from understudy.client.numbering import NotExactlyOnce
from understudy.client.processed import Processed, ProcessedFile

CONFIRMED_ONLY = "x-confirmed-only"


def asked_of_brokers(*, confirmed_only: bool) -> tuple[str, ...]:
    """Consumer arguments, or link properties, that are true."""
    return (ID_HEADER, CONFIRMED_ONLY) if confirmed_only else (ID_HEADER,)


class Once:
    """`in_hand`: the delivery that the application works on."""

    __slots__ = ("_memory", "in_hand")

    def __init__(self, memory: Processed) -> None:
        self._memory = memory
        self.in_hand: Any = None

    def expect_none(self) -> None:
        """Raises RuntimeError if the application asks for a second message."""
        if self.in_hand is not None:
            raise RuntimeError("exactly_once: ack or reject the last message before you ask for the next")

    def skips(self, delivery: Any) -> bool:
        """Whether the message is processed already. Otherwise it is in hand from now on.

        Messages without the flag `redelivered` are looked for, too: after a forced promotion two brokers may
        serve for a while, and neither knows what the other one has delivered. Raises NotExactlyOnce.
        """
        if delivery.id is None:
            raise NotExactlyOnce(
                "exactly_once: the broker does not identify its messages (x-replication-id): use an"
                " Understudy broker, or leave exactly_once out"
            )
        if self._memory.has(delivery.id):
            self._memory.undo()  # ends the transaction of the look
            return True
        self.in_hand = delivery
        return False

    def done(self, delivery: Any) -> bool | None:
        """Remember the message in hand. None: it is not in hand. False: another consumer has processed it."""
        if delivery is not self.in_hand:
            return None
        id_: ReplicationId = delivery.id
        done = self._memory.done(id_)
        self.in_hand = None
        return done

    def undo(self) -> None:
        """The message in hand, if any, is not processed."""
        in_hand, self.in_hand = self.in_hand, None
        if in_hand is not None:
            self._memory.undo()

    def flush(self) -> None:
        self._memory.flush()

    def close(self) -> None:
        try:
            self.undo()
        finally:
            self._memory.close()

    def abandon(self) -> None:
        self._memory.abandon()


def once_of(
    exactly_once: bool,
    processed: str | os.PathLike[str] | Processed | None,
    ledger_dir: str | os.PathLike[str] | None,
    name: str,
) -> Once | None:
    """What a consumer's arguments ask for. Raises ValueError, and NotExactlyOnce for a file that cannot be
    used."""
    if not exactly_once:
        if processed is not None:
            raise ValueError("processed needs exactly_once=True")
        return None
    if processed is None:
        if ledger_dir is None:
            raise ValueError("exactly_once needs processed= (a file or a Processed), or ledger_dir")
        processed = os.path.join(ledger_dir, f"{quote(name, safe='')}.processed.db")
    return Once(ProcessedFile(processed) if isinstance(processed, str | os.PathLike) else processed)

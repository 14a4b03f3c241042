"""Turns the history of each tick into ledger records, on a node that serves and on a backup.

`LedgerSink` is a ledger writer that also takes a `Batch` of history. Owner: the node. The node calls `batch`
for each batch (made on a primary, applied on a backup), and calls `flush` once a tick, before confirms leave.
Each run and range costs 1 to 1.5 us, whatever the number of its messages.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.model.history.batch import Batch
from broker.model.history.records import (
    Commit,
    Dequeue,
    Duplicate,
    EnqueueRun,
    EntryDelete,
    Numbering,
    QueueDeclare,
    Record,
    Unrouted,
)
from broker.model.values import Reason, Scope
from broker.model.vhost.producer_entries import PRODUCER
from understudy.ledger.writer import LedgerWriter

PRIMARY = "primary"
BACKUP = "backup"

_REASONS = {reason: reason.ledger_name for reason in Reason}
_DURABLE = tuple(',"durable":1' if scope & Scope.STORE else "" for scope in map(Scope, range(4)))
"""The `durable` field of an enqueue, by scope. Confirms of messages in the store wait for the disk."""


class LedgerSink(LedgerWriter):
    """The ledger of a broker."""

    def close(self, *, seal: bool = False) -> None:
        """Flush and close, by default without a seal: the node writes the seal itself after a clean end."""
        super().close(seal=seal)

    def batch(self, batch: Batch, role: str) -> None:
        """Gather the records of one batch. `role`: PRIMARY if this node made the batch, BACKUP if it applied
        a primary's batch.

        The `view` of each record is the epoch of the batch's position: the epoch of the primary that made the
        batch.
        """
        if not batch.records:
            return
        if not self._lines:
            self._ts = self._clock()
        epoch, n = batch.position
        rest = f',"ts_us":{self._ts},"view":{epoch},"kind":"'
        backup = "" if role == PRIMARY else "backup_"
        prefix, lines, escaped = self._prefix, self._lines, self.escaped
        wseq = self._wseq
        for record in batch.records:
            if isinstance(record, EnqueueRun):
                origin = f',"n":{n}{_DURABLE[record.scope]}}}\n'
                if record.numbering is not None:
                    name, _, number = record.numbering
                    origin = f',"name":{escaped(name)},"number":{number}{origin}'
                if record.producer is not None:
                    producer = escaped(record.producer)
                    origin = f',"prod":{producer},"pfirst":{record.producer_first}{origin}'
                id_epoch, more = record.envelope.epoch, record.count - 1
                for queue, first in zip(record.queues, record.firsts, strict=True):
                    lines.append(
                        f'{prefix}{wseq}{rest}{backup}enqueue","queue":"{queue.hex()}","epoch":{id_epoch},'
                        f'"first":{first},"last":{first + more}{origin}'
                    )
                    wseq += 1
            elif isinstance(record, Dequeue):
                start = (
                    f'{rest}{backup}dequeue","queue":"{record.queue.hex()}","epoch":{record.epoch},"reason":'
                    f'"{_REASONS[record.reason]}","first":'
                )
                for first, last in record.ranges:
                    lines.append(f'{prefix}{wseq}{start}{first},"last":{last}}}\n')
                    wseq += 1
            elif (told := _told(record, n, escaped)) is not None:
                lines.append(f"{prefix}{wseq}{rest}{told}}}\n")
                wseq += 1
        self._wseq = wseq


def _told(record: Record, n: int, escaped: Callable[[str], str]) -> str | None:
    """From the kind on: what the ledger says of a record that is neither an enqueue nor a dequeue. None:
    nothing."""
    match record:
        case Unrouted(producer, first, last, _, why):
            reason = f'"reason":"{why}",' if why else ""
            return f'unrouted","prod":{escaped(producer)},{reason}"first":{first},"last":{last}'
        case Duplicate(queue, producer, first, last, numbering):
            session = f'"prod":{escaped(producer)},' if producer else ""
            numbers = _numbers(numbering, escaped)
            return f'duplicate","queue":"{queue.hex()}",{session}"first":{first},"last":{last}{numbers}'
        case Commit(producer, first, last):
            return f'commit","prod":{escaped(producer)},"first":{first},"last":{last},"n":{n}'
        case QueueDeclare():
            copied = ',"reason":"replicated"' if record.content_scope & Scope.LINK else ""
            return f'definition","queue":"{record.uuid.hex()}"{copied},"name":{escaped(record.title)}'
        case EntryDelete(kind, _, name) if kind == PRODUCER:
            return f'forgotten","name":{escaped(name)}'
        case _:
            return None


def _numbers(numbering: Numbering | None, escaped: Callable[[str], str]) -> str:
    """None: the messages are known by ids of their own."""
    return "" if numbering is None else f',"name":{escaped(numbering.producer)},"number":{numbering.first}'

"""Ledgers of clients: what a publisher sent and what a consumer received, one line for each run of messages.

Role: used by the publishers and consumers of both kits (0-9-1 and 1.0). Owner: one publisher or consumer, on
its own thread. A client without a ledger pays next to nothing for these calls.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from understudy.ledger.ranges import RangeGatherer
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.ledger.writer import LedgerWriter, parse_writer_name, wall_microseconds

ID_HEADER = "x-replication-id"
_ID = re.compile("([0-9a-f]{32}):([0-9]{1,18}):([0-9]{1,18})")
_LEDGER_INTERVAL = 0.05
_newest = 0
"""The last incarnation given to any client of this process."""
_newest_lock = threading.Lock()


class Pulse:
    """Writes heartbeats into a client's ledger, at least every `every` seconds while the kit is called.

    There is no thread: the ledger of an application that does not call the kit stays silent."""

    __slots__ = ("_at", "_every", "_ledger")

    def __init__(self, ledger: LedgerWriter | None, every: float = LEDGER_HEARTBEAT) -> None:
        self._ledger = ledger
        self._every = every / 3
        self._at = time.monotonic()

    @property
    def left(self) -> float:
        """Seconds until the next call of `beat`; at most 1, because the broker needs heartbeats, too."""
        return 1.0 if self._ledger is None else min(1.0, max(self._at + self._every - time.monotonic(), 0.01))

    def beat(self) -> None:
        """Write a heartbeat if one is due. Cheap: call it often."""
        if self._ledger is not None and (now := time.monotonic()) - self._at >= self._every:
            self._at = now
            self._ledger.beat()


def open_ledger(ledger_dir: Any, name: str, role: str, incarnation: int) -> LedgerWriter | None:
    """Open the client's ledger; None without `ledger_dir`. Raises LedgerError, and ValueError for a name that
    is not a valid writer name."""
    if ledger_dir is None:
        return None
    return LedgerWriter(str(ledger_dir), parse_writer_name(name), role, incarnation=incarnation)


def new_incarnation() -> int:
    """A number for this life of a client: milliseconds since 1970, or more.

    Each call returns a higher number than the last, so two clients of one process never share one, even if
    they start within a millisecond or the clock is set back."""
    global _newest
    with _newest_lock:
        _newest = max(time.time_ns() // 1_000_000, _newest + 1)
        return _newest


class ReplicationId(NamedTuple):
    """Identifies a message permanently: the queue's UUID (32 hex digits), epoch and sequence."""

    queue: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.queue}:{self.epoch}:{self.sequence}"


def parse_replication_id(text: Any) -> ReplicationId | None:
    """`"<queue uuid hex>:<epoch>:<sequence>"`, or None for any other text."""
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else ReplicationId(found[1], int(found[2]), int(found[3]))


@dataclass(slots=True)
class _Run:
    """Messages of one session and one route with consecutive tags and sequences: one line of the ledger."""

    session: str
    route: tuple[str, str]
    first_tag: int
    last_tag: int
    first_sequence: int


class _Ledger(ABC):
    """Writes to the ledger file through a `LedgerWriter`; does nothing without one."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LedgerWriter | None) -> None:
        self._writer = writer

    @abstractmethod
    def write(self) -> None:
        """Write all gathered records to the ledger file, and flush it to the kernel."""

    def close(self) -> None:
        if self._writer is not None:
            self.write()
            self._writer.close()

    def abandon(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()


class SentLedger(_Ledger):
    """A publisher's ledger: which of its sequences were sent under which tags, and the outcome of each."""

    __slots__ = ("_at", "_run")

    def __init__(self, writer: LedgerWriter | None) -> None:
        super().__init__(writer)
        self._run: _Run | None = None
        self._at = 0.0

    def sent(self, session: str, exchange: str, routing_key: str, tag: int, sequence: int) -> None:
        """Call this before the bytes are sent, so that no confirm precedes its `sent` record."""
        if self._writer is None:
            return
        run = self._run
        if run is not None:
            if (
                sequence == run.first_sequence + tag - run.first_tag
                and tag == run.last_tag + 1
                and (run.route, run.session) == ((exchange, routing_key), session)
            ):
                run.last_tag = tag
                return
            self._end_run()
        self._run = _Run(session, (exchange, routing_key), tag, tag, sequence)
        if time.monotonic() - self._at > _LEDGER_INTERVAL:
            self._at = time.monotonic()
            self._writer.flush()

    def settled(self, session: str, first: int, last: int, outcome: str, reason: str | None = None) -> None:
        """`outcome`: confirmed, nacked or returned. `reason`: the broker's reason, if it gave one."""
        if self._writer is not None:
            self._end_run()
            self._writer.record(outcome, prod=session, first=first, last=last, reason=reason)

    def write(self) -> None:
        if self._writer is not None:
            self._end_run()
            self._writer.flush()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None and self._writer is not None:
            self._writer.record(
                "sent",
                prod=run.session,
                first=run.first_tag,
                last=run.last_tag,
                pfirst=run.first_sequence,
                name="|".join(run.route),
            )


class ReceivedLedger(_Ledger):
    """A consumer's ledger: message ids when they were handed out, and again once their ack is written.

    `title`: the queue's name as brokers write it in their ledgers."""

    __slots__ = ("_acked", "_named", "_run", "_run_at", "_title")

    def __init__(self, writer: LedgerWriter | None, title: str) -> None:
        super().__init__(writer)
        self._title = title
        self._named: set[str] = set()
        self._run: tuple[str, int, int, int, bool] | None = None
        self._run_at = 0
        """When the first message of the run was handed out, in microseconds since 1970."""
        self._acked: RangeGatherer[tuple[str, int]] = RangeGatherer()

    def received(self, id_: ReplicationId | None, redelivered: bool) -> None:
        """Record ids as they arrive and join only consecutive ones: order and repetition stay visible."""
        if self._writer is None or id_ is None:
            return
        queue, epoch, sequence = id_
        run = self._run
        if run is not None:
            if sequence == run[3] + 1 and epoch == run[1] and queue == run[0] and redelivered == run[4]:
                self._run = (queue, epoch, run[2], sequence, run[4])
                return
            self._end_run()
        self._run = (queue, epoch, sequence, sequence, redelivered)
        self._run_at = wall_microseconds()

    def acked(self, id_: ReplicationId | None) -> None:
        if id_ is not None:
            self._acked.add((id_.queue, id_.epoch), id_.sequence)

    def write(self) -> None:
        if self._writer is None:
            return
        self._end_run()
        for (queue, epoch), first, last in self._acked.drain():
            self._writer.record("acked", queue=queue, epoch=epoch, first=first, last=last)
        self._writer.flush()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is None or self._writer is None:
            return
        queue, epoch, first, last, redelivered = run
        if queue not in self._named:
            self._named.add(queue)
            self._writer.record("definition", queue=queue, name=self._title)
        self._writer.record(
            "received",
            queue=queue,
            epoch=epoch,
            first=first,
            last=last,
            reason="redelivered" if redelivered else None,
            at=self._run_at,
        )

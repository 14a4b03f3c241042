"""RecordKeeper: this node's dealings with the authority: one commit of the record at a time, and reads.

Owner: HaBroker; called by Primary (inclusions, exclusions) and Promotion. The record in the authority is the
truth; this node's own copy of it (`LocalRecord`) follows what is known to be committed.

While the outcome of a commit is not known, whoever asked for it goes by the stricter of the two records, and
the *same* swap is asked for again: that it had been done the first time shows as a conflict with itself,
since epoch, revision and owner belong to one record only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ha.core import codes
from ha.core.errors import Broken, LinkError
from ha.core.outbox import Outbox
from ha.core.record.authority import Authority
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion, is_behind, record_from_json
from ha.core.record.local_record import LocalRecord
from understudy.shared.codes import Coded

RETRY = 0.2
"""Seconds until the authority is asked again, when it did not answer."""
SWAP_PATIENCE = 10.0
"""Seconds after which a swap without any answer counts as `unknown`. A driver answers much earlier."""
READS = 8
"""Most reads that are open at once: an authority that is asked regularly and never answers."""


class Outcome(enum.Enum):
    """What became of a request."""

    DONE = "done"
    """Read: the record is what it holds, None if nothing. Swap: replaced."""
    CONFLICT = "conflict"
    """The swap was refused, and will be: the record is what it holds."""
    NOT_YET = "not yet"
    """This request has written nothing, and will not; the same may be asked for later."""
    UNKNOWN = "unknown"
    """No answer: a swap may have happened, may not have, and may yet."""


Told = Callable[[InSyncRecord | None, float], None]
"""Gets what the authority holds, and the time."""
ReadAnswer = Callable[[Outcome, InSyncRecord | None, float, float], None]
"""Gets the outcome, what it holds, when that was asked, and the time."""


Deferred = Callable[[str, float], None]
"""Gets the authority's sentence, and the time."""


def _never(now: float) -> bool:
    return False


@dataclass(slots=True)
class Commit:
    """A change that is being asked for. `done` is called once the copy here is handed to the disk."""

    record: InSyncRecord
    expected: RecordVersion | None
    done: Callable[[float], None]
    refused: Told
    restores: Callable[[float], bool] = _never
    """Whether whoever asks may have it replace what the authority has instead, if that is less than what was
    expected: nothing, or an earlier record of this very term."""
    deferred: Deferred | None = None
    """Of one that the authority does not want yet, and certainly does not have: it is dropped then, so that
    another may go first. None: it is asked for again until it is done or refused."""
    perhaps: bool = False
    """It was asked for, and no answer came: the authority may have it, or may have it yet."""
    request_id: int = 0
    asked_at: float = 0.0
    retry_at: float | None = None
    """When to ask again; None while an answer is awaited."""


class RecordKeeper:
    """`owned_at`: when the authority was asked for the answer that last showed this node as the owner;
    `changed_at`: when a commit was last known to be done; `owner_gone`: by the authority's last answer,
    the owner of the record of that version has let its lease there run out; `trouble`: why the last read said
    nothing, in a sentence, or "".
    """

    def __init__(self, local: LocalRecord, outbox: Outbox, authority: Authority) -> None:
        self._local = local
        self._out = outbox
        self._authority = authority
        self._commit: Commit | None = None
        self._reads: dict[int, tuple[float, ReadAnswer]] = {}
        self._requests = 0
        self.owned_at = self.changed_at = float("-inf")
        self.owner_gone: RecordVersion | None = None
        self.trouble = ""
        self._unreadable = ""

    @property
    def arbitrates(self) -> bool:
        """Is there one record, and not a copy of it with each node?"""
        return self._authority.ARBITRATES

    @property
    def busy(self) -> bool:
        """A commit is in flight: another must wait."""
        return self._commit is not None

    def propose(
        self, record: InSyncRecord, expected: RecordVersion | None, done: Callable[[float], None],
        refused: Told, now: float, restores: Callable[[float], bool] = _never,
        deferred: Deferred | None = None,
    ) -> None:  # fmt: skip
        """Have `record` replace the one of version `expected` (None: there is none). With an authority that
        is this node's own copy, `done` is called before this returns. `restores`, `deferred`: see Commit.
        """
        if self._commit is not None:
            raise Broken("two commits of the record at once")
        self._commit = Commit(record, expected, done, refused, restores, deferred)
        self._ask(self._commit, now)

    def read(self, then: ReadAnswer, now: float, *, renews: bool = False) -> bool:
        """Ask what the authority holds; False if it has nothing but what the brokers tell each other.
        `renews`: see ReadRegister."""
        effect = self._authority.read(self._next_id(), renews=renews)
        if effect is None:
            return False
        while len(self._reads) >= READS:
            del self._reads[next(iter(self._reads))]
        self._reads[self._requests] = (now, then)
        self._out.do(effect)
        return True

    def answered(
        self, request_id: int, outcome: Outcome, document: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None:  # fmt: skip
        """The authority's answer. An answer to a request that is no longer open is ignored; one that cannot
        be read counts as no answer. `owner_gone`: of a read; the owner's lease there has run out."""
        try:
            held = record_from_json(document) if document is not None else None
            self._unreadable = ""
        except LinkError as error:
            said = codes.AUTHORITY_UNREADABLE.say(fault=error)
            if said.sentence != self._unreadable:
                self._out.warn(said)
            self._unreadable = reason = said.sentence
            outcome, held = Outcome.UNKNOWN, None
        read = self._reads.pop(request_id, None)
        if read is not None:
            asked_at, then = read
            self.trouble = reason if outcome is not Outcome.DONE else ""
            if outcome is Outcome.DONE:
                self.owner_gone = held.version if held is not None and owner_gone else None
            then(outcome, held, asked_at, now)
            return
        commit = self._commit
        if commit is None or commit.request_id != request_id or commit.retry_at is not None:
            return
        if outcome is Outcome.NOT_YET and commit.deferred is not None and not commit.perhaps:
            self._commit = None
            commit.deferred(reason, now)
        elif outcome in (Outcome.NOT_YET, Outcome.UNKNOWN):
            commit.perhaps = commit.perhaps or outcome is Outcome.UNKNOWN
            commit.retry_at = now + RETRY
        elif is_behind(commit.record, self._local.record):
            # It was done, perhaps, and another has replaced it since: this node has heard of that already.
            self._commit = None
            commit.refused(self._local.record, now)
        elif outcome is Outcome.DONE or same(held, commit.record):
            self.owned(commit.asked_at)
            self._done(commit, now)
        elif lost(held, commit.record) and commit.restores(now):
            self._out.log(record_lost(held) + "; what is to be the record replaces that, too")
            commit.expected, commit.retry_at = held.version if held is not None else None, now + RETRY
        else:
            self._commit = None
            commit.refused(held, now)

    def forget(self) -> None:
        """A role has ended: drop its open commit and reads. Their answers are ignored."""
        self._commit = None
        self._reads.clear()

    def owned(self, asked_at: float) -> None:
        """An answer to a question of `asked_at` showed this node as the owner. (A commit to this node's own
        copy asks nobody, and shows nothing.)"""
        self.owned_at = max(self.owned_at, asked_at)

    def timers(self, now: float) -> None:
        commit = self._commit
        if commit is None:
            return
        if commit.retry_at is None and now >= commit.asked_at + SWAP_PATIENCE:
            commit.perhaps, commit.retry_at = True, now
        if commit.retry_at is not None and now >= commit.retry_at:
            self._ask(commit, now)

    def next_deadline(self) -> float | None:
        commit = self._commit
        if commit is None:
            return None
        return commit.retry_at if commit.retry_at is not None else commit.asked_at + SWAP_PATIENCE

    def _ask(self, commit: Commit, now: float) -> None:
        commit.request_id, commit.asked_at, commit.retry_at = self._next_id(), now, None
        effect = self._authority.swap(commit.request_id, commit.expected, commit.record)
        if effect is None:
            self._done(commit, now)
        else:
            self._out.do(effect)

    def _done(self, commit: Commit, now: float) -> None:
        self._commit, self.changed_at = None, now
        self._local.save(commit.record, False)
        commit.done(now)

    def _next_id(self) -> int:
        self._requests += 1
        return self._requests


def same(held: InSyncRecord | None, record: InSyncRecord) -> bool:
    """Whether the authority holds that very record."""
    return held is not None and held.version == record.version and held.owner == record.owner


def lost(held: InSyncRecord | None, record: InSyncRecord) -> bool:
    """Has the authority lost this record, with no other made since? It then holds nothing, or an earlier
    revision of the same owner and epoch."""
    if held is None:
        return True
    return (held.owner, held.epoch) == (record.owner, record.epoch) and held.revision < record.revision


def authority_trouble(trouble: str) -> Coded:
    """Why nobody is promoted. `trouble`: `RecordKeeper.trouble`."""
    if trouble:
        return codes.PROMOTE_AUTHORITY_FAILS.say(trouble=trouble)
    return codes.PROMOTE_AUTHORITY_SILENT.say()


def record_lost(held: InSyncRecord | None) -> Coded:
    """`held`: what it has instead."""
    said = codes.RECORD_LOST.say()
    return said if held is None else said + f", and holds revision {held.revision} of the same epoch"

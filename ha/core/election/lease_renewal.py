"""LeaseRenewal: asks the authority, regularly, whether this node is still the primary.

Owner: HaBroker, for the node's life; at work while the node serves or is about to. Where the authority is
nothing but the brokers together, a round of hellos is asked instead: it counts if nobody who answers
knows of a higher epoch. (Whoever does makes this node step down, by the way of every hello.)
"""

from __future__ import annotations

from typing import Protocol

from ha.core.election.peers import Peers
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.lease import FOR_EVER, HelloRound
from ha.core.record.record_keeper import RETRY, Outcome, RecordKeeper, lost
from ha.core.tuning import Tuning


class Claimant(Protocol):
    """What HaBroker does for it."""

    @property
    def mine(self) -> InSyncRecord | None:
        """The record that the authority must still have."""

    def ask_all(self) -> None:
        """Say hello to every peer that this node has dialed."""

    def lease_renewed(self) -> None:
        """`keeper.owned_at` has moved."""

    def outdated(self, held: InSyncRecord, now: float) -> None:
        """The authority has that one, an earlier one of this very term."""

    def dethroned(self, held: InSyncRecord | None, now: float) -> None:
        """The authority has that one."""


class LeaseRenewal:
    """`seek_at`: when to ask next; not before, unless there is a pause to be made good."""

    def __init__(self, tuning: Tuning, keeper: RecordKeeper, peers: Peers, claimant: Claimant) -> None:
        self._tuning = tuning
        self._keeper = keeper
        self._peers = peers
        self._claimant = claimant
        self._round: HelloRound | None = None
        self.seek_at = 0.0

    def due(self, now: float) -> bool:
        """Ask, if it is time; whether all peers have been said hello to by it."""
        if now < self.seek_at:
            return False
        self.settle(now)
        third = self._tuning.lease / 3
        self.seek_at = now + min(third, self._tuning.failover_timeout / 3)
        if self._keeper.read(self._read, now, renews=True):
            return False
        self._peers.ask_anew()
        self._round = HelloRound(now, now + min(self._tuning.peer_patience, third))
        self._claimant.ask_all()
        return True

    def settle(self, now: float) -> None:
        """A hello was answered, or could not be, or time has passed."""
        if self._round is not None and self._round.done(self._peers.members, now):
            self._keeper.owned(self._round.asked_at)
            self._round = None
            self._claimant.lease_renewed()

    def forget(self) -> None:
        """The term is over."""
        self._round, self.seek_at = None, 0.0

    def next_deadline(self) -> float:
        return min(self.seek_at, self._round.deadline if self._round is not None else FOR_EVER)

    def _read(self, outcome: Outcome, held: InSyncRecord | None, asked_at: float, now: float) -> None:
        mine = self._claimant.mine
        if mine is None:
            return
        if outcome is Outcome.UNKNOWN:
            self.seek_at = min(self.seek_at, now + RETRY)
        elif held is not None and held.owner == mine.owner and held.epoch == mine.epoch:
            self._keeper.owned(asked_at)
            self._claimant.lease_renewed()
            if lost(held, mine) and asked_at > self._keeper.changed_at:
                self._claimant.outdated(held, now)
        else:
            self._claimant.dethroned(held, now)

"""Mutants of the pair controller: what a node that promotes itself must not take for the end of the other."""

from __future__ import annotations

from typing import Any

from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.connection_observer import Admission
from ha.core.effects import ClosePeer
from ha.core.election.pair.controller import PairController
from ha.core.election.pair.table import PairState
from ha.core.election.peers import NEVER, PeerMember
from ha.core.ha_broker import HaBroker
from ha.core.record.link_end import LinkEnd
from tests.simulation.mutants.mutant import Mutant, Patch


def _at_first_sight(timers: Any) -> Any:
    def broken(self: Backup, now: float) -> None:
        limit = self._silence()
        if self.peer is not None and now - self.last_heard > limit:
            peer = self.peer
            self._out.warn(codes.LINK_SILENT.say(primary=self.primary_name, seconds=limit))
            self.peer_lost(peer, False, now)
            self._out.do(ClosePeer(peer, 320, "CONNECTION_FORCED - silent"))

    return broken


def _no_connection(offline: Any) -> Any:
    def broken(self: PairController, entry: PeerMember, now: float) -> bool:
        return entry.peer is None or bool(offline(self, entry, now))

    return broken


def _one_silent_route(offline: Any) -> Any:
    def broken(self: PairController, entry: PeerMember, now: float) -> bool:
        silent = [now - route.heard_at for route in entry.routes if route.heard_at > NEVER]
        return max(silent, default=0.0) > 2 * self._tuning.heartbeat or bool(offline(self, entry, now))

    return broken


def _anybody_votes(admit: Any) -> Any:
    def broken(self: HaBroker, *, peer: bool) -> Admission:
        if peer:
            admit(self, peer=False)
        admission: Admission = admit(self, peer=peer)
        return admission

    return broken


def _no_order(state: Any) -> Any:
    def broken(self: PairController) -> PairState:
        found: PairState = state.fget(self)
        return PairState.PASSIVE if found is PairState.ORDERED else found

    return property(broken)


def _however_it_ended(proves: Any) -> Any:
    return lambda self, ack_timeout: True


MUTANTS = (
    Mutant(
        "a stopped backup takes its own silence for the primary's",
        "A backup that was stopped wakes, finds its primary silent before it reads what is in its sockets, "
        "and misses that it was excluded.",
        (1, 11),
        (Patch(Backup, "timers", _at_first_sight),),
        because="1 if something was confirmed without it, 11 if not.",
    ),
    Mutant(
        "a broken connection is a dead node",
        "Two nodes lose their connections, both live, and a client makes the backup a second primary (ways "
        "to split brain of Artemis' replication without a quorum).",
        (8, 11),
        (
            Patch(PairController, "_offline", _no_connection),
            Patch(LinkEnd, "proves_the_end", _however_it_ended),
        ),
        because="8 while both serve, 11 when the promotion is looked at first.",
    ),
    Mutant(
        "one silent route makes the member offline",
        "One of two networks between the nodes is cut, and a client makes the backup a second primary.",
        (8, 11),
        (Patch(PairController, "_offline", _one_silent_route),),
        because="8 while both serve, 11 when the promotion is looked at first.",
    ),
    Mutant(
        "a management connection is a vote",
        "The primary dies at night, and a backup takes over that no client has come to: an operator only "
        "looked at it (OpenAMQ's paper lets whatever connects count).",
        (11,),
        (Patch(HaBroker, "admit", _anybody_votes),),
    ),
    Mutant(
        "an order to stand by is forgotten",
        "The node that an operator has made passive takes over again at once (the two machines of OpenAMQ's "
        "paper, where both are passive).",
        (11,),
        (Patch(PairController, "state", _no_order),),
    ),
)

"""Mutants of promotion and of serving: who may, and who does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.model.values import FOREVER, Position
from ha.adapter.node import Node
from ha.core import ha_broker
from ha.core.ack_times import AckTimes
from ha.core.backup.backup import Backup
from ha.core.connection_observer import Admission, AdmissionAnswer
from ha.core.election.attempt import Attempt
from ha.core.election.manual import ManualAuthority
from ha.core.election.peer_methods import PeerMethods
from ha.core.election.promotion import Promotion
from ha.core.record.authority import FORCED, Evidence, Verdict
from ha.core.record.link_end import LinkEnd
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _as_if_alone(cold: Any) -> Any:
    def broken(self: ManualAuthority, e: Evidence, newest: Any) -> Any:
        if e.me.node_id in newest.node_ids:
            newest = replace(newest, owner=e.me.who, in_sync=frozenset())
        return cold(self, e, newest)

    return broken


def _admit_all(decide: Any) -> Any:
    return lambda status, **others: Admission(AdmissionAnswer.ADMIT)


def _as_if_this_had_all(cold: Any) -> Any:
    def broken(self: ManualAuthority, e: Evidence, newest: Any) -> Any:
        return cold(self, replace(e, position=FOREVER, incomplete=False), newest)

    return broken


def _whatever_its_life(judge: Any) -> Any:
    """A node is in the record if any life of it is."""

    def broken(self: ManualAuthority, e: Any) -> Any:
        recorded = [who.number for who in e.newest.in_sync if who.node_id == e.me.node_id] if e.newest else []
        return judge(self, replace(e, me=replace(e.me, incarnation=recorded[0])) if recorded else e)

    return broken


def _go_on(meet: Any) -> Any:
    def broken(self: PeerMethods, answer: Any, now: float) -> None:
        if answer.epoch <= self._node.epoch or not self._node.status.serves:
            meet(self, answer, now)

    return broken


def _a_half_copy_too(cold: Any) -> Any:
    def broken(self: ManualAuthority, e: Evidence, newest: Any) -> Any:
        if e.incomplete:
            return Verdict(True, "it has what it has", "cold")
        return cold(self, e, newest)

    return broken


def _silence_too(proves_the_end: Any) -> Any:
    return lambda self, ack_timeout: proves_the_end(replace(self, clean=True), ack_timeout)


def _however_long_ago(proves_the_end: Any) -> Any:
    return lambda self, ack_timeout: proves_the_end(replace(self, last_ack=self.closed_at), ack_timeout)


def _as_if_unforced(serve_by: Any) -> Any:
    def broken(self: Promotion, attempt: Attempt, now: float) -> None:
        if attempt.how == FORCED:
            attempt = replace(attempt, how="unforced")
        serve_by(self, attempt, now)

    return broken


def _without_the_last_epoch(stand_alone: Any) -> Any:
    def broken(self: Backup, *, keep_all: bool) -> None:
        stand_alone(self, keep_all=keep_all)
        model: Any = self._model
        for queue, held in model.held().items() if keep_all else ():
            if held:
                last = {max(held): held[max(held)]}
                model._vhosts.queues_by_uuid[queue].replica.dequeue(max(held), held[max(held)].ranges())
                model._drop(queue, last)

    return broken


def _by_its_primarys_clock(got: Any) -> Any:
    def broken(self: AckTimes, position: Position, sent_at: float, now: float) -> None:
        self._owed.append((position, sent_at))

    return broken


MUTANTS = (
    Mutant(
        "owe a batch since a time of its primary's",
        "A backup takes the time at which its primary sent a batch for one of its own. Where that clock "
        "is behind, it owes nothing for long, and is promoted though it may have been excluded.",
        (11,),
        (Patch(AckTimes, "got", _by_its_primarys_clock),),
    ),
    Mutant(
        "cold start without asking the others",
        "A node that was in the record serves by itself after a restart, though another went on without it.",
        (11,),
        (Patch(ManualAuthority, "_cold", _as_if_alone),),
    ),
    Mutant(
        "let clients in at a backup",
        "A backup opens connections of ordinary clients as if it were the primary.",
        (8,),
        (Patch(ha_broker, "decide", _admit_all),),
    ),
    Mutant(
        "go on serving after a demotion",
        "A node that was told to step down keeps its clients and their consumers.",
        (8,),
        (Patch(Node, "stop_serving", never),),
    ),
    Mutant(
        "cold start of the shorter copy",
        "After both nodes were down, the one that is asked first serves, whatever the other still has.",
        (12,),
        (Patch(ManualAuthority, "_cold", _as_if_this_had_all),),
    ),
    Mutant(
        "promote another life of the node",
        "A node that was started again passes for the process that the record names (Artemis).",
        (11,),
        (Patch(ManualAuthority, "_judge", _whatever_its_life),),
    ),
    Mutant(
        "go on after meeting a higher epoch",
        "A primary hears that another was promoted since, and stays one (Qpid).",
        (10,),
        (Patch(PeerMethods, "_meet", _go_on),),
    ),
    Mutant(
        "take silence for an end",
        "Without an arbiter, a backup whose primary is silent is promoted unforced: it may still serve.",
        (11,),
        (Patch(LinkEnd, "proves_the_end", _silence_too),),
    ),
    Mutant(
        "take any closed link for an end",
        "A backup that hung is promoted unforced when it goes on: its primary may have excluded it since.",
        (11,),
        (Patch(LinkEnd, "proves_the_end", _however_long_ago),),
    ),
    Mutant(
        "cold start of a half copy",
        "A node that stopped in the middle of a snapshot believes itself good when it comes back (Artemis).",
        (19,),
        (Patch(ManualAuthority, "_cold", _a_half_copy_too),),
    ),
    Mutant(
        "forced, go back to the epoch before",
        "Who is promoted by force throws away all that it has of the last epoch, and exports none of it.",
        (1,),
        (Patch(Backup, "stand_alone", _without_the_last_epoch),),
    ),
    Mutant(
        "call a forced promotion unforced",
        "Neither the log nor the ledger says that an operator takes the blame: the audit looks for no loss.",
        (11,),
        (Patch(Promotion, "_serve_by", _as_if_unforced),),
    ),
)

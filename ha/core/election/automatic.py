"""AutomaticFailover: this node promotes itself once nobody serves. No operator, no resource manager.

Owner: HaBroker, for the node's life; at work under an authority that keeps a lease of the record's owner. It
says when a promotion is worth asking for. `Promotion` asks, and is judged by the same rules as an operator's.

While this node serves nobody and follows nobody, it asks the authority now and then. It goes on once the
owner of the record is gone: its lease there has run out, or its kernel says that nobody listens, or it says
itself that it does not serve. A primary that is cut off from this node alone keeps its lease, and excludes
this node.

Where several nodes may be promoted, they take turns in the order of `ha.brokers`: TURN apart. Two that meet
all the same lose nothing by it, as the authority lets one win.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.election.manual import OWN
from ha.core.election.pair.controller import PairController
from ha.core.election.pair.table import PairState, Wanted
from ha.core.election.peers import Peers
from ha.core.election.promotion import Promotion
from ha.core.outbox import Outbox
from ha.core.record.in_sync_record import InSyncRecord, is_behind
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.record.record_keeper import Outcome, RecordKeeper, authority_trouble
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity

LOOK = 0.1
"""Seconds between two looks while nobody is known to serve."""
SILENCE = 2.0
"""Seconds until the authority is asked again, if it does not answer, or says that it cannot."""
TURN = 0.3
"""Seconds between two nodes that may both be promoted."""
OFF = "an operator has stopped the controller; next: understudy controller start"
OFF_ACTIVE = (
    "the controller is stopped: this node serves on, and does not promote itself once it has stopped "
    "serving; next: understudy controller start"
)
RETRY = (1.0, 10.0)
"""Seconds after a promotion that was refused, and the most of them: the time doubles with each."""


class AutomaticFailover:
    """`waits_for`: why this node has not promoted itself, in a sentence; "" while that is no question.
    `trouble`: the authority does not answer, or has lost the record, so that a promotion that is asked for
    would be refused too.

    `follows`: the role until now. `new_cluster_id`: of the cluster that begins if this node is the first
    primary ever.
    """

    def __init__(
        self, me: OwnIdentity, local: LocalRecord, out: Outbox, keeper: RecordKeeper, peers: Peers,
        lineage: Lineage, promotion: Promotion, follows: Callable[[], Backup | None], new_cluster_id: str,
        pair: PairController | None,
    ) -> None:  # fmt: skip
        self._me = me
        self._local = local
        self._out = out
        self._keeper = keeper
        self._peers = peers
        self._lineage = lineage
        self._promotion = promotion
        self._follows = follows
        self._new_cluster_id = new_cluster_id
        self._pair = pair
        self.off = False
        self.waits_for = ""
        self.trouble = False
        self._stopped = ""
        self._yields = self._overruled = False
        self._look_at = self._not_before = 0.0
        self._willing_since: float | None = None
        self._refused_for = 0.0
        self._saw_it_over = self._began = False
        self._told = ""

    # -- what may stop it

    def stop(self, reason: str, *, yields: bool = False) -> None:
        """An operator has decided otherwise. It goes on once this node has followed a primary. `yields`: or
        once the other node of the pair turns out not to be able to serve."""
        self._stopped, self._yields = reason, yields
        self._heed_order()

    def switch(self, *, on: bool, now: float) -> None:
        """An operator wants this node to promote itself, as configured, or never."""
        self.off = not on
        self.look(now)

    def go_on(self) -> None:
        """An operator has taken an order back."""
        self._stopped = ""
        self._heed_order()

    def look(self, now: float) -> None:
        """Something has changed that may matter."""
        if not self._refused_for:
            self._look_at = min(self._look_at, now)
        self.settle(now)

    def _heed_order(self) -> None:
        if self._pair is not None:
            self._pair.ordered = bool(self._stopped)

    def _weigh_order(self, now: float) -> None:
        """An order for which nobody would serve does not stand: by the pair's table, or because the other
        node is there and lacks what only this one has."""
        pair = self._pair
        self._overruled = False
        if pair is None or not self._stopped or self.off:
            return
        answer, seen = pair.answer(), pair.seen(now)
        there = seen is PairState.PENDING or seen is PairState.PASSIVE
        if self._yields and there and answer is not None:
            if self._promotion.needed_instead_of(answer.node_id):
                self._out.log(codes.ORDER_ENDS.say(other=answer.name))
                self.go_on()
            return
        row = pair.row(now)
        self._overruled = row is not None and row.then in (Wanted.ACTIVE, Wanted.AFTER_A_TURN)

    def wait_until(self, time: float) -> None:
        """Another node is to serve by then."""
        self._not_before = time

    # -- time

    def settle(self, now: float) -> None:
        """A link has ended, or a kernel has said that nobody listens: look at once."""
        backup = self._follows()
        if backup is None or backup.linked:
            self._stopped, self._refused_for, self._not_before, self._told = "", 0.0, 0.0, ""
            self._heed_order()
        self._weigh_order(now)
        if not self._at_work():
            off = OFF if backup is not None else OFF_ACTIVE
            self.waits_for, self.trouble = off if self.off else self._stopped, False
            self._willing_since, self._saw_it_over = None, False
            return
        if self._began:
            self.waits_for, self._began = self._promotion.last_refusal, False
        over = self._local.record is not None and self._promotion.seems_over(self._local.record)
        if over and not self._saw_it_over and not self._refused_for:
            self._look_at = min(self._look_at, now)
        self._saw_it_over = over

    def timers(self, now: float) -> None:
        self._weigh_order(now)
        if self._at_work() and now >= max(self._look_at, self._not_before):
            self._look_at = now + SILENCE
            if not self._keeper.read(self._read, now):
                self._read(Outcome.DONE, self._local.record, now, now)

    def next_deadline(self) -> float | None:
        return max(self._look_at, self._not_before) if self._at_work() else None

    def _at_work(self) -> bool:
        backup = self._follows()
        alone = backup is not None and not backup.linked
        by_table = self._pair is not None and not self._keeper.arbitrates
        stopped = self.off or (bool(self._stopped) and not by_table and not self._overruled)
        return alone and not self._promotion.active and not stopped

    # -- deciding

    def _read(self, outcome: Outcome, held: InSyncRecord | None, asked_at: float, now: float) -> None:
        self._weigh_order(now)
        if not self._at_work():
            return
        self._look_at = now + (LOOK if outcome is Outcome.DONE else SILENCE)
        self.trouble = outcome is not Outcome.DONE
        self.waits_for = self._hindrance(outcome, held, now)
        if self.waits_for:
            self._willing_since = None
            return
        if self._willing_since is None:
            self._willing_since = now
        turn = self._willing_since + TURN * self._before(held, now)
        if now < turn:
            self.waits_for = "another node is to be promoted first"
            self._look_at = min(self._look_at, turn)
            return
        self._begin(now, held)

    def _hindrance(self, outcome: Outcome, held: InSyncRecord | None, now: float) -> str:
        """Why nobody is to be promoted here and now; "" if this node may."""
        if self._pair is not None and not self._keeper.arbitrates:
            return self._pair.hindrance(now) or self._rules()
        if outcome is not Outcome.DONE:
            said = authority_trouble(self._keeper.trouble).sentence
            return with_next(said, "see that it runs and can be reached from here; this node goes on asking")
        behind = is_behind(held, self._local.record)
        self.trouble = behind
        if (held is None or behind) and (elsewhere := self._elsewhere()):
            return elsewhere
        if behind:
            return self._promotion.judge_by(held).sentence
        if held is not None:
            cluster = self._lineage.cluster_id
            if cluster is not None and held.cluster_id != cluster:
                return with_next(codes.PROMOTE_FOREIGN_RECORD.say(cluster=held.cluster_id).sentence, OWN)
            if cluster is None:
                owner = held.owner_name
                said = codes.PROMOTE_NEVER_JOINED.say(owner=owner).sentence
                return with_next(said, f"start {owner}; {OWN}")
            self._lineage.adopt(held)
            if not self._promotion.seems_over(held) and self._keeper.owner_gone != held.version:
                owner = held.owner_name
                said = f"for the authority {owner} is still there: it serves, or hangs"
                return with_next(said, f"if {owner} hangs, end it, or promote this node")
        return self._rules()

    def _elsewhere(self) -> str:
        """The authority lacks the record because another node serves by another one, or would."""
        backup, other = self._follows(), self._promotion.serving_peer()
        if backup is not None and backup.disagreement is not None:
            return with_next(backup.disagreement.said.sentence, backup.disagreement.way)
        if other:
            return f"{other} serves, and this node waits until it has joined"
        differs = self._promotion.other_register()
        return with_next(differs, "correct one of the two nodes, and start it again") if differs else ""

    def _rules(self) -> str:
        """Why this node may not be promoted; "" if it may."""
        if other := self._promotion.other_attempt():
            return f"{other} is being promoted"
        verdict = self._promotion.judge()
        return "" if verdict.granted else verdict.sentence

    def _before(self, held: InSyncRecord | None, now: float) -> int:
        """How many nodes have their turn before this one."""
        if self._pair is not None:
            row = self._pair.row(now)
            return int(row is not None and row.then is Wanted.AFTER_A_TURN)
        return self._peers.listed_before(self._rivals(held))

    def _rivals(self, held: InSyncRecord | None) -> set[str]:
        """Ids of the nodes that may think the same now."""
        if held is not None and self._me.who in held.in_sync:
            return {who.node_id for who in held.in_sync}
        return set(self._promotion.cluster_peers())

    def _begin(self, now: float, held: InSyncRecord | None) -> None:
        least, most = RETRY
        self._refused_for = min(max(least, 2 * self._refused_for), most)
        self._willing_since, self._look_at = None, now + self._refused_for
        pair = self._pair if not self._keeper.arbitrates else None
        if held is None:
            said = codes.SERVES_FIRST.say()
        elif pair is not None:
            said = codes.PAIR_TAKES_OVER.say(why=pair.why(now))
        elif self._promotion.seems_over(held):
            said = codes.TAKES_OVER.say(primary=held.owner_name, why="it does not serve any more")
        else:
            said = codes.TAKES_OVER.say(primary=held.owner_name, why="its lease has run out")
        if said.sentence != self._told:
            self._out.log(said)
        self._told, self._began = said.sentence, True
        gone = ""
        if held is not None and not self._promotion.answers(held.owner.node_id):
            gone = held.owner.node_id
        if pair is not None:
            gone = pair.gone(now)
        self._promotion.begin(
            None, self._new_cluster_id, now, force_lossy=False, fenced=False, gone=gone
        )  # fmt: skip

"""PairController: what this node of a pair sees of the other one, and what the table makes of it.

Owner: HaBroker, under the authority `pair`. Pure, but for the times that it is told. It promotes nobody:
`AutomaticFailover` asks it for the hindrance, and the in-sync set is judged after that.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.election.pair.table import PairRole, PairState, Row, Wanted, row_for
from ha.core.election.peers import PeerMember, Peers
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.record.authority import PeerAnswer
from ha.core.record.local_record import LocalRecord
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning


class PairController:
    """`role`: `ha.role`; `votes`: clients that tried to get in since the other node was heard last;
    `since`: when this node came into its state; `ordered`: an operator wants it not to serve.
    """

    def __init__(
        self, me: OwnIdentity, role: PairRole, tuning: Tuning, membership: Membership, local: LocalRecord,
        outbox: Outbox, peers: Peers, follows: Callable[[], Backup | None],
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._out = outbox
        self._peers = peers
        self._follows = follows
        self.role = role
        self.ordered = False
        self.votes = 0
        self.since = 0.0
        self._voted_at = float("-inf")
        self._state = PairState.PENDING
        self._same_role = ""

    # -- what happens

    def vote(self, now: float) -> None:
        """A client has logged in and wants to be let in. A probe of the port, a wrong password, an operator
        and another broker do not come so far. It counts until the other node is heard again."""
        self.votes += 1
        self._voted_at = now

    def settle(self, now: float) -> None:
        """Somebody said how it stands, this node has changed its status, or time has passed."""
        answer = self.answer()
        entry = self._other()
        if entry is not None and self._heard_at(entry) > self._voted_at:
            self.votes = 0
        state = self.state
        if state is not self._state:
            self._out.log(codes.CONTROLLER_STATE.say(before=self._state.value, after=state.value))
            self._state, self.since = state, now
        same = answer.name if answer is not None and answer.role == self.role.value else ""
        if same and same != self._same_role:
            self._out.warn(codes.ROLES_EQUAL.say(other=same, role=self.role.value))
        self._same_role = same

    # -- what is so

    @property
    def state(self) -> PairState:
        """This node's."""
        status, record = self._membership.status, self._local.record
        if status.serves:
            return PairState.ACTIVE
        if self.ordered:
            return PairState.ORDERED
        was_primary = record is not None and record.owner == self._me.who
        if status is not Status.JOINING or was_primary or self._serving_peer():
            return PairState.PASSIVE
        return PairState.PENDING

    def seen(self, now: float) -> PairState | None:
        """The other node's; None: not known yet."""
        entry, answer = self._other(), self.answer()
        if entry is None:
            return None
        if self._offline(entry, now):
            return PairState.OFFLINE
        if answer is None or entry.peer is None:
            return None
        return PairState.ACTIVE if answer.serving else _state_of(answer)

    def online(self, now: float) -> bool:
        """The other node is there, as far as is known."""
        return self.seen(now) not in (None, PairState.OFFLINE)

    def in_doubt(self, now: float) -> bool:
        """This node may be about to take over: clients wait for what comes of it."""
        entry = self._other()
        if self.ordered or entry is None:
            return False
        return (
            self.seen(now) is not PairState.ACTIVE or self._silence(entry, now) > 2 * self._tuning.heartbeat
        )

    def row(self, now: float) -> Row | None:
        """The row of the table that fits now."""
        seen = self.seen(now)
        return row_for(self.role, self.state, seen, clients=self.votes > 0) if seen is not None else None

    def wanted(self, now: float) -> str:
        """For status: what this node is to be, in a word."""
        row = self.row(now)
        then = row.then if row is not None else Wanted.AS_IT_IS
        if then is Wanted.AS_IT_IS:
            return "active" if self.state is PairState.ACTIVE else "passive"
        return "passive" if then is Wanted.PASSIVE else "active"

    @property
    def fault(self) -> str:
        """What is wrong with the roles of the pair, in a sentence, whatever this node does now; or ""."""
        if not self._same_role:
            return ""
        said = codes.ROLES_EQUAL.say(other=self._same_role, role=self.role.value).sentence
        return with_next(said, "give one of the two the other ha.role, and start it again")

    def hindrance(self, now: float) -> str:
        """Why this node is not wanted to serve now, in a sentence; "" if it is."""
        if self._same_role:
            return self.fault
        row = self.row(now)
        if row is not None and row.then in (Wanted.ACTIVE, Wanted.AFTER_A_TURN):
            return ""
        other = self.other_name
        seen = self.seen(now)
        if self.ordered and seen is not PairState.OFFLINE:
            return with_next("an operator wants this node passive", "understudy controller active")
        if seen is PairState.ACTIVE:
            return f"{other} serves"
        if seen is PairState.OFFLINE:
            said = f"{other} is gone: this node takes over as soon as a client comes to it"
            return with_next(said, "let a client try this node, or promote it")
        entry = self._other()
        if entry is None:
            return "it does not know yet at which address of ha.brokers it is itself"
        silence, limit = self._silence(entry, now), self._tuning.failover_timeout
        return f"{other} was heard {max(0.0, silence):.1f} s ago, and counts as gone after {limit:g} s"

    def why(self, now: float) -> str:
        """For the log: why this node takes over."""
        row = self.row(now)
        return row.why if row is not None else ""

    def gone(self, now: float) -> str:
        """Id of the other node if it is offline and known; or ""."""
        entry = self._other()
        return entry.node_id or "" if entry is not None and self._offline(entry, now) else ""

    @property
    def other_name(self) -> str:
        answer, entry = self.answer(), self._other()
        if answer is not None:
            return answer.name
        return entry.address if entry is not None else "the other node"

    # -- seeing

    def _other(self) -> PeerMember | None:
        """The other node, once this one has met itself."""
        entries = self._peers.members
        others = [entry for entry in entries if not entry.is_self]
        return others[0] if len(others) == 1 and len(entries) > 1 else None

    def answer(self) -> PeerAnswer | None:
        """What the other node said of itself last."""
        entry = self._other()
        if entry is None or entry.node_id is None:
            return None
        return self._peers.answers.get(entry.node_id)

    def _offline(self, entry: PeerMember, now: float) -> bool:
        """Its kernel says that nobody listens there, on each route, or it is silent for too long on all."""
        refused = entry.peer is None and entry.nobody_listens
        return refused or self._silence(entry, now) >= self._tuning.failover_timeout

    def _silence(self, entry: PeerMember, now: float) -> float:
        return now - self._heard_at(entry)

    def _heard_at(self, entry: PeerMember) -> float:
        heard = self._peers.heard_at(entry.node_id)
        backup = self._follows()
        if backup is not None and backup.primary_id == entry.node_id:
            heard = max(heard, backup.last_heard)
        return heard

    def _serving_peer(self) -> bool:
        answer = self.answer()
        return answer is not None and answer.serving


def _state_of(answer: PeerAnswer) -> PairState:
    """As it says itself; a node that says nothing of it has started just now."""
    for state in (PairState.PASSIVE, PairState.ORDERED):
        if answer.state == state.value:
            return state
    return PairState.PENDING

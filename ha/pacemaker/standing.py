"""Standing: whether this node's copy of the CIB counts, so that it may be believed and written to. Pure;
called by the procedure.

A CIB is replicated, but not linearizable: in a partition each side has a copy of its own, and goes on
changing it. This node's copy counts only if no other node can have a different one that counts, too. That is
so when every other cluster node is in one of these states:

- It is a member. Its own copy, asked of its own CIB daemon, holds the same record with the same admin_epoch
and has this node as a member. (Nodes that have given it up may count it as lost while its copy does not show
that yet. What it raises then, it raises in its own copy alone.) - It is down: it was shut down, or its
fencing has *succeeded*, and it has not joined again. Until it has, it has no cluster's CIB, and its own copy
does not count. - It is lost, and this side has real quorum: of at least three votes, from members only.
`two_node` makes quorum of one vote, and proves nothing.

A node that was never seen since this cluster started may know more than this copy: then quorum does not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ha.pacemaker import codes
from ha.pacemaker.cib import CibView
from understudy.shared.codes import Coded

LEAST_VOTES = 3


@dataclass(slots=True, frozen=True)
class Votes:
    """What corosync's votequorum says on this node; votes include those of a quorum device."""

    quorate: bool
    expected: int
    two_node: bool
    nodes: frozenset[str]
    """Corosync's numbers of those who are in this node's partition, itself included."""


@dataclass(slots=True, frozen=True)
class Standing:
    ok: bool
    said: Coded
    """How that comes about."""
    again: bool = False
    """Not now, but perhaps in a moment: a change is on its way from copy to copy."""
    without: tuple[str, ...] = ()
    """Nodes that may have another copy, which does not count, and bring it along when they return."""


def members(view: CibView, me: str) -> list[str]:
    """The other nodes whose own copies are to be read."""
    return sorted(n for n, s in view.nodes.items() if n != me and s is not None and s.up and not s.down)


def wants_votes(view: CibView, me: str) -> bool:
    """Is a node lost, so that quorum decides?"""
    return any(s is not None and s.lost and not s.down for n, s in view.nodes.items() if n != me)


def judge(
    view: CibView, me: str, copies: Mapping[str, CibView | str], votes: Votes | str | None
) -> Standing:  # fmt: skip
    """`copies`: one for each of `members`, or why there is none. `votes`: where `wants_votes`, or why there
    are none."""
    if (trouble := _myself(view, me)) is not None:
        return Standing(False, trouble)
    lost: list[str] = []
    without: list[str] = []
    for name in sorted(view.nodes.keys() - {me}):
        state = view.nodes[name]
        if state is None or not (state.up or state.down or state.lost):
            return Standing(False, codes.UNSEEN.say(node=name))
        if state.down or state.lost:
            without.append(name)
            lost += [name] if state.lost and not state.down else []
            continue
        copy = copies.get(name, "not asked")
        if isinstance(copy, str):
            return Standing(False, codes.MEMBER_SILENT.say(node=name, cause=copy))
        mine = copy.nodes.get(me)
        if mine is None or not mine.joined:
            return Standing(False, codes.MEMBER_DISAGREES.say(node=name), again=True)
        if copy.content != view.content:
            return Standing(False, codes.RECORD_DIFFERS.say(node=name), again=True)
        if copy.admin_epoch != view.admin_epoch:
            return Standing(False, codes.ADMIN_EPOCH_DIFFERS.say(node=name), again=True)
    if lost:
        return _by_quorum(view, me, lost, votes, tuple(without))
    return Standing(True, codes.AGREED.say(), without=tuple(without))


def _myself(view: CibView, me: str) -> Coded | None:
    """Why this node's own state in the cluster rules out a judgement."""
    state = view.nodes.get(me)
    if me not in view.nodes:
        return codes.NO_NODE.say(node=me)
    if len(view.nodes) == 1:
        return codes.ALONE.say(node=me)
    if state is None or not state.joined:
        return codes.NOT_JOINED.say(node=me)
    if state.expected != "member":
        return codes.LEAVING.say(node=me)
    return None


def _by_quorum(
    view: CibView, me: str, lost: list[str], votes: Votes | str | None, without: tuple[str, ...]
) -> Standing:
    who = ", ".join(lost)
    unproven = f"{who} is lost and not fenced" if len(lost) == 1 else f"{who} are lost and not fenced"
    if not view.fencing:
        unproven += " (stonith-enabled is false)"
    if votes is None or isinstance(votes, str):
        return Standing(False, codes.VOTES_UNKNOWN.say(lost=unproven, cause=votes or "not asked"))
    if not votes.quorate:
        return Standing(False, codes.NO_QUORUM.say(lost=unproven))
    if votes.two_node or votes.expected < LEAST_VOTES:
        return Standing(False, codes.TWO_VOTES.say(lost=unproven))
    here = {me, *members(view, me)}
    if not votes.nodes <= {view.ids.get(name, "") for name in here}:
        return Standing(False, codes.PARTITIONS_DIFFER.say(lost=unproven), again=True)
    return Standing(True, codes.QUORUM.say(nodes=who, votes=votes.expected), without=without)

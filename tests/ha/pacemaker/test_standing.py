"""Standing, exhaustively: every state of two other nodes, their copies and votes, against the rule."""

from __future__ import annotations

import itertools

import pytest

from ha.pacemaker import codes
from ha.pacemaker.cib import CibView, NodeState, read_cib
from ha.pacemaker.standing import Standing, Votes, judge, members, wants_votes
from tests.ha.pacemaker.cibs import DOWN, LEAVING, LOST, MEMBER, NEWER, STARTING, cib_xml, record, set_of
from understudy.shared.codes import Code

HELD = set_of(record(5, 2))
VIEW = read_cib(cib_xml({"a": MEMBER, "b": MEMBER}, HELD), "understudy")
COPIES: dict[str, CibView | str] = {
    "same": VIEW,
    "other": read_cib(cib_xml({"b": MEMBER}, set_of(record())), "understudy"),
    "without this node": read_cib(cib_xml({"a": LOST, "b": MEMBER}, HELD), "understudy"),
    "rejoining": read_cib(cib_xml({"a": STARTING, "b": MEMBER}, HELD), "understudy"),
    "unseen": read_cib(cib_xml({"a": None, "b": MEMBER}, HELD), "understudy"),
    "raised": read_cib(cib_xml({"a": MEMBER, "b": MEMBER}, HELD, admin_epoch=1), "understudy"),
    "none": "x",
}
UNSEEN = {"in_ccm": "false", "crmd": "offline"}
JOINING_FIRST = {"in_ccm": "true", "crmd": "online"}
HALF = {**LOST, "in_ccm": "true"}
STATES = {
    "member": MEMBER, "leaving": LEAVING, "lost": LOST, "half": HALF, "down": DOWN, "starting": STARTING,
    "up, never joined": JOINING_FIRST, "unseen": UNSEEN, "no state": None,
}  # fmt: skip
ASKED = ("member", "leaving", "up, never joined")
GONE = ("lost", "half")
ABSENT = ("down", "starting")
VOTES: dict[str, Votes | str | None] = {
    "real": Votes(True, 3, False, frozenset("1")), "all": Votes(True, 3, False, frozenset("123")),
    "with b": Votes(True, 3, False, frozenset("12")), "two_node": Votes(True, 2, True, frozenset("1")),
    "two_node of three": Votes(True, 3, True, frozenset("1")), "two": Votes(True, 2, False, frozenset("1")),
    "none": Votes(False, 3, False, frozenset("1")), "untold": "no", "unasked": None,
}  # fmt: skip


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(("b", "c"), list(itertools.product(STATES, STATES)))
def test_every_state_copy_and_vote(b: str, c: str, newer: bool) -> None:
    states = {"a": MEMBER, "b": STATES[b], "c": STATES[c]}
    if newer:
        states = {
            name: {k: NEWER.get(v, v) if k in ("in_ccm", "crmd") else v for k, v in state.items()}
            if state is not None
            else None
            for name, state in states.items()
        }
    view = read_cib(cib_xml(states, HELD), "understudy")
    assert members(view, "a") == [name for name, kind in (("b", b), ("c", c)) if kind in ASKED]
    assert wants_votes(view, "a") is bool({b, c} & {*GONE})
    for of_b, of_c, votes in itertools.product(COPIES, COPIES, VOTES):
        copies = {"b": COPIES[of_b], "c": COPIES[of_c]}
        standing = judge(view, "a", copies, VOTES[votes])
        assert standing.ok is by_the_rule((b, of_b), (c, of_c), votes)
        said = standing.said.sentence
        assert said and "\n" not in said and not said.endswith(".")
        if not standing.ok:
            assert "b" in said or "c" in said


def by_the_rule(b: tuple[str, str], c: tuple[str, str], votes: str) -> bool:
    """The rule once more, in other words."""
    fine = all(
        kind in ABSENT or kind in GONE or (kind in ASKED and copy == "same") for kind, copy in (b, c)
    )  # fmt: skip
    if not fine or not {b[0], c[0]} & {*GONE}:
        return fine
    own = {"1"} | {n for n, (kind, _) in (("2", b), ("3", c)) if kind in ASKED}
    there = {"real": {"1"}, "all": {"1", "2", "3"}, "with b": {"1", "2"}}
    return votes in there and there[votes] <= own


@pytest.mark.parametrize(
    ("own", "code"),
    [
        (DOWN, codes.NOT_JOINED),
        (STARTING, codes.NOT_JOINED),
        (LOST, codes.NOT_JOINED),
        (None, codes.NOT_JOINED),
        (LEAVING, codes.LEAVING),
    ],
)
def test_a_node_that_is_no_member_itself_judges_nothing(own: dict[str, str] | None, code: Code) -> None:
    view = read_cib(cib_xml({"a": own, "b": DOWN}, HELD), "understudy")
    assert judge(view, "a", {}, VOTES["real"]) == Standing(False, code.say(node="a"))


def test_a_cib_that_does_not_know_this_node() -> None:
    view = read_cib(cib_xml({"b": MEMBER, "c": MEMBER}), "understudy")
    assert judge(view, "a", {"b": view, "c": view}, None).said == codes.NO_NODE.say(node="a")


def test_a_cluster_of_one_is_no_cluster() -> None:
    """Or one whose CIB has not heard of the other node yet."""
    view = read_cib(cib_xml({"a": MEMBER}), "understudy")
    assert judge(view, "a", {}, VOTES["real"]) == Standing(False, codes.ALONE.say(node="a"))


def test_only_copies_that_differ_are_worth_another_look_at_once() -> None:
    for copy, found in COPIES.items():
        assert judge(VIEW, "a", {"b": found}, None).again is (copy not in ("none", "same"))


def test_without_fencing_it_says_so() -> None:
    view = read_cib(cib_xml({"a": MEMBER, "b": LOST}, fencing="false"), "understudy")
    said = judge(view, "a", {}, VOTES["none"]).said
    assert said.code == codes.NO_QUORUM.name and "stonith-enabled is false" in said.sentence


def test_two_lost_nodes_are_named() -> None:
    view = read_cib(cib_xml({"a": MEMBER, "b": LOST, "c": LOST}), "understudy")
    assert judge(view, "a", {}, VOTES["none"]).said == codes.NO_QUORUM.say(
        lost="b, c are lost and not fenced"
    )


def test_a_node_of_which_nothing_is_known_stands_in_the_way() -> None:
    view = CibView({"a": NodeState(True, True, "member", "member"), "b": None}, {"a": "1", "b": "2"})
    assert judge(view, "a", {}, VOTES["real"]).said == codes.UNSEEN.say(node="b")

"""The transition table, every pair of statuses."""

from __future__ import annotations

import itertools

import pytest

from ha.core.errors import IllegalTransition
from ha.core.membership import TRANSITIONS, Membership, Status

LEGAL = {
    "joining catch-up", "joining recovering", "catch-up ready", "catch-up joining",
    "ready catch-up", "ready joining", "ready recovering", "recovering active", "recovering joining",
    "active joining",
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Status, Status)), ids=lambda s: s.value)
def test_every_transition(old: Status, new: Status) -> None:
    membership = Membership(old)
    if old is new or f"{old.value} {new.value}" in LEGAL:
        membership.become(new)
        assert membership.status is new
        return
    with pytest.raises(IllegalTransition, match=f"{old.value} to {new.value}"):
        membership.become(new)
    assert membership.status is old


def test_the_table_knows_every_status_and_nothing_serves_by_accident() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert [s.value for s in Status if s.serves] == ["standalone", "recovering", "active"]
    assert [s.value for s, to in TRANSITIONS.items() if Status.ACTIVE in to] == ["recovering"]

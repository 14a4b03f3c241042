"""What the broker says of itself, in the words of the decision table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_agent.broker_status import is_manual, member_names, read_status
from resource_agent.decision import State

OWN = {"name": "a", "self": True, "in_sync": False}
OTHER = {"name": "b", "self": False, "in_sync": False}


def status(state: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "a", "status": state, "promotable": False, "promoting": False, "withheld": False,
        "owner": "b", "members": [OWN, OTHER], "reason": "so it is", "alarms": [],
        "disk": {"stalled_for": 0.1, "latency": 0.01, "failed": None}, **more,
    }  # fmt: skip


IN_SYNC = [OWN, OTHER | {"in_sync": True}]
LISTED = [OWN | {"in_sync": True}, OTHER]
TROUBLE = {"kind": "pacemaker", "ok": False, "reason": "b is lost and not fenced"}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (status("standalone"), State.STANDALONE),
        (status("active", members=IN_SYNC), State.ACTIVE),
        (status("recovering", members=IN_SYNC), State.ACTIVE),
        (status("active", members=LISTED), State.ALONE),
        (status("active", withheld=True), State.RENEWING),
        (status("active", withheld=True, authority=TROUBLE), State.LEASE_EXPIRED),
        (status("active", members=IN_SYNC, authority=TROUBLE), State.ACTIVE),
        (status("ready", promotable=True), State.READY),
        (status("ready", promotable=True, authority=TROUBLE), State.DOUBTFUL),
        (status("ready", promotable=True, authority=TROUBLE | {"ok": True}), State.READY),
        (status("joining", promotable=True, members=LISTED, authority=TROUBLE), State.READY),
        (status("ready", promoting=True), State.PROMOTING),
        (status("ready"), State.BEHIND),
        (status("joining", promotable=True, members=LISTED), State.READY),
        (status("joining", promotable=True, owner="a"), State.FORMER_OWNER),
        (status("joining", promotable=True), State.BEST_COPY),
        (status("joining", promotable=True, owner=None), State.BEST_COPY),
        (status("joining"), State.BEHIND),
        (status("catch-up", authority=TROUBLE), State.TROUBLED),
        (status("catch-up", alarms=["disk"]), State.TROUBLED),
        (status("active", disk={"stalled_for": 5.1}), State.STALLED),
        (status("active", disk={"stalled_for": 4.9}, members=IN_SYNC), State.ACTIVE),
        (status("ready", disk={"stalled_for": 0.0, "failed": "read-only"}), State.STALLED),
        ({"status": 7}, State.SILENT),
        ([], State.SILENT),
    ],
)
def test_states(said: Any, state: State) -> None:
    assert read_status(said, 5.0)[0] is state


def test_the_brokers_own_reason_is_the_sentence() -> None:
    assert read_status(status("ready", promotable=True), 5.0)[1] == "so it is"
    assert "5.5 s" in read_status(status("active", disk={"stalled_for": 5.5}), 5.0)[1]


def test_names_of_the_others() -> None:
    assert member_names(status("active")) == {"b"}
    assert member_names(None) == set()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from([*sorted(status("active")), "authority"])
STATUSES = st.sampled_from(["active", "ready", "joining", "catch-up", "recovering", "standalone", "?"])


@given(st.dictionaries(KEYS, JSON), st.none() | STATUSES)
def test_nothing_that_a_broker_may_say_breaks_it(said: dict[str, Any], word: str | None) -> None:
    if word is not None:
        said = said | {"status": word}
    state, sentence = read_status(said, 5.0)
    assert isinstance(sentence, str) and sentence
    assert not state.serves or said["status"] in ("active", "recovering", "standalone")
    member_names(said)
    is_manual(said)

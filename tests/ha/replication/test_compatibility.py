"""What two nodes must agree on before one follows the other."""

from __future__ import annotations

import pytest

from ha.adapter.settings import HaSettings
from ha.core import codes
from ha.core.compatibility import compatibility_from_json, difference
from ha.core.errors import LinkError
from ha.core.refusal import NEXT
from tests.ha.pair import Pair
from tests.ha.status.test_status import members

NODES = [("127.0.0.1", 1), ("127.0.0.1", 2)]


def test_the_same_promises_are_the_same_however_they_are_written() -> None:
    mine, theirs = HaSettings(brokers=NODES), HaSettings(brokers=NODES[::-1], replicate="all", lease=3)
    assert difference(mine.compatibility(), theirs.compatibility(), "a") == ""
    theirs = HaSettings(brokers=NODES, ack_timeout=1.0)
    assert difference(mine.compatibility(), theirs.compatibility(), "a") == ""


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"lease": 4.5}, "ha.lease is 4.5s here and 3s on a"),
        ({"replicate": "none"}, "ha.replicate is none here and all on a"),
        ({"on_backup_loss": "block"}, "ha.on_backup_loss is block here and continue on a"),
        ({"min_backups": 1}, "ha.min_backups is 1 here and 0 on a"),
        ({"authority": "register"}, "ha.authority is register here and manual on a"),
    ],
)
def test_a_difference_names_the_key_and_both_values(setting: dict[str, object], told: str) -> None:
    mine = HaSettings(brokers=NODES, **setting)  # type: ignore[arg-type]
    sentence = difference(mine.compatibility(), HaSettings(brokers=NODES).compatibility(), "a")
    assert sentence == f"{told}; these must be the same on all nodes"


def test_two_pairs_records_in_one_cib_are_told_apart() -> None:
    mine, theirs = (
        HaSettings(brokers=NODES, authority="pacemaker", cib_set=each).compatibility() for each in ("x", "y")
    )  # fmt: skip
    assert difference(mine, theirs, "a").startswith("ha.cib_set is x here and y on a;")
    assert "ha.cib_set" not in HaSettings(brokers=NODES, cib_set="x").compatibility()


def test_what_a_peer_says_is_not_trusted() -> None:
    assert compatibility_from_json({"k" * 200: ["x"] * 200}) == {"k" * 100: str(["x"] * 200)[:100]}
    for nonsense in (None, [], "x", {str(n): "" for n in range(101)}):
        with pytest.raises(LinkError):
            compatibility_from_json(nonsense)


LEASE = "ha.lease is 5s here and 3s on a; these must be the same on all nodes"


def disagreeing(count: int = 2) -> Pair:
    """The last one has another lease than the primary, which is the first."""
    pair = Pair(count)
    pair.hosts[-1].settings = {"lease": 5.0}
    pair.start()
    pair.run(0.3)
    assert pair.ask(pair.hosts[0], "promote")["ok"]
    pair.until(lambda: "does not join" in pair.hosts[-1].running.status()["reason"])
    return pair


def test_a_disagreement_is_shown_until_the_primary_is_gone() -> None:
    pair = disagreeing(3)
    a, b, c = pair.hosts
    operators = 1000
    c.running.core.peer_lost(operators, True, pair.now)
    assert c.running.status()["reason"].startswith(f"does not join a: {LEASE}; not promotable")
    pair.reset(b, c)
    c.running.end_tick(pair.now, pair.wall)
    assert c.running.status()["reason"].startswith(f"does not join a: {LEASE}; not promotable")
    pair.kill(a)
    pair.run(0.1)
    assert c.running.status()["reason"].startswith("no primary is known; ")


def test_a_primary_that_stops_serving_is_disagreed_with_no_more() -> None:
    pair = disagreeing()
    a, b = pair.hosts
    assert pair.ask(a, "demote")["ok"]
    pair.until(lambda: b.running.status()["reason"].startswith("no primary is known; "), 1.0)


def test_the_advice_during_a_disagreement_is_about_the_settings() -> None:
    pair = disagreeing()
    _, way = pair.hosts[1].running.status()["reason"].split(NEXT)
    assert way == "make ha.lease the same here and on a, and restart whichever of the two you change"


def test_a_primary_shows_whose_settings_differ_and_logs_it_once() -> None:
    pair = disagreeing()
    a, b = pair.hosts
    pair.run(3.0)
    told = "does not join: ha.lease is 3s here and 5s on b; these must be the same on all nodes"
    assert members(a)["b"]["trouble"] == told
    assert a.running.status()["reason"].endswith(f"; b {told}")
    assert a.told(codes.SETTINGS_DIFFER) == [f"b {told}"]
    pair.kill(b)
    pair.run(0.5)
    assert "trouble" not in members(a)["b"] and "does not join" not in a.running.status()["reason"]
    b.settings = {"lease": 4.0}
    pair.start(b)
    pair.run(0.5)
    assert a.told(codes.SETTINGS_DIFFER)[1:] == [f"b {told.replace('5s', '4s')}"]
    pair.kill(b)
    b.settings = {}
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert "trouble" not in members(a)["b"] and "does not join" not in a.running.status()["reason"]

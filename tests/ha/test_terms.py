"""What two nodes must agree on before one follows the other."""

from __future__ import annotations

import pytest

from ha.adapter.settings import HaSettings
from ha.core.errors import LinkError
from ha.core.terms import difference, terms_from_json

NODES = [("127.0.0.1", 1), ("127.0.0.1", 2)]


def test_the_same_promises_are_the_same_however_they_are_written() -> None:
    mine, theirs = HaSettings(brokers=NODES), HaSettings(brokers=NODES[::-1], replicate="all", lease=3)
    assert difference(mine.terms(), theirs.terms(), "a") == ""
    assert difference(mine.terms(), HaSettings(brokers=NODES, ack_timeout=1.0).terms(), "a") == ""


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
    sentence = difference(mine.terms(), HaSettings(brokers=NODES).terms(), "a")
    assert sentence == f"{told}; these must be the same on all nodes"


def test_two_pairs_records_in_one_cib_are_told_apart() -> None:
    mine, theirs = (
        HaSettings(brokers=NODES, authority="pacemaker", cib_set=each).terms() for each in ("x", "y")
    )  # fmt: skip
    assert difference(mine, theirs, "a").startswith("ha.cib_set is x here and y on a;")
    assert "ha.cib_set" not in HaSettings(brokers=NODES, cib_set="x").terms()


def test_what_a_peer_says_is_not_trusted() -> None:
    assert terms_from_json({"k" * 200: ["x"] * 200}) == {"k" * 100: str(["x"] * 200)[:100]}
    for nonsense in (None, [], "x", {str(n): "" for n in range(101)}):
        with pytest.raises(LinkError):
            terms_from_json(nonsense)

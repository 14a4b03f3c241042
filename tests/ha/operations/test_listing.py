"""What there is, for `understudy list`: in pieces, by columns, by virtual host."""

from __future__ import annotations

from typing import Any

from ha.adapter.management.listing import WHOLE
from tests.ha.pair import Pair


def test_a_long_list_comes_in_pieces() -> None:
    pair = Pair(1)
    pair.start()
    for number in range(WHOLE + 5):
        pair.declare(pair[0], f"q{number}")

    def asked(**args: Any) -> dict[str, Any]:
        answer = pair.ask(pair[0], "list", **args)
        assert answer["ok"], answer
        return answer

    first = asked(kind="queues")
    rest = asked(kind="queues", **{"from": first["more"]})
    assert (len(first["rows"]), len(rest["rows"]), rest["more"]) == (WHOLE, 5, None)
    names = asked(kind="queues", columns=["name", "messages"], vhost="/")
    assert names["rows"][0] == {"name": "q0", "messages": 0} and names["more"] is None
    assert asked(kind="queues", vhost="other")["rows"] == []
    for kind, more, reason in (
        ("cats", {}, "'kind' must be one of queues"),
        ("queues", {"columns": [1]}, "'columns'"),
    ):
        answer = pair.ask(pair[0], "list", kind=kind, **more)
        assert answer["code"] == "command-bad-arguments" and reason in answer["reason"]

"""An operator sees messages as they pass; nothing is left of it when nobody looks."""

from __future__ import annotations

from typing import Any

from ha.adapter.management import tracing
from tests.ha.pair import Pair


def test_a_tracer_sees_what_queues_get_and_what_leaves_them() -> None:
    pair = Pair()
    pair.up()
    a = pair[0]
    history = a.running.vhosts.history
    before = len(history.sinks), history.ledger_wanted
    pair.declare(a, "q")
    a.running.vhost.declare_queue("alone", owner=object(), exclusive=True, arguments={"x-replicate": "none"})

    def asked(**args: Any) -> list[dict[str, Any]]:
        answer = pair.ask(a, "trace", session=session, **args)
        assert answer["ok"], answer
        found: list[dict[str, Any]] = answer["events"] + [{"dropped": answer["dropped"]}]
        return found

    session = pair.ask(a, "trace", vhost="/", octets=10)["session"]
    assert (len(history.sinks), history.ledger_wanted) == (before[0] + 1, True)
    pair.publish(a, "q", "ab")
    pair.publish(a, "alone", "c", persistent=False)
    pair.run(0.1)
    found = asked()
    assert [(e["event"], e["queues"], e["payload"]) for e in found[:-1]] == [
        ("enqueued", ["q"], "a"), ("enqueued", ["q"], "b"), ("enqueued", ["alone"], "c")
    ]  # fmt: skip
    pair.consume(a, "q", 2)
    pair.run(0.1)
    (left, dropped) = asked()
    assert (left["event"], left["queue"], left["reason"], left["count"]) == ("left", "q", "acked", 2)
    assert dropped == {"dropped": 0}
    for _ in range(3):
        pair.publish(a, "q", "x" * 1000)
        pair.run(0.1)
    found = asked()
    assert len(found) - 1 == 3 * tracing.DECODED and found[-1] == {"dropped": 3000 - 3 * tracing.DECODED}
    asked(stop=True)
    assert (len(history.sinks), history.ledger_wanted) == before
    assert pair.ask(a, "trace", session=session)["code"] == "command-bad-arguments"


def test_tracers_are_few_and_go_when_they_do_not_ask() -> None:
    pair = Pair(1)
    pair.start()
    history = pair[0].running.vhosts.history
    before = list(history.sinks)
    for _ in range(tracing.MOST):
        assert pair.ask(pair[0], "trace")["ok"]
    assert "4 others trace already" in pair.ask(pair[0], "trace")["reason"]
    pair.run(tracing.PATIENCE + 0.1)
    assert history.sinks == before
    assert "no vhost 'none'" in pair.ask(pair[0], "trace", vhost="none")["reason"]
    assert pair.ask(pair[0], "trace", by="nobody")["amqp"] == 403

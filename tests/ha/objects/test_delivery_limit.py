"""A delivery limit through a failover: the count begins anew; what was over the limit before stays out."""

from __future__ import annotations

from tests.ha.pair import Host, Pair


def bounces(host: Host, queue: str) -> list[int]:
    """A consumer gives the oldest message back until it does not come again. The counts that it sees."""
    found = host.running.vhost.queues[queue]
    seen: list[int] = []
    oldest = None
    while (entry := found.pop(no_ack=False)) is not None:
        oldest = oldest or entry[0]
        if entry[0] != oldest:
            found.requeue([entry], failed=False)
            break
        seen.append(found.returns.count(entry) if found.returns is not None else -1)
        found.requeue([entry])
    return seen


def test_the_count_begins_anew_and_dead_letters_stay_dead() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "dead")
    arguments = {
        "x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
    }  # fmt: skip
    pair.declare(a, "q", arguments=arguments)
    pair.publish(a, "q", "abc")
    assert bounces(a, "q") == [0, 1, 2]
    found = a.running.vhost.queues["q"]
    entry = found.pop(no_ack=False)
    assert entry is not None
    found.requeue([entry])  # b, once
    pair.run(0.3)
    assert (pair.contents(b, "q"), pair.contents(b, "dead")) == ("bc", "a")
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    assert bounces(b, "q") == [0, 1, 2]
    pair.run(0.1)
    assert (pair.contents(b, "q"), pair.contents(b, "dead")) == ("c", "ab")

"""A pair whose link has addresses of its own: clients and operators are only ever told the others."""

from __future__ import annotations

import json

from tests.ha.pair import Pair
from tests.ha.status.test_announcements import frames

PUBLIC = ["one.example:5672", "amqps://two.example:5671"]


def apart() -> Pair:
    pair = Pair()
    pair.settings["public_brokers"] = PUBLIC
    pair.up()
    pair.run(0.3)
    return pair


def test_status_and_refusals_name_the_addresses_for_clients() -> None:
    pair = apart()
    a, b = pair.hosts
    for host in (a, b):
        status = host.running.status()
        assert status["primary"] == "a at one.example:5672"
        assert {m["name"]: m["address"] for m in status["members"]} == dict(zip("ab", PUBLIC, strict=True))
    refusal = b.running.core.admit(peer=False)
    assert refusal.text.endswith("the primary is a at one.example:5672")


def test_the_other_one_is_named_after_a_switchover_and_once_it_is_gone() -> None:
    pair = apart()
    a, b = pair.hosts
    assert pair.ask(a, "switchover")["ok"]
    pair.until(lambda: a.status == "ready")
    assert a.running.core.admit(peer=False).text.endswith("b at amqps://two.example:5671")
    pair.kill(b)
    pair.run(1)
    members = {m["name"]: m for m in a.running.status()["members"]}
    assert (members["b"]["status"], members["b"]["address"]) == ("unreachable", PUBLIC[1])


def test_events_tell_all_addresses_for_clients_also_of_who_is_away() -> None:
    pair = apart()
    a, b = pair.hosts
    pair.declare(a, "watch")
    a.running.vhost.bind_queue("watch", "amq.failover", "#", owner=pair)
    pair.kill(b)
    pair.run(3)
    told = [raw for _, _, raw in a.running.vhost.queues["watch"].ready]
    assert len(told) == 2, "lost and excluded"
    for raw in told:
        document = json.loads(b"".join(payload for _, payload in frames(raw)[1:]))
        assert document["brokers"] == PUBLIC

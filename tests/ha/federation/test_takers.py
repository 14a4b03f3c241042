"""When a node downstream may have its link, and when the upstream may let go."""

from __future__ import annotations

from tests.ha.federation.test_hop import joined


def test_the_upstream_keeps_what_no_disk_downstream_has() -> None:
    net = joined()
    leaf = net.serving("leaf")
    leaf.syncing = False
    net.send("hub", "a.b", "123")
    net.run(0.5)
    assert net.content("leaf", "q") == "123" and net.waiting("hub", "leaf") == 3
    net.kill(leaf)
    net.run(0.1)
    leaf.syncing = True
    net.start(leaf)
    net.gets("leaf", "q", "123")
    net.until(lambda: net.waiting("hub", "leaf") == 0)


def test_an_old_primary_that_runs_on_does_not_take_the_link_back() -> None:
    """The lines within the pair downstream are cut, and an operator forces the backup."""
    net = joined(hub=1, leaf=2)
    first, second = net.nodes["leaf"]
    net.send("hub", "a.b", "12")
    net.gets("leaf", "q", "12")
    net.separate(first, second)
    net.run(8.0)
    answer = net.ask(second, "promote", force_lossy=True)
    assert answer["ok"] and first.running.vhosts.serving, answer
    net.until(lambda: second.running.status()["federation"]["agents"][0]["state"] == "running")
    for text in "3456":
        net.send("hub", "a.b", text)
        net.run(2.0)
        assert second.running.status()["federation"]["agents"][0]["state"] == "running"
    assert net.contents(second, "q") == "123456"
    assert net.contents(first, "q") == "12"
    assert "has it already, in a later epoch" in str(first.running.status()["federation"]["agents"])

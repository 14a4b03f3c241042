"""A broker that was restored from a copy: its link queues are not those of the broker that was copied."""

from __future__ import annotations

import pytest

from tests.ha.federation.nets import Net, restore


@pytest.mark.parametrize("way", ["pull", "push"])
def test_a_restored_broker_gives_what_is_published_after_the_restore(way: str) -> None:
    """The other end has a cursor that is later than all that the restored broker hands out."""
    source, sink = ("hub", "leaf") if way == "pull" else ("leaf", "hub")
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue(sink, "q", "k")
    modes = {} if way == "pull" else {"consume_mode": "none", "forward_mode": "all"}
    net.federate("leaf", "hub", **modes)
    net.runs("leaf", "hub")
    net.send(source, "k", "1")
    net.gets(sink, "q", "1")
    net.run(1.0)
    host = net.serving(source)
    copy, epoch = host.disk.contents(), host.running.core.epoch
    for text in "23":  # not in the copy; each life of a broker is an epoch of its own
        net.send(source, "k", text)
        net.until(lambda: net.content(sink, "q")[-1:] == text)  # noqa: B023
        net.kill(host)
        net.start(host)
        net.runs("leaf", "hub")
    net.kill(host)
    restore(host, copy, epoch, "f" * 32)
    for _ in range(2):  # its second life has the same link queue
        net.start(host)
        net.runs("leaf", "hub")
        net.send(source, "k", "4")
        net.run(1.0)
        net.kill(host)
    assert net.content(sink, "q").endswith("44")

"""A link over a line on which answers take long."""

from __future__ import annotations

from tests.builds import PURE_ONLY
from tests.ha.federation.nets import Net


def test_an_answer_that_takes_long_is_waited_for_and_not_asked_for_again() -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    for exchange in ("x", "y"):
        net.exchange("hub", "leaf", name=exchange)
    net.queue("leaf", "q", "k.#")
    net.federate("leaf", "hub", "y")
    net.runs("leaf", "hub", "y")  # they share a connection, which is open by then
    hub = net.serving("hub")
    net.hold(hub, net.serving("leaf"))
    net.federate("leaf", "hub")
    net.run(1.8)
    net.heal()
    net.run(0.3)
    assert net.line("leaf", "hub")["state"] == "running"
    assert not [line for line in hub.log if "is open already" in line]
    net.send("hub", "k.a", "abc")
    net.gets("leaf", "q", "abc")


@PURE_ONLY
def test_an_upstream_that_does_not_answer_is_asked_again_later() -> None:
    """It may have forgotten the question: a switchover came, and came to nothing."""
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    hub = net.serving("hub")
    forget = hub.running.federation.hear
    net.federate("leaf", "hub")
    hub.running.federation.hear = lambda *_: None  # type: ignore[method-assign]
    net.run(2.0)
    hub.running.federation.hear = forget  # type: ignore[method-assign]
    net.until(lambda: net.line("leaf", "hub")["state"] == "running", 10.0)

"""Lines over which an answer takes longer than an agent's patience."""

from __future__ import annotations

import pytest

from ha.core.federation.agent import ASK_EVERY
from tests.ha.federation.nets import Net, agent

GIVES = {"forward_mode": "all", "consume_mode": "none"}


@pytest.mark.parametrize("mode", [{}, GIVES], ids=["takes", "gives"])
def test_a_question_whose_answer_takes_long_is_not_asked_again(mode: dict[str, str]) -> None:
    """The broker upstream would end the connection: the stream is open already."""
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.federate("leaf", "hub", **mode)
    net.runs("leaf", "hub")
    hub, leaf = net.hosts
    lines = list(net.wires)
    assert net.define(leaf, agent("x", "hub", paused=True, **mode))["ok"]
    net.run(0.3)
    net.hold(hub, leaf)
    assert net.define(leaf, agent("x", "hub", **mode))["ok"]
    net.run(3 * ASK_EVERY)
    assert net.line("leaf", "hub")["state"] != "running"
    net.heal()
    net.run(0.1)
    assert net.line("leaf", "hub")["state"] == "running" and net.wires == lines


def test_a_question_of_a_broker_that_stops_serving_meanwhile_is_answered() -> None:
    """Else the connection, which stays, would never be asked on again."""
    net = Net(hub=2, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    first, second = net.nodes["hub"]
    assert net.define(net.serving("leaf"), agent("x", "hub", paused=True))["ok"]
    net.run(0.3)
    net.hold(second, first)
    first.running.manage("switchover", {}, lambda answer: None, net.now)
    net.until(lambda: first.running.broker.input_paused)
    assert net.define(net.serving("leaf"), agent("x", "hub"))["ok"]
    net.until(lambda: first.running.federation._held)
    net.heal()
    net.until(lambda: second.running.vhosts.serving)
    net.runs("leaf", "hub")
    assert net.ask(second, "switchover")["ok"]
    net.runs("leaf", "hub")
    assert net.line("leaf", "hub")["source"].startswith("a ")

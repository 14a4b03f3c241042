"""Several nodes want the same, in a net with a cycle."""

from __future__ import annotations

from tests.ha.federation.nets import Net

LINKS = [("u", "d"), ("n", "u"), ("d", "n"), ("e", "n")]
"""(downstream, upstream): a ring, and one node more that takes from it."""


def test_each_node_that_wants_a_message_gets_it_whoever_was_joined_first() -> None:
    for order in (LINKS, [*LINKS[:2], *reversed(LINKS[2:])]):
        net = Net(None, d=1, u=1, n=1, e=1)
        net.up()
        net.exchange(*"dune")
        for node in "de":
            net.queue(node, "q", "w")
        for downstream, upstream in order:
            net.federate(downstream, upstream)
        for downstream, upstream in order:
            net.runs(downstream, upstream)
        net.run(0.5)
        net.send("d", "w", "1")
        net.run(0.5)
        assert (net.content("d", "q"), net.content("e", "q")) == ("1", "1"), order

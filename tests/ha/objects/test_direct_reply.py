"""Direct reply-to is at most once: a failover ends the requester's consumer, and replies to it."""

from __future__ import annotations

from broker.model.queue.direct_reply import PREFIX, REPLY_TO
from tests.ha.client import Client
from tests.ha.pair import Host, Pair


def requester(pair: Pair, host: Host) -> str:
    """A client that consumes replies. Returns their name."""
    client = Client("r", host, pair.now)
    pair.run(0.1)
    client.pump(pair.now)
    client.begin(pair.now)
    client.call("basic.consume", pair.now, queue=REPLY_TO, no_ack=True)
    pair.run(0.1)
    assert client.pump(pair.now) == []
    (name,) = [name for name in host.running.vhost.queues if name.startswith(PREFIX)]
    return name


def test_the_consumer_is_gone_after_a_failover_and_a_reply_to_it_goes_nowhere() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    name = requester(pair, a)
    pair.publish(a, name, "a")  # no backup is told of this queue, or of what is in it
    pair.run(0.2)
    assert name not in b.running.vhost.queues
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    assert not b.running.vhost.route("", name).queues  # so a mandatory reply is returned
    assert requester(pair, b) != name

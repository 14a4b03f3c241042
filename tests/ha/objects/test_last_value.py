"""Last-value queues through a failover and a restart: the newest message of each key is there, no other."""

from __future__ import annotations

from broker.amqp091.codec.fields import write_shortstr
from tests.broker.amqp091.wire import content
from tests.ha.pair import Host, Pair

TYPE = 1 << 5


def update(pair: Pair, host: Host, *texts: str) -> None:
    """`a1` is the value 1 of the key a."""
    vhost = host.running.vhost
    raws = [
        content(
            1,
            text[1].encode(),
            properties=(0x1000 | TYPE).to_bytes(2, "big") + b"\2" + write_shortstr(text[0]),
        )
        for text in texts
    ]
    vhost.publish(vhost.route("", "q"), raws, persistent=True, channel=1, largest_frame=40)
    pair.run(0.2)


def test_the_newest_of_each_key_survives() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments={"x-last-value-key": "type"})
    update(pair, a, "a1", "b2", "a3", "c4", "c5")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "235"
    held = a.running.vhost.queues["q"].pop(no_ack=False)  # b, by a client
    assert held is not None
    update(pair, a, "b6", "a7")
    assert pair.contents(b, "q") == "2567"
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    pair.run(0.2)
    assert pair.contents(b, "q") == "567"
    update(pair, b, "c8")
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.run(0.2)
    assert pair.contents(a, "q") == pair.contents(b, "q") == "678"
    assert pair.fingerprint(a) == pair.fingerprint(b)
    for host in (a, b):
        pair.kill(host)
    pair.start()
    pair.run(0.5)
    assert pair.ask(b, "promote")["ok"]
    assert pair.contents(b, "q") == "678"

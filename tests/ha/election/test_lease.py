"""The lease: what a primary may send while nothing proves that it still is one; whom a new one waits for."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from ha.adapter.inbox import Arrived
from ha.core.wire.link import Method, to_json
from tests.ha.client import knock
from tests.ha.pair import Host, Pair

LEASE = 3.0
AUTHORITIES = ("manual", "register")
HEADER = b"\x02\0\1\0\0\0\x0e" + b"\0<\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0\0" + b"\xce"
BODY = b"\x03\0\1\0\0\0\1x\xce"


class Client:
    """An ordinary client of one host: raw frames in, method names out."""

    def __init__(self, pair: Pair, host: Host) -> None:
        self.pair, self.host = pair, host
        self.conn = knock(pair, host)
        self.send(encode_frame(1, "channel.open"))
        pair.run(0.05)
        assert self.output() and self.conn.running, "let in"

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.conn.receive(frame, self.pair.now)

    def call(self, name: str, **arguments: Any) -> None:
        self.send(encode_frame(1, name, **arguments))

    def publish(self, queue: str) -> None:
        self.send(encode_frame(1, "basic.publish", exchange="", routing_key=queue), HEADER, BODY)

    def output(self) -> bytes:
        """What the driver would write now."""
        return b"".join(self.conn.take_output())


def up(count: int = 2, **settings: Any) -> Pair:
    """A pair that is up, with a queue of three messages."""
    pair = Pair(count, **settings)
    pair.up()
    pair.declare(pair[0], "q")
    position = pair.publish(pair[0], "q", "abc")
    pair.until(lambda: pair.confirmed(pair[0], position))
    return pair


def busy(pair: Pair, host: Host) -> Client:
    """A client that confirms, has a consumer with prefetch 1, and has seen all there was to see."""
    client = Client(pair, host)
    client.call("confirm.select")
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue="q", consumer_tag="c", arguments={})
    pair.run(0.1)
    assert client.output()
    return client


def everything_at_once(client: Client) -> None:
    """All that a client may be answered in the tick of waking: get-ok, a delivery, a confirm, replies."""
    client.call("basic.get", queue="q")
    client.call("basic.ack", delivery_tag=1)
    client.publish("q")
    client.call("queue.declare", queue="other", arguments={})
    client.call("basic.qos", prefetch_count=10)


# -- the frozen primary


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_a_primary_frozen_past_its_lease_wakes_and_says_nothing_to_clients(authority: str) -> None:
    pair = up(authority=authority)
    a, b = pair.hosts
    client = busy(pair, a)
    a.frozen = True
    pair.run(LEASE + 1.0)
    force = authority == "manual"
    answer = pair.ask(b, "promote", force_lossy=force)
    assert answer["ok"], answer
    everything_at_once(client)
    node = a.running
    node.timers(pair.now)
    node.end_tick(pair.now, pair.wall)
    assert client.output() == b"", "the very tick of waking"
    a.frozen = False
    seen = b""
    while a.status == "active":
        pair.step()
        pair.now += 0.005
        seen += client.output() if a.status == "active" else b""
    assert seen == b""
    last = client.output()
    assert last[7:11] == b"\0\x0a\0\x32", "connection.close, and nothing of what was fenced before it"
    assert b"CONNECTION_FORCED" in last and last.count(b"\xce") == 1
    pair.until(lambda: a.status == "ready")


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_one_that_still_is_the_primary_goes_on_once_its_lease_is_renewed(authority: str) -> None:
    pair = up(authority=authority)
    a, b = pair.hosts
    client = busy(pair, a)
    a.frozen = True
    pair.run(LEASE + 1.0)
    everything_at_once(client)
    a.frozen = False
    pair.step()
    assert client.output() == b"" and a.running.broker.output_fenced
    assert "nothing is confirmed or delivered" in a.running.status()["reason"]
    pair.until(lambda: not a.running.broker.output_fenced, 3.0)
    pair.until(lambda: b.status == "ready" and a.running.status()["link"] == "up")
    pair.run(0.2)
    assert told_of(client.output()) >= {"basic.get-ok", "basic.deliver", "basic.ack", "queue.declare-ok"}


def told_of(output: bytes) -> set[str]:
    """Names of some methods of channel 1 in a byte string of whole frames."""
    names = {
        (60, 71): "basic.get-ok",
        (60, 60): "basic.deliver",
        (60, 80): "basic.ack",
        (50, 11): "queue.declare-ok",
    }
    found, at = set(), 0
    while at < len(output):
        size = int.from_bytes(output[at + 3 : at + 7], "big")
        key = int.from_bytes(output[at + 7 : at + 9], "big"), int.from_bytes(output[at + 9 : at + 11], "big")
        if output[at] == 1 and key in names:
            found.add(names[key])
        at += size + 8
    return found


ASKING = {
    "basic.get-ok": ("basic.get", {"queue": "q"}),
    "basic.deliver": ("basic.ack", {"delivery_tag": 1}),
    "queue.declare-ok": ("queue.declare", {"queue": "other", "arguments": {}}),
    "basic.ack": ("", {}),
}


@pytest.mark.parametrize("answer", ASKING)
def test_nothing_of_what_may_not_leave_leaves_in_the_tick_of_waking(answer: str) -> None:
    """On a primary alone nothing else is waited for: each would leave at the end of that tick."""
    for awake in (True, False):
        pair = up(authority="register")
        a, b = pair.hosts
        pair.kill(b)
        pair.run(3.0)
        client = busy(pair, a)
        queue = a.running.vhost.queues["q"]
        pair.now += 0.0 if awake else LEASE
        name, arguments = ASKING[answer]
        if name:
            client.call(name, **arguments)
        else:
            client.publish("q")
        a.running.end_tick(pair.now, pair.wall)
        a.sync.run()
        handed = queue.unacked_count
        a.running.end_tick(pair.now, pair.wall)
        assert told_of(client.output()) == ({answer} if awake else set())
        if answer == "basic.deliver":
            assert handed == (1 if awake else 0), "it is not even taken from its queue"
        pair.until(lambda a=a: not a.running.broker.output_fenced)
        pair.run(0.1)
        assert told_of(client.output()) == (set() if awake else {answer})


def test_who_hears_of_a_newer_primary_in_the_tick_of_waking_says_that_only() -> None:
    pair = up()
    a, b = pair.hosts
    client = busy(pair, a)
    a.frozen = True
    pair.run(LEASE + 1.0)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    hello = to_json(b.running.core.stand())
    a.running._inbox.put(Arrived(next(iter(a.running.hooks.peers)), Method.HELLO, hello))
    client.call("basic.get", queue="q")
    a.running.end_tick(pair.now, pair.wall)
    assert a.status == "joining"
    last = client.output()
    assert last[7:11] == b"\0\x0a\0\x32" and last.count(b"\xce") == 1


def test_a_pause_within_a_tick_is_noticed_before_the_output_is_taken() -> None:
    pair = up()
    a = pair[0]
    client = busy(pair, a)
    client.call("basic.get", queue="q")
    a.running.end_tick(pair.now, pair.wall)
    a.running.before_output(pair.now + LEASE + 0.1)
    assert client.output() == b""


def test_a_node_stopped_after_a_pause_sends_only_the_close() -> None:
    pair = up()
    a = pair[0]
    client = busy(pair, a)
    client.call("basic.get", queue="q")
    a.running.stop(pair.now + LEASE + 1.0)
    assert client.output().count(b"\xce") == 1


def test_operators_and_peers_are_answered_while_the_lease_has_expired() -> None:
    pair = up()
    a, b = pair.hosts
    pair.separate(a, b)
    a.frozen = True
    pair.run(LEASE + 1.0)
    a.frozen = False
    pair.step()
    assert a.running.broker.output_fenced
    assert pair.ask(a, "status")["ok"]
    pair.heal()
    pair.until(lambda: not a.running.broker.output_fenced)


def test_new_clients_wait_while_the_lease_has_expired() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    pair.register.cut = {"a"}
    pair.separate(a, b)
    pair.until(lambda: a.running.broker.output_fenced, LEASE + 1.0)
    with pytest.raises(AssertionError, match="let in"):
        held = Client(pair, a)
        del held
    pair.heal()
    pair.register.cut.clear()
    pair.until(lambda: not a.running.broker.output_fenced)
    pair.run(0.2)
    Client(pair, a)


# -- no hiccup


def test_alone_under_manual_it_serves_without_a_hiccup_whoever_is_silent() -> None:
    """Unreachable, frozen with its connections open, or dead: silence of the others counts as nothing."""
    pair = up(3)
    a, b, c = pair.hosts
    pair.kill(c)
    b.frozen = True
    pair.until(lambda: not a.running.core.primary.backups)  # type: ignore[union-attr]
    a.log.clear()
    for _ in range(4000):
        pair.step()
        pair.now += 0.005
        assert not a.running.broker.output_fenced, a.log
    pair.separate(a, b)
    for _ in range(2000):
        pair.step()
        pair.now += 0.005
        assert not a.running.broker.output_fenced, a.log


@pytest.mark.parametrize("authority", AUTHORITIES)
@pytest.mark.parametrize("how", ["killed", "frozen", "cut off"])
def test_losing_a_backup_costs_no_hiccup_of_deliveries(authority: str, how: str) -> None:
    pair = up(authority=authority)
    a, b = pair.hosts
    if how == "killed":
        pair.kill(b)
    elif how == "frozen":
        b.frozen = True
    else:
        pair.separate(a, b)
    for _ in range(1600):
        pair.step()
        pair.now += 0.005
        assert not a.running.broker.output_fenced, a.log
    position = pair.publish(a, "q", "x")
    pair.until(lambda: pair.confirmed(a, position))


def test_a_quiet_pair_proves_itself_by_heartbeats() -> None:
    pair = up(lease=0.6, ack_timeout=1.0)
    for _ in range(2000):
        pair.step()
        pair.now += 0.005
        assert not pair[0].running.broker.output_fenced


def test_a_short_lease_leaves_its_rounds_of_hellos_the_time_to_end() -> None:
    pair = up(lease=0.6, ack_timeout=2.0)
    a, b = pair.hosts
    b.frozen = True
    pair.until(lambda: a.running.status()["link"] == "lost")
    pair.until(lambda: not a.running.broker.output_fenced, 0.5)
    for _ in range(1000):
        pair.step()
        pair.now += 0.005
        assert not a.running.broker.output_fenced


def test_a_standalone_broker_has_no_lease() -> None:
    pair = Pair(1)
    pair.start()
    assert pair[0].running.core.lease_until == float("inf")
    pair.now += 100.0
    pair.step()
    assert not pair[0].running.broker.output_fenced


def test_the_expiry_is_a_deadline() -> None:
    pair = up()
    a, b = pair.hosts
    pair.separate(a, b)
    b.frozen = True
    deadline = a.running.next_deadline()
    assert deadline is not None and deadline <= a.running.core.lease_until


# -- the register's lease


def test_a_primary_without_register_and_backups_stops_delivering_in_time() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    client = busy(pair, a)
    since = pair.now
    pair.separate(a, b)
    pair.register.cut = {"a"}
    pair.until(lambda: a.running.broker.output_fenced, LEASE + 0.5)
    assert pair.now - since > LEASE - 1.0
    client.call("basic.ack", delivery_tag=1)
    pair.run(1.0)
    assert client.output() == b""
    assert pair.ask(b, "promote")["ok"]


def test_one_rival_that_acknowledges_is_no_proof_against_another() -> None:
    """Of three, the one that is cut off could be promoted: that the other still follows proves nothing."""
    pair = up(3, authority="register")
    a, _b, c = pair.hosts
    pair.separate(a, c)
    pair.register.cut = {"a"}
    pair.until(lambda: a.running.broker.output_fenced, LEASE + 0.5)


def test_an_answer_that_lay_about_during_the_pause_proves_nothing() -> None:
    pair = Pair(authority="register")
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    assert pair.ask(a, "promote")["ok"]
    pair.kill(b)
    pair.run(4.0)
    pair.register.delay = 0.2
    pair.until(lambda: bool(a.running.core.keeper._reads))
    a.frozen = True
    pair.run(LEASE + 1.0)
    a.frozen = False
    pair.step()
    pair.step()
    assert a.running.broker.output_fenced, "the answer to a read of before"
    pair.until(lambda: not a.running.broker.output_fenced)


def test_a_round_of_hellos_is_dated_by_its_questions() -> None:
    pair = up()
    a, b = pair.hosts
    b.frozen = True
    renewal, keeper = a.running.core.lease_renewal, a.running.core.keeper
    pair.until(lambda: renewal._round is None)
    pair.until(lambda: renewal._round is not None)
    asked_at = pair.now
    pair.until(lambda: renewal._round is None)
    assert pair.now > asked_at + 0.4, "b is there, and silent"
    assert keeper.owned_at <= asked_at


def test_a_new_primary_that_has_never_linked_is_a_rival_too() -> None:
    """Another follows and acknowledges; this one could be promoted, and only the register knows."""
    pair = up(4, authority="register", backup_timeout=30.0)
    a, b, c, d = pair.hosts
    pair.kill(a)
    pair.separate(b, c)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: d.status == "ready" and b.running.status()["link"] == "up")
    pair.run(1.0)
    pair.register.cut = {"b"}
    pair.until(lambda: b.running.broker.output_fenced, LEASE + 0.1)
    assert pair.ask(c, "promote")["ok"]

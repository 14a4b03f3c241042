"""Large messages go to the backups in pieces while they come, with the batches of others between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.amqp091.codec.frames import BODY, HEADER, frame
from broker.amqp091.codec.grammar import encode_frame
from tests.broker.amqp091.wire import LOOPBACK, Raw, message
from tests.ha.pair import STEP, Host, Pair, retune

BODY_OCTETS = 3000
PIECES = [bytes([65 + at]) * 300 for at in range(10)]


class Client(Raw):
    """A client of a node of a pair; each thing that it sends is followed by a step of the pair."""

    def __init__(self, pair: Pair, host: Host) -> None:
        self.pair = pair
        self.connection = host.running.accept(LOOPBACK, pair.now)
        self.inbox = b""
        self.begin_login()
        self.send(0, "connection.open", virtual_host="/")
        self.send(1, "channel.open")
        self.send(1, "confirm.select")
        assert self.names()[-1] == "confirm.select-ok"

    def raw(self, data: bytes) -> None:
        self.connection.receive(data, self.pair.now)
        self.pair.run(STEP)
        self.inbox += b"".join(self.connection.take_output())

    def look(self) -> list[str]:
        """Names of what has come back since."""
        self.inbox += b"".join(self.connection.take_output())
        return self.names()

    def begin(self, key: str = "q", *, exchange: str = "", mandatory: bool = False) -> None:
        """The method and the header of a large message."""
        publish = encode_frame(
            1, "basic.publish", exchange=exchange, routing_key=key, mandatory=mandatory, immediate=False
        )
        header = b"\0\x3c\0\0" + BODY_OCTETS.to_bytes(8, "big") + b"\x10\0\2"
        self.raw(publish + frame(HEADER, 1, header))

    def pieces(self, first: int = 0, end: int = len(PIECES)) -> None:
        for piece in PIECES[first:end]:
            self.raw(frame(BODY, 1, piece))


def up(count: int = 2, window: int = 1 << 20) -> Pair:
    pair = Pair(count)
    pair.up()
    for host in pair.hosts:
        ready(host, window)
    pair.declare(pair[0], "q")
    pair.run(0.1)
    return pair


def ready(host: Host, window: int = 1 << 20) -> None:
    """What is large here is small."""
    node = host.running
    node.broker.settings = replace(node.broker.settings, large_message=BODY_OCTETS)
    retune(node.core, contents_window=window, contents_piece=1)


def sent(pair: Pair) -> int:
    """Link bytes that the primary has sent to its backup."""
    assert pair[0].running.core.primary is not None
    (backup,) = pair[0].running.core.primary.backups.values()
    return backup.bytes_sent


def coming(host: Host) -> int:
    """Octets that a backup holds of messages that are in no batch yet."""
    backup = host.running.core.backup
    assert backup is not None and backup._replicator is not None
    return backup._replicator.contents.octets


def raws(host: Host, queue: str = "q") -> list[bytes]:
    return [bytes(entry[2]) for entry in host.running.vhost.queues[queue].held_entries()]


def bodies(host: Host, queue: str = "q") -> list[bytes]:
    """Of the messages there: `large`, if it is whole, or the last octets."""
    whole = b"".join(frame(BODY, 1, piece) for piece in PIECES)
    return [b"large" if raw.endswith(whole) else raw[-6:-1] for raw in raws(host, queue)]


def test_pieces_go_ahead_and_others_go_between() -> None:
    pair = up()
    a, b = pair.hosts
    large, small = Client(pair, a), Client(pair, a)
    large.begin()
    large.pieces(0, 9)
    pair.run(0.1)
    assert 2700 < coming(b) < 2850
    small.raw(message(1, b"small", "", "q"))
    pair.run(0.1)
    assert "basic.ack" in small.look()
    assert bodies(b) == [b"small"]
    before = sent(pair)
    large.pieces(9)
    pair.run(0.1)
    assert sent(pair) - before < 600, "the last piece, and a batch without the message"
    assert "basic.ack" in large.look()
    assert bodies(b) == [b"small", b"large"]
    assert raws(b) == raws(a)
    assert coming(b) == 0
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.kill(b)
    pair.start(b)
    assert pair.ask(b, "promote")["ok"]
    assert bodies(b) == [b"large"], "its disk has it whole, too; the small one was transient"


def test_parts_of_a_few_octets_go_in_pieces_that_are_worth_a_frame() -> None:
    pair = up()
    a, b = pair.hosts
    node = a.running
    retune(node.core, contents_piece=1000)
    large = Client(pair, a)
    large.begin()
    before = sent(pair)
    large.raw(frame(BODY, 1, b"x") * 2500)
    pair.run(0.1)
    octets = 2500 * len(frame(BODY, 1, b"x"))
    assert octets - 1000 < coming(b) <= octets
    assert sent(pair) - before < octets + 2000, "20 frames of the link, and signs of life"
    large.raw(frame(BODY, 1, b"x") * 500)
    pair.run(0.1)
    assert "basic.ack" in large.look()
    assert raws(b) == raws(a) and coming(b) == 0


def test_a_client_waits_while_the_link_does() -> None:
    pair = up(window=500)
    a, b = pair.hosts
    large, small = Client(pair, a), Client(pair, a)
    pair.held[a.name, b.name] = 0
    large.begin()
    large.pieces(0, 5)
    assert large.connection.paused_reading
    before = sent(pair)
    small.raw(message(1, b"small", "", "q"))
    assert 100 < sent(pair) - before < 400, "nothing of the large message is before it"
    pair.held[a.name, b.name] = 1500
    pair.run(0.1)
    assert bodies(b) == [b"small"]
    del pair.held[a.name, b.name]
    pair.run(0.1)
    assert not large.connection.paused_reading
    large.pieces(5)
    pair.run(0.1)
    assert bodies(b) == [b"small", b"large"]


@pytest.mark.parametrize("how", ["closed", "lost", "no queue", "full", "committed"])
def test_what_no_batch_brings_is_forgotten(how: str) -> None:
    pair = up()
    a, b = pair.hosts
    pair.declare(a, "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    large = Client(pair, a)
    if how == "committed":
        large.send(1, "channel.close", reply_code=200, reply_text="", failed_class=0, failed_method=0)
        large.send(1, "channel.open")
        large.send(1, "tx.select")
    large.begin({"no queue": "nobody", "full": "full"}.get(how, "q"))
    large.pieces(0, 5)
    assert bool(coming(b)) is (how != "committed")
    match how:
        case "closed":
            large.send(1, "basic.ack", delivery_tag=7)
        case "lost":
            large.connection.lost(pair.now)
        case _:
            large.pieces(5)
    pair.run(0.1)
    if how == "committed":
        large.send(1, "tx.commit")
        pair.run(0.1)
        assert bodies(b) == [b"large"]
    assert coming(b) == 0
    assert b.status == "ready"
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_one_message_for_queues_of_several_kinds() -> None:
    pair = up()
    a, b = pair.hosts
    vhost = a.running.vhost
    large = Client(pair, a)
    vhost.declare_queue("own", owner=large.connection, exclusive=True)
    pair.declare(a, "two", arguments={"x-max-length": 5})
    for queue in ("q", "two", "own"):
        vhost.bind_queue(queue, "amq.fanout", "", owner=large.connection)
    large.begin("", exchange="amq.fanout")
    large.pieces()
    pair.run(0.1)
    assert bodies(b) == bodies(b, "two") == bodies(a, "own") == [b"large"]
    assert pair.fingerprint(a) == pair.fingerprint(b)


@pytest.mark.parametrize("pieces", [0, 5, 9])
def test_a_backup_that_comes_in_the_middle_gets_it_whole(pieces: int) -> None:
    pair = up(3)
    a, b, c = pair.hosts
    large = Client(pair, a)
    pair.kill(b)
    pair.until(lambda: len(a.running.core.primary.backups) == 1)  # type: ignore[union-attr]
    large.begin()
    large.pieces(0, pieces)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    large.pieces(pieces)
    pair.run(0.2)
    assert bodies(b) == bodies(c) == [b"large"]
    assert pair.fingerprint(a) == pair.fingerprint(b) == pair.fingerprint(c)


def test_a_client_of_a_lost_backup_goes_on() -> None:
    pair = up(window=500)
    a, b = pair.hosts
    large = Client(pair, a)
    pair.held[a.name, b.name] = 0
    large.begin()
    large.pieces(0, 5)
    assert large.connection.paused_reading
    pair.kill(b)
    pair.until(lambda: not large.connection.paused_reading)
    large.pieces(5)
    pair.until(lambda: "basic.ack" in large.look())


def test_a_new_primary_has_nothing_of_what_was_not_whole() -> None:
    pair = up()
    a, b = pair.hosts
    large = Client(pair, a)
    large.begin()
    large.pieces(0, 9)
    pair.run(0.1)
    assert pair.ask(a, "switchover")["ok"]
    pair.until(lambda: a.status == "ready" and b.status == "active", 10.0)
    assert bodies(b) == []
    large.connection.lost(pair.now)
    pair.run(0.1)
    assert pair.fingerprint(a) == pair.fingerprint(b)

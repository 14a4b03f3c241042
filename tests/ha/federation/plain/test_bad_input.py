"""What a plain broker upstream may send, and must not hurt with."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.fields import write_longstr, write_shortstr, write_table
from broker.amqp091.codec.frames import BODY, HEADER, METHOD, frame
from broker.amqp091.codec.grammar import encode_frame
from ha.adapter.federation.plain.channels import Answer, ChannelClosed, Deliveries, PlainChannels
from ha.core.errors import LinkError
from ha.core.federation.plain.giver import PlainGiver
from ha.core.federation.plain.ports import Given, Server
from tests.builds import PURE_ONLY
from tests.ha.federation.plain.test_agents import joined, publish

PEER, STREAM, CHANNEL = 7, 3, 2
Frames = list[tuple[int, int, bytes]]


class Line:
    """A logged-in connection."""

    def __init__(self) -> None:
        self.server_properties = {
            "cluster_name": "rabbit@hill", "product": "RabbitMQ", "version": "3.10.8",
            "capabilities": {"publisher_confirms": True, "exchange_exchange_bindings": True},
        }  # fmt: skip
        self.channel_max, self.frame_max = 2, 4096
        self.sent: list[bytes] = []

    def send_frames(self, parts: list[bytes]) -> None:
        self.sent += parts


def channels(message_max: int = 1000) -> tuple[PlainChannels, Line]:
    line = Line()
    made = PlainChannels(lambda peer: line, message_max)  # type: ignore[arg-type,return-value]
    made.opened(PEER, "up", "/")
    assert made.open(PEER, STREAM)
    return made, line


def method(name: str, **arguments: Any) -> tuple[int, int, bytes]:
    return METHOD, CHANNEL, encode_frame(CHANNEL, name, **arguments)


def deliver(key: str = "k", tag: int = 1) -> tuple[int, int, bytes]:
    return method("basic.deliver", consumer_tag="t", delivery_tag=tag, exchange="x", routing_key=key)


def header(size: int) -> tuple[int, int, bytes]:
    payload = b"\0\x3c\0\0" + size.to_bytes(8, "big") + b"\0\0"
    return HEADER, CHANNEL, frame(HEADER, CHANNEL, payload)


def body(text: bytes) -> tuple[int, int, bytes]:
    return BODY, CHANNEL, frame(BODY, CHANNEL, text)


WRONG: dict[str, Frames] = {
    "a channel that is not open": [(METHOD, 9, encode_frame(9, "basic.qos-ok"))],
    "a header that is not due": [header(1)],
    "a body that is not due": [body(b"x")],
    "a body that is too long": [deliver(), header(1), body(b"xx")],
    "a method in a message": [deliver(), header(2), body(b"x"), method("basic.qos-ok")],
    "a header cut short": [deliver(), (HEADER, CHANNEL, frame(HEADER, CHANNEL, b"\0\x3c\0\0"))],
    "a delivery cut short": [(METHOD, CHANNEL, frame(METHOD, CHANNEL, deliver()[2][7:-4]))],
    "a method that is none": [(METHOD, CHANNEL, frame(METHOD, CHANNEL, b"\0\x99\0\x01"))],
}


@PURE_ONLY
@pytest.mark.parametrize("frames", WRONG.values(), ids=WRONG)
def test_frames_that_cannot_be_right(frames: Frames) -> None:
    made, _ = channels()
    with pytest.raises(LinkError):
        made.hear(PEER, frames)


@PURE_ONLY
def test_messages_in_pieces_and_one_that_is_too_large() -> None:
    made, _ = channels(message_max=4)
    assert made.hear(PEER, [deliver("a"), header(3), body(b"xy")]) == []
    [first] = made.hear(
        PEER, [body(b"z"), deliver("b", 2), header(5), body(b"12345"), deliver("c", 3), header(0)]
    )
    assert isinstance(first, Deliveries)
    assert [(m.tag, m.routing_key, bool(m.raw)) for m in first.messages] == [
        (1, "a", True), (2, "b", False), (3, "c", True),
    ]  # fmt: skip


@PURE_ONLY
def test_a_channel_that_is_closed_is_used_again_when_both_have_said_so() -> None:
    made, line = channels()
    assert not made.open(PEER, 4)  # there is one
    [closed] = made.hear(
        PEER, [method("channel.close", reply_code=404, reply_text="no\nqueue", failed_class=50)]
    )
    assert closed == ChannelClosed(STREAM, 404, "no queue", (50, 0))
    assert line.sent[-1] == encode_frame(CHANNEL, "channel.close-ok") and made.open(PEER, 4)
    made.release(PEER, 4)
    assert made.hear(PEER, [deliver(), header(0), method("basic.ack", delivery_tag=1)]) == []
    assert not made.open(PEER, 5)
    made.hear(PEER, [method("channel.close-ok")])
    assert made.open(PEER, 5)
    assert made.hear(PEER, [method("basic.qos-ok")]) == [Answer(5, "basic.qos-ok", {})]


class Giving:
    """A link queue with these messages, and the broker that gets them: `poison` costs the channel."""

    def __init__(self, count: int, poison: set[int]) -> None:
        self.waiting = [Given((1, number), "k", b"m") for number in range(1, count + 1)]
        self.handed = 0
        self.poison = poison
        self.there: list[int] = []
        self.out: list[int] = []
        self.giver = PlainGiver(STREAM, "x", self, self, node="leaf", paused=False)  # type: ignore[arg-type]
        self.now = 0.0
        self.giver.opened(PEER, "up:5672", self.now)

    def type(self) -> str:
        return "topic"

    def server(self, peer: int) -> Server:
        return Server("up", "up", "a broker", confirms=True, joins=True)

    def open(self, peer: int, stream: int) -> bool:
        return True

    def release(self, peer: int, stream: int) -> None: ...

    def call(self, peer: int, stream: int, name: str, **arguments: object) -> None: ...

    def publish(self, peer: int, stream: int, exchange: str, message: Given) -> None:
        self.out.append(message.id[1])

    def attach(self, node: str) -> None:
        self.handed = 0

    def detach(self) -> None: ...

    def ended(self) -> str:
        return ""

    def took(self, upto: tuple[int, int]) -> None:
        before = len(self.waiting)
        self.waiting = [message for message in self.waiting if message.id > upto]
        self.handed -= before - len(self.waiting)

    def next(self) -> list[Given]:
        new = self.waiting[self.handed :]
        self.handed = len(self.waiting)
        return new

    def link(self) -> None:
        for name in ("channel.open-ok", "exchange.declare-ok", "confirm.select-ok"):
            self.giver.answered(PEER, name, {}, self.now)

    def turn(self) -> None:
        """The broker answers what it got, with one confirm for all."""
        self.now += 6.0
        if not self.giver.source:
            self.giver.timers(self.now)
            self.link()
        self.giver.end_tick(self.now)
        out, self.out = self.out, []
        good = next((at for at, number in enumerate(out) if number in self.poison), len(out))
        if good < len(out):
            self.giver.closed(PEER, 406, "PRECONDITION_FAILED", (60, 40), self.now)
            return
        self.there += out
        if out:
            tag = self.giver._tag
            self.giver.answered(PEER, "basic.ack", {"delivery_tag": tag, "multiple": True}, self.now)


def test_messages_that_cost_the_channel_are_found_and_let_go_of() -> None:
    giving = Giving(10, {4, 9})
    for _ in range(40):
        giving.turn()
    assert giving.there == [1, 2, 3, 5, 6, 7, 8, 10] and not giving.waiting
    assert (giving.giver.spoilt, giving.giver.given) == (2, 8)


def test_confirms_in_any_order_and_of_what_was_never_published() -> None:
    giving = Giving(5, set())
    giving.giver.timers(6.0)
    giving.link()
    giving.giver.end_tick(6.0)

    def confirm(tag: int, *, multiple: bool = False, name: str = "basic.ack") -> None:
        giving.giver.answered(PEER, name, {"delivery_tag": tag, "multiple": multiple}, 6.0)

    confirm(2)
    confirm(2)
    assert len(giving.waiting) == 5
    confirm(1, name="basic.nack")
    assert [message.id[1] for message in giving.waiting] == [3, 4, 5]
    confirm(5, multiple=True)
    assert not giving.waiting and (giving.giver.given, giving.giver.refused) == (4, 1)
    with pytest.raises(LinkError):
        confirm(6)
    with pytest.raises(LinkError):
        giving.giver.answered(PEER, "queue.bind-ok", {}, 6.0)


def with_path(value: bytes) -> bytes:
    """A message whose header x-received-from is that field."""
    table = write_longstr(write_shortstr("x-received-from") + value)
    payload = b"\0\x3c\0\0" + (1).to_bytes(8, "big") + b"\x20\0" + table
    return frame(HEADER, 1, payload) + frame(BODY, 1, b"p")


def hops(*tables: dict[str, Any]) -> bytes:
    return b"A" + write_longstr(b"".join(b"F" + write_table(table) for table in tables))


def test_messages_with_any_path_are_taken_or_left_out_and_never_stop_the_link() -> None:
    net = joined()
    forged = [
        b"S" + write_longstr(b"text"),
        b"A" + write_longstr(b"S" + write_longstr(b"x") + b"I\0\0\0\1"),
        hops({"cluster-name": 5}),
        hops({"cluster-name": "n" * 3000, "vhost": "v\n@"}),
    ]
    mine = [
        hops({"cluster-name": "other", "vhost": "/"}, {"cluster-name": "leaf", "vhost": "/"}),
        hops(*[{"cluster-name": f"n{number}"} for number in range(40)]),
    ]
    publish(net, "hub", "a.b", *map(with_path, [*forged, *mine]))
    net.send("hub", "a.b", "1")
    net.gets("leaf", "q", "pppp1")
    line = net.line("leaf", "hub")
    assert (line["looped"], line["routed"], line["state"]) == (2, 5, "running")


@PURE_ONLY
def test_no_password_is_said() -> None:
    made, _ = channels()
    server = made.server(PEER)
    assert server == Server("rabbit@hill", "rabbit%hill", "RabbitMQ 3.10.8", confirms=True, joins=True)
    net = joined()
    assert "guest" not in repr(net.line("leaf", "hub")) + "".join(net.hosts[1].log)

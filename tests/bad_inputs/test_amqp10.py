"""Bad inputs 27-36: AMQP 1.0. Numbers as in docs/reference/bad-inputs.md."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("proton")

from proton import Delivery, Message, symbol

from broker.amqp10.connection import Amqp10Connection
from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import World
from tests.broker.amqp10.wire import Octets, Talker, detached, world10
from understudy.shared.amqp10.framing import AMQP_HEADER, SASL_HEADER


def frame(body: bytes, *, channel: int = 0, kind: int = 0, offset: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), offset, kind, channel) + body


LOGIN = frame(b"\0SA\xc0\x16\2\xa3\x05PLAIN\xa0\x0c\0guest\0guest", kind=1)
"""sasl-init."""


def ulong(code: int, fields: bytes) -> bytes:
    """A performative of that many octets of fields, which begin with their count."""
    return bytes((0, 0x53, code, 0xD0)) + struct.pack(">I", len(fields)) + fields


def _fields(*encoded: bytes) -> bytes:
    return struct.pack(">I", len(encoded)) + b"".join(encoded)


def string(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


NULL, ZERO, TRUE = b"\x40", b"\x43", b"\x41"
OPEN = frame(ulong(0x10, _fields(string("octets"))))
BEGIN = frame(ulong(0x11, _fields(NULL, ZERO, b"\x70\0\0\x08\0", b"\x70\0\0\x08\0")))


def terminus(code: int, address: str) -> bytes:
    """A source (0x28) or a target (0x29)."""
    return bytes((0, 0x53, code, 0xC0, len(address) + 3, 1)) + string(address)


def attach(handle: bytes = ZERO, *, name: str = "l", receiver: bool = False, address: str = "q") -> bytes:
    """A sender to the queue `q`, or a receiver from it."""
    role = TRUE if receiver else b"\x42"
    ends = (terminus(0x28, address), NULL) if receiver else (NULL, terminus(0x29, address))
    first = () if receiver else (NULL, NULL, ZERO)
    return frame(ulong(0x12, _fields(string(name), handle, role, NULL, NULL, *ends, *first)))


def transfer(
    payload: bytes, *, delivery: int = 0, handle: int = 0, more: bool = False, tag: bytes = b"t",
    aborted: bool = False,
) -> bytes:  # fmt: skip
    fields = _fields(
        b"\x52" + bytes((handle,)), b"\x70" + struct.pack(">I", delivery),
        b"\xa0" + bytes((len(tag),)) + tag, ZERO, b"\x42", TRUE if more else b"\x42", NULL, NULL, NULL,
        TRUE if aborted else NULL,
    )  # fmt: skip
    return frame(ulong(0x14, fields) + payload)


def detach() -> bytes:
    """For ever."""
    return frame(ulong(0x16, _fields(ZERO, TRUE)))


def _world() -> World:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    return world


def opened(world: World, *more: bytes) -> Octets:
    client = Octets(world)
    client.raw(SASL_HEADER)
    client.raw(LOGIN)
    client.raw(AMQP_HEADER)
    client.raw(OPEN)
    for each in more:
        client.raw(each)
    assert client.connection.running, world.logged
    client.take()
    return client


def _refused(data: bytes, condition: str, *before: bytes) -> None:
    """Send `data` on an open connection; it is closed with `condition`, and nobody else notices."""
    world = _world()
    with neighbour_unharmed(world):
        client = opened(world, *before)
        client.raw(data)
        said = client.take()
        assert condition.encode() in said, said
        assert b"\0\x53\x18" in said  # close
        assert any(condition in line and "127.0.0.1:40000" in line for line in world.logged)
        assert all("\n" not in line for line in world.logged)
        world.pass_time(3.1)
        assert client.closed


FRAMING, DECODE = "amqp:connection:framing-error", "amqp:decode-error"


@pytest.mark.parametrize("size", [0, 7, 131073, 0xFFFFFFFF])
def test_27_a_frame_of_an_impossible_size(size: int) -> None:
    _refused(struct.pack(">IBBH", size, 2, 0, 0), FRAMING)


@pytest.mark.parametrize("offset", [0, 1, 4, 255])
def test_27_a_body_that_begins_too_early_or_behind_the_end(offset: int) -> None:
    _refused(frame(b"\0\0\0\0", offset=offset), FRAMING)


def test_28_amqp_before_sasl_has_ended() -> None:
    world = _world()
    with neighbour_unharmed(world):
        client = Octets(world)
        client.raw(SASL_HEADER)
        client.raw(OPEN)
        assert client.closed
        assert any("frame of type 0 where one of SASL was expected" in line for line in world.logged)


def test_28_sasl_after_its_end() -> None:
    _refused(LOGIN, FRAMING)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\x53\x41\xc0\x03\x01\xa3\x05",  # cut short
        b"\0\x53\x40\xc0\x03\x01\x50\x00",  # what a server says
        b"\0\x53\x41\xc0\x0a\x01\xa3\x07UNKNOWN",
        b"\0\x53\x41\xc0\x08\x01\xa3\x05PLAIN",  # without a response
        b"\0\x53\x41\xc0\x0e\x02\xa3\x05PLAIN\xa0\x04\xff\0\0\0",
    ],
)
def test_28_sasl_frames_that_are_no_login(body: bytes) -> None:
    world = _world()
    with neighbour_unharmed(world):
        client = Octets(world)
        client.raw(SASL_HEADER)
        client.raw(frame(body, kind=1))
        assert client.closed
        assert client.take().endswith(b"\0\x53\x44\xc0\x03\x01\x50\x01")  # outcome: auth


@pytest.mark.parametrize(
    "fields",
    [
        struct.pack(">I", 200),  # more elements than octets
        struct.pack(">I", 0xFFFFFFFF) + ZERO,
        _fields(string("c"), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, b"\xc1\x04\x03\xa3\x01a"),
        b"",
    ],
)
def test_29_a_count_that_is_larger_than_its_octets_or_odd(fields: bytes) -> None:
    _refused(frame(ulong(0x12, fields)), DECODE, BEGIN)


def test_30_an_array_of_nothing_four_thousand_million_times() -> None:
    array = b"\xf0" + struct.pack(">II", 5, 0xFFFFFFFF) + b"\x43"
    _refused(frame(ulong(0x11, _fields(NULL, ZERO, ZERO, ZERO, ZERO, array))), DECODE)


def test_31_described_types_without_an_end() -> None:
    _refused(frame(ulong(0x11, _fields(NULL, b"\0" * 10_000 + ZERO))), DECODE)
    lists = b"".join(b"\xd0" + struct.pack(">II", 9_000 - 9 * n, 1) for n in range(900))
    _refused(frame(ulong(0x11, _fields(NULL, lists))), DECODE)


def test_32_begin_and_attach_twice() -> None:
    _refused(BEGIN, "amqp:", BEGIN)
    _refused(attach(name="other"), "amqp:", BEGIN, attach())


def test_32_a_transfer_on_a_handle_that_is_not_attached_or_a_session_that_is_not_begun() -> None:
    _refused(transfer(b"\0Su\xa0\0", handle=7), "amqp:", BEGIN)
    _refused(transfer(b"\0Su\xa0\0"), "amqp:")
    _refused(attach(), "amqp:")


def test_32_a_handle_above_the_maximum_and_a_channel_above_it() -> None:
    _refused(frame(BEGIN[8:], channel=256), "amqp:")


def test_32_more_links_than_a_connection_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.amqp10.links.LINKS_MAX", 3)
    world = _world()
    with neighbour_unharmed(world):
        talker = Talker(world)
        links = [talker.sender("q", f"l{number}") for number in range(4)]
        told = [detached(link) for link in links]
        assert told[:3] == [None] * 3
        assert told[3] is not None and told[3][0] == "amqp:resource-limit-exceeded"
        assert talker.refused is None


def test_32_links_that_are_refused_and_never_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.shared.amqp10.framing.HANDLES_MAX", 4)
    world = _world()
    with neighbour_unharmed(world):
        talker = Talker(world)
        for number in range(20):
            link = talker.sender("none", f"l{number}")
            assert detached(link) is not None
            link.close()
        talker.session.close()
        talker.session = talker.engine.session()
        talker.session.open()
        for number in range(5):
            assert talker.refused is None
            talker.sender("none", f"m{number}")
        assert talker.refused is not None and talker.refused[0] == "amqp:resource-limit-exceeded"


def test_33_a_disposition_backwards_or_of_four_thousand_million() -> None:
    """It says nothing of what there is, so it does nothing, at once."""
    world = _world()
    with neighbour_unharmed(world):
        client = opened(world, BEGIN, attach(receiver=True))
        for first, last in ((5, 1), (0, 0xFFFFFFFF), (7, 7)):
            numbers = (b"\x70" + struct.pack(">I", n) for n in (first, last))
            client.raw(frame(ulong(0x15, _fields(TRUE, *numbers, TRUE, b"\0\x53\x24\x45"))))
        assert client.connection.running or client.connection.wants_close or client.take()


def test_34_a_transfer_without_credit() -> None:
    world = _world()
    with neighbour_unharmed(world):
        talker = Talker(world)
        link = talker.sender("q")
        for n in range(600):
            link.delivery(str(n))
            link.stream(Message(body=b"x", inferred=True).encode())
            link.advance()
        talker.turn()
        assert link.credit >= 0
    client = opened(world, BEGIN)
    client.raw(attach() + transfer(b"\0Su\xa0\0"))
    assert b"amqp:link:transfer-limit-exceeded" in client.take()


def test_34_a_delivery_without_an_end() -> None:
    world = world10(message_max=100_000)
    world.open().call(1, "queue.declare", queue="q")
    with neighbour_unharmed(world):
        client = opened(world, BEGIN, attach())
        for _ in range(20):
            client.raw(transfer(b"x" * 10_000, more=True))
        assert b"amqp:link:message-size-exceeded" in client.take()
        assert client.connection.half_received == 0


def test_34_a_delivery_that_goes_on_when_its_link_is_closed_piles_up_nowhere() -> None:
    world = world10(message_max=100_000)
    world.open().call(1, "queue.declare", queue="q")
    with neighbour_unharmed(world):
        client = opened(world, BEGIN, attach())
        for _ in range(200):
            client.raw(transfer(b"x" * 100_000, more=True))
        assert b"amqp:link:message-size-exceeded" in client.take()
        assert isinstance(client.connection, Amqp10Connection)
        (session,) = client.connection.links._sessions
        assert session.incoming_bytes == 0


def test_34_transfers_to_a_connection_that_is_being_closed_pile_up_nowhere() -> None:
    world = _world()
    with neighbour_unharmed(world):
        client = opened(world, BEGIN, attach())
        assert isinstance(client.connection, Amqp10Connection)
        (session,) = client.connection.links._sessions
        client.connection.close(530, "NOT_ALLOWED - enough")
        for _ in range(20):
            client.raw(transfer(b"x" * 100_000, more=True))
        assert not client.closed
        assert session.incoming_bytes == 0
        assert world.vhost.queues["q"].message_count == 0


def test_34_unfinished_messages_on_many_links() -> None:
    world = world10(message_max=100_000, assembling_max=300_000)
    world.open().call(1, "queue.declare", queue="q")
    with neighbour_unharmed(world):
        client = opened(world, BEGIN)
        for handle in range(10):
            client.raw(attach(b"\x52" + bytes((handle,)), name=f"l{handle}"))
            client.raw(transfer(b"x" * 90_000, delivery=handle, handle=handle, more=True))
        assert b"amqp:resource-limit-exceeded" in client.take()


def test_34_a_tag_that_changes_midway() -> None:
    """The delivery is the one that was begun: its id and its link say so."""
    world = _world()
    client = opened(world, BEGIN, attach())
    client.raw(transfer(b"\0Su\xa0\x04", more=True, tag=b"a"))
    client.raw(transfer(b"body", tag=b"b"))
    assert world.vhost.queues["q"].message_count <= 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0Su\xa0\x01x\0Sp\x45",  # a header behind the body
        b"\0Sp\x45\0Sp\x45\0Su\xa0\x01x",  # twice
        b"\0Ss\x45",  # no body
        b"\0Su\xa0\x01x\0Sw\x40",  # two kinds of body
        b"\0Su\xa0\x01xtrailing",
        b"\0S\x99\x45\0Su\xa0\x01x",  # no section
        b"\0Su\xa1\x01x",  # of a wrong type
        b"\0St\xc1\x06\x02\xa1\x01k\xc0\x00\0Su\xa0\x01x",
    ],
)
def test_35_sections_out_of_order_twice_or_behind_the_body(payload: bytes) -> None:
    world = _world()
    with neighbour_unharmed(world):
        talker = Talker(world)
        link = talker.sender("q")
        (bad,) = talker.send(link, payload)
        (good,) = talker.send(link, Message(body=b"good", inferred=True))
        assert (bad.remote_state, good.remote_state) == (Delivery.REJECTED, Delivery.ACCEPTED)
        assert bad.remote.condition.name == DECODE


@pytest.mark.parametrize("octets", [16 * 1024 + 1, 130_000])
def test_36_what_is_said_of_a_link_or_a_connection_is_limited(octets: int) -> None:
    said = b"\xb1" + struct.pack(">I", octets) + b"x" * octets
    attached = frame(
        ulong(0x12, _fields(said, ZERO, b"\x42", NULL, NULL, NULL, terminus(0x29, "q"), NULL, NULL, ZERO))
    )
    _refused(attached, "amqp:resource-limit-exceeded", BEGIN)


def test_36_selectors_are_refused_unread() -> None:
    world = _world()
    with neighbour_unharmed(world):
        talker = Talker(world)
        link = talker.session.receiver("filtered")
        link.source.address = "q"
        selector = "a LIKE '" + "%a" * 5000 + "'"
        link.source.filter.put_dict({symbol("apache.org:selector-filter:string"): selector})
        link.open()
        talker.turn()
        told = detached(link)
        assert told is not None and told[0] == "amqp:not-implemented"
        assert talker.refused is None


def test_a_link_that_is_made_anew_in_one_breath_with_its_end() -> None:
    """The answers come in the order of what was said."""
    world = _world()
    with neighbour_unharmed(world):
        client = opened(world, BEGIN, attach())
        client.raw(detach() + attach())
        said = client.take()
        assert 0 < said.index(b"\0\x53\x16") < said.index(b"\0\x53\x12")
        client.raw(transfer(b"\0Su\xa0\0"))
        assert world.vhost.queues["q"].message_count == 1


def test_flow_of_a_link_that_is_not_there_and_of_impossible_counts() -> None:
    huge = b"\x70\xff\xff\xff\xff"
    fields = _fields(ZERO, huge, ZERO, huge, b"\x52\x09", huge, huge)
    _refused(frame(ulong(0x13, fields)), "amqp:", BEGIN)


def test_any_octet_of_a_good_conversation_changed_harms_nobody() -> None:
    """Each client is told something, or goes on; the broker lives."""
    world = _world()
    talk = OPEN + BEGIN + attach() + transfer(b"\0Su\xa0\x01x")
    with neighbour_unharmed(world):
        for at in range(len(talk)):
            for flip in (0x01, 0x80, 0xFF):
                client = Octets(world)
                for part in (SASL_HEADER, LOGIN, AMQP_HEADER):
                    client.raw(part)
                client.raw(talk[:at] + bytes((talk[at] ^ flip,)) + talk[at + 1 :])
                client.take()
                client.connection.lost(world.now)
                world.clients.remove(client)  # type: ignore[arg-type]
    assert not [line for line in world.logged if "unexpected error" in line]

"""Headers and properties come back from quarantine with their original octets, whatever their field types: as
pure functions, by seeds, and through a real broker, read by pika."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import amqp
import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import write_longstr, write_shortstr
from broker.amqp091.codec.frames import HEADER, body_frames, frame
from broker.amqp091.codec.properties import check
from broker.model.history.records import Envelope
from broker.store.files import RealFiles
from ha.adapter.quarantine import Quarantine
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.quarantine.test_reader import ORDERS, run
from understudy.quarantine.message import Message
from understudy.quarantine.reader import QuarantineFolder

_WIDTHS = {"b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "f": 4, "d": 8, "T": 8, "D": 5}


def _short() -> st.SearchStrategy[bytes]:
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    return text.map(write_shortstr)


def _fixed(tag: str, width: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=width, max_size=width).map(lambda octets: tag.encode() + octets)


def _keyed(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A table, with its size first."""
    pairs = st.lists(st.tuples(_short(), values), max_size=4, unique_by=lambda pair: pair[0])
    return pairs.map(lambda found: write_longstr(b"".join(key + value for key, value in found)))


def _field() -> st.SearchStrategy[bytes]:
    """A field of any type: its tag, then its octets."""
    leaves = [_fixed(tag, width) for tag, width in _WIDTHS.items()]
    leaves += [st.just(b"V"), st.sampled_from([b"t\0", b"t\1"])]
    leaves += [st.binary(max_size=30).map(lambda o, t=tag: t + write_longstr(o)) for tag in (b"S", b"x")]
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            _keyed(inner).map(lambda table: b"F" + table),
            st.lists(inner, max_size=4).map(lambda items: b"A" + write_longstr(b"".join(items))),
        ),
        max_leaves=8,
    )


_OCTET = st.binary(min_size=1, max_size=1)
_EXPIRATION = st.integers(0, 10**9).map(lambda number: write_shortstr(str(number)))
_KINDS: list[st.SearchStrategy[bytes]] = [
    _short(), _short(), _keyed(_field()), _OCTET, _OCTET, _short(), _short(), _EXPIRATION, _short(),
    st.binary(min_size=8, max_size=8), _short(), st.just(write_shortstr("ann")), _short(), _short(),
]  # fmt: skip
HEADERS, USER = 2, 11
Properties = tuple[bytes | None, ...]


def octets(properties: Properties) -> bytes:
    flags = sum(1 << 15 - place for place, octets in enumerate(properties) if octets is not None)
    return flags.to_bytes(2, "big") + b"".join(filter(None, properties))


def message(properties: bytes, body: bytes = b"body") -> Message:
    head = b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + properties
    frames = frame(HEADER, 1, head) + b"".join(body_frames(1, body, 4096))
    return Message(ORDERS.hex(), "orders", 7, 1, "", "orders", True, 0, frames)


def with_entry(table: bytes | None, *added: tuple[str, bytes]) -> bytes:
    """The table of headers with further entries at its end."""
    more = b"".join(write_shortstr(key) + b"S" + write_longstr(value) for key, value in added)
    return write_longstr((table or bytes(4))[4:] + more)


@given(st.tuples(*(st.none() | kind for kind in _KINDS)))
def test_properties_keep_their_octets_whatever_their_types(properties: Properties) -> None:
    quarantined = message(octets(properties))
    added = ("x-quarantined", quarantined.origin.encode())
    as_ann = list(properties)
    as_ann[HEADERS] = with_entry(properties[HEADERS], added)
    assert quarantined.republished("ann", route=True) == octets(tuple(as_ann))
    check(quarantined.republished("ann", route=True))
    as_bob = list(properties)
    user = () if properties[USER] is None else (("x-quarantined-user-id", b"ann"),)
    as_bob[HEADERS], as_bob[USER] = with_entry(properties[HEADERS], added, *user), None
    assert quarantined.republished("bob", route=True) == octets(tuple(as_bob))
    assert set(quarantined.properties()) == {
        name for name, value in zip(NAMES, properties, strict=True) if value is not None
    }


NAMES = (
    "content_type", "content_encoding", "application_headers", "delivery_mode", "priority", "correlation_id",
    "reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip


def test_a_message_that_is_set_aside_twice_tells_of_the_last_time() -> None:
    first = message(octets((None,) * 14)).republished("ann", route=False)
    again = Message(ORDERS.hex(), "orders", 9, 5, "", "orders", True, 0, message(first).frames)
    second = again.republished("ann", route=False)
    entry = ("x-quarantined", f"{ORDERS.hex()} 9-5".encode())
    assert second == octets((None, None, with_entry(None, entry), *(None,) * 11))


EVERY_TYPE = b"".join(
    write_shortstr(f"h{place}") + value
    for place, value in enumerate([
        b"t\1", b"b\xff", b"B\xff", b"s\xff\xfe", b"u\xff\xfe", b"I\xff\xff\xff\xfe", b"i\xff\xff\xff\xfe",
        b"l" + b"\xff" * 8, b"L" + b"\xff" * 8, b"f\x3f\x80\0\0", b"d\x3f\xf0" + bytes(6), b"D\2\0\0\1\x2c",
        b"T" + (1_700_000_000).to_bytes(8, "big"), b"S" + write_longstr("gr\u00fcn"),
        b"x" + write_longstr(b"\xff\0"), b"V", b"F" + write_longstr(write_shortstr("k") + b"s\0\1"),
        b"A" + write_longstr(b"V" + b"b\1" + b"t\0"),
        b"x" + write_longstr(b"text"),
    ])
)  # fmt: skip


def test_pika_reads_back_from_a_broker_what_was_published_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pika does not tell `I` from `l`, nor `S` from `x` with text, so the octets are compared as well."""
    came: list[bytes] = []
    decode = pika.BasicProperties.decode

    def heard(self: Any, encoded: bytes, offset: int = 0) -> Any:
        came.append(encoded[offset:])
        return decode(self, encoded, offset)

    monkeypatch.setattr(pika.BasicProperties, "decode", heard)
    all_of_them: Properties = (
        write_shortstr("text/plain"), write_shortstr("none"), write_longstr(EVERY_TYPE), b"\2", b"\5",
        write_shortstr("c"), write_shortstr("r"), write_shortstr("60000000"), write_shortstr("m-1"),
        (1_700_000_000).to_bytes(8, "big"), write_shortstr("t"), write_shortstr("guest"),
        write_shortstr("app"), write_shortstr("cluster"),
    )  # fmt: skip
    first = message(octets(all_of_them), b"x" * 300_000)
    envelope = Envelope(7, "", "orders", persistent=True, wall_ms=1, channel=1, largest_frame=4096)
    Quarantine(RealFiles(), str(tmp_path), 3).export(ORDERS, "orders", [(1, envelope, first.frames)])
    with BrokerThread() as broker:
        with amqp.Connection(f"{broker.address}") as connection:
            connection.channel().queue_declare("orders", durable=True, auto_delete=False)
        assert run(capsys, "republish", "-d", str(tmp_path), "-b", str(broker.address))[0] == 0
        port = int(str(broker.address).rpartition(":")[2])
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as reader:
            _, properties, body = reader.channel().basic_get("orders", auto_ack=True)
    origin = f"{ORDERS.hex()} 7-1"
    expected = list(all_of_them)
    expected[HEADERS] = with_entry(all_of_them[HEADERS], ("x-quarantined", origin.encode()))
    assert came == [octets(tuple(expected))]
    before = pika.BasicProperties()
    decode(before, octets(all_of_them))
    assert properties.headers.pop("x-quarantined") == origin
    assert (properties, body) == (before, b"x" * 300_000)
    (read,) = QuarantineFolder(tmp_path).messages()
    assert read.frames == first.frames

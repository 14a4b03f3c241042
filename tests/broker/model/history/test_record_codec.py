"""The binary form of history records: encoding, decoding, and detection of damage."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.record_codec import (
    CorruptRecord,
    UnsupportedValue,
    decode_records,
    encode_record,
    split_records,
)
from broker.model.history.records import (
    Bind,
    ConsumerSeen,
    Dequeue,
    EnqueueRun,
    EntryDelete,
    EntryPut,
    Envelope,
    ExchangeDeclare,
    ExchangeDelete,
    HistoryCheckpoint,
    QueueDeclare,
    QueueDelete,
    QueueEnds,
    RawRun,
    Record,
    Unbind,
    Unrouted,
)
from broker.model.history.value_codec import canonical, decode_value, encode_value
from broker.model.octets import as_text
from broker.model.values import Reason, Scope

U64 = st.integers(0, 2**63)
NAME = st.text(max_size=40)
KEY = NAME | st.binary(max_size=255).map(as_text)
VHOST = st.just("/") | NAME
UUID = st.binary(min_size=16, max_size=16)
SCOPE = st.sampled_from([Scope.NONE, Scope.STORE, Scope.LINK, Scope.STORE | Scope.LINK])
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | NAME
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3), max_leaves=8
)
TABLE = st.dictionaries(NAME, VALUE, max_size=4)
BOOL = st.booleans()


@st.composite
def runs(draw: Any) -> EnqueueRun:
    envelope = Envelope(
        draw(U64),
        draw(NAME),
        draw(KEY),
        persistent=draw(BOOL),
        wall_ms=draw(U64),
        channel=draw(st.integers(0, 65535)),
        largest_frame=draw(st.integers(0, 2**32 - 1)),
        redelivered=draw(BOOL),
        expiration=draw(st.none() | U64),
        priority=draw(st.integers(0, 255)),
        blind=draw(BOOL),
    )
    queues = draw(st.lists(st.tuples(UUID, U64), max_size=4))
    return EnqueueRun(
        [u for u, _ in queues],
        [f for _, f in queues],
        envelope,
        draw(st.lists(st.binary(max_size=50), max_size=6)),
        draw(st.none() | NAME),
        draw(U64),
        draw(SCOPE),
    )


END = st.builds(EpochEnd, U64, st.sampled_from([(), ((1, 1),), ((2, 5), (9, 2**40))]), BOOL)
RECORD: st.SearchStrategy[Record] = st.one_of(
    st.builds(Unrouted, NAME, U64, U64, SCOPE),
    st.builds(Dequeue, UUID, U64, st.sampled_from(Reason), st.lists(st.tuples(U64, U64), max_size=5), SCOPE),
    st.builds(QueueDeclare, UUID, NAME, BOOL, BOOL, BOOL, TABLE, NAME, SCOPE, VHOST),
    st.builds(QueueDelete, UUID, NAME, SCOPE),
    st.builds(ExchangeDeclare, NAME, NAME, BOOL, BOOL, BOOL, TABLE, NAME, SCOPE, VHOST),
    st.builds(ExchangeDelete, NAME, SCOPE, VHOST),
    st.builds(Bind, NAME, st.none() | UUID, NAME, KEY, TABLE, SCOPE, VHOST),
    st.builds(Unbind, NAME, st.none() | UUID, NAME, KEY, TABLE, SCOPE, VHOST),
    st.builds(ConsumerSeen, UUID, SCOPE),
    st.builds(QueueEnds, UUID, st.dictionaries(U64, END, max_size=3), BOOL, SCOPE),
    st.builds(HistoryCheckpoint, U64, SCOPE),
    st.builds(EntryPut, NAME, NAME, NAME, TABLE, SCOPE),
    st.builds(EntryDelete, NAME, NAME, NAME, SCOPE),
)


@given(st.lists(RECORD, max_size=5))
def test_round_trip(records: list[Record]) -> None:
    assert decode_records(b"".join(map(encode_record, records))) == records


@given(runs())
def test_run_round_trip_without_cutting(run: EnqueueRun) -> None:
    data = encode_record(run)
    (back,) = decode_records(data)
    assert isinstance(back, EnqueueRun)
    assert isinstance(back.raws, RawRun)
    assert back.raws.split() == run.raws
    assert back.count == run.count
    assert (back.queues, back.firsts, back.scope) == (run.queues, run.firsts, run.scope)
    assert (back.producer, back.producer_first) == (run.producer, run.producer_first)
    for name in (
        "epoch",
        "exchange",
        "routing_key",
        "persistent",
        "wall_ms",
        "channel",
        "largest_frame",
        "redelivered",
        "expiration",
        "priority",
    ):
        assert getattr(back.envelope, name) == getattr(run.envelope, name)
    assert encode_record(back) == data


@given(st.lists(RECORD | runs(), min_size=1, max_size=3), st.data())
def test_a_cut_at_any_byte_is_detected(records: list[Record], data: st.DataObject) -> None:
    encoded = [encode_record(r) for r in records]
    cut = data.draw(st.integers(1, len(encoded[-1]) - 1))
    with pytest.raises(CorruptRecord):
        decode_records(b"".join(encoded)[:-cut])


@pytest.mark.parametrize("flag", [8, 16], ids=["expiration", "priority"])
def test_a_flag_for_a_missing_field_is_damage(flag: int) -> None:
    envelope = Envelope(1, "", "", persistent=False, wall_ms=0, channel=1, largest_frame=9)
    data = bytearray(encode_record(EnqueueRun([], [], envelope, [])))
    data[6 + 2 + 16] |= flag
    with pytest.raises(CorruptRecord):
        decode_records(bytes(data))


@given(RECORD | runs(), st.data())
def test_damage_is_a_corrupt_record_or_another_record(record: Record, data: st.DataObject) -> None:
    damaged = bytearray(encode_record(record))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        decode_records(bytes(damaged))
    except CorruptRecord:
        pass


@given(st.lists(RECORD, max_size=5))
def test_split_gives_scopes_and_whole_records(records: list[Record]) -> None:
    parts = list(split_records(b"".join(map(encode_record, records))))
    assert [scope for _, scope, _ in parts] == [r.scope for r in records]
    assert [bytes(framed) for _, _, framed in parts] == [encode_record(r) for r in records]


def test_unknown_kind_is_corrupt() -> None:
    with pytest.raises(CorruptRecord, match="kind 99"):
        decode_records(b"\x02\0\0\0\x63\0")


def test_values_that_no_table_holds_are_refused() -> None:
    with pytest.raises(UnsupportedValue, match="set"):
        canonical({"a": {1, 2}})
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(UnsupportedValue, match="nested"):
        canonical({"a": deep})


@pytest.mark.parametrize("innermost", [{}, [], 1, {"a": None}])
def test_no_value_is_encoded_that_is_too_deep_to_be_decoded(innermost: object) -> None:
    """A backup or a start that cannot decode a value would lack the whole batch."""
    value, refused = innermost, 0
    for _ in range(70):
        value = {"a": value}
        try:
            encoded = encode_value(value)
        except UnsupportedValue:
            refused += 1
        else:
            assert decode_value(encoded)[0] == value
    assert 0 < refused < 10


def test_canonical_ignores_the_order_of_keys_only() -> None:
    assert canonical({"a": 1, "b": [1, 2]}) == canonical({"b": [1, 2], "a": 1})
    assert canonical({"a": 1}) != canonical({"a": True})
    assert canonical({"a": Decimal("1.0")}) != canonical({"a": 1.0})
    assert canonical({"a": datetime(2020, 1, 1, tzinfo=UTC)}) == canonical({"a": datetime(2020, 1, 1)})


def test_records_of_the_root_virtual_host_do_not_name_it() -> None:
    """So such a record is as long as before virtual hosts existed, and old records belong to the root one."""
    for made in (
        QueueDeclare(b"u" * 16, "q", True, False, False),
        ExchangeDeclare("x", "direct", True, False, False),
        ExchangeDelete("x"),
        Bind("x", None, "y", "k"),
        Unbind("x", None, "y", "k"),
    ):
        here, there = encode_record(made), encode_record(replace(made, vhost="v"))
        assert there[6:] == here[6:] + b"\1\0v"
        assert decode_records(here + there) == [made, replace(made, vhost="v")]


def test_arguments_above_todays_limit_are_decoded() -> None:
    """An earlier version accepted them."""
    declared = QueueDeclare(bytes(16), "q", True, False, False, {"k": "x" * 200_000}, "all", Scope.STORE, "/")
    bound = Bind("amq.headers", bytes(16), "q", "", {"k": "x" * 200_000}, Scope.STORE, "/")
    assert decode_records(encode_record(declared) + encode_record(bound)) == [declared, bound]

"""Random messages from AMQP 1.0 to storage and back, and random octets. Proton checks the result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.content_check import unreadable
from broker.amqp091.codec.frames import body_of, frame
from broker.amqp091.codec.properties import PROPERTIES_AT, check, headers_of
from broker.amqp10.conversion import Incoming, as_0_9_1, incoming
from tests.broker.amqp10.messages import (
    ROUTE,
    out,
    payload,
    section,
    split,
)
from tests.understudy.shared.test_amqp10_types import simple, typed
from understudy.shared.amqp10.sections import outline
from understudy.shared.amqp10.types import (
    DecodeError,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Uuid,
)  # fmt: skip

names = st.text(st.characters(max_codepoint=127), max_size=12).map(lambda name: Symbol(f"x-{name}"))
ids = st.one_of(
    st.none(), st.text(max_size=300), st.binary(max_size=9), st.integers(0, 2**64 - 1).map(ULong),
    st.binary(min_size=16, max_size=16).map(Uuid),
)  # fmt: skip
symbols = st.one_of(st.none(), st.text(st.characters(max_codepoint=127), max_size=9).map(Symbol))
times = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1).map(Timestamp))
words = st.one_of(st.none(), st.text(max_size=300))
payloads = st.builds(
    payload,
    header=st.one_of(
        st.none(),
        st.tuples(
            st.sampled_from([None, True, False]), st.one_of(st.none(), st.integers(0, 255).map(UByte)),
            st.one_of(st.none(), st.integers(0, 2**32 - 1).map(UInt)),
        ).map(list),
    ),
    annotations=st.one_of(st.none(), st.dictionaries(names, simple, max_size=4)),
    properties=st.one_of(
        st.none(),
        st.tuples(
            ids, st.one_of(st.none(), st.binary(max_size=300)), words, words, words, ids, symbols, symbols,
            times, times, words,
        ).map(list),
    ),
    application=st.one_of(st.none(), st.dictionaries(st.text(max_size=300), simple, max_size=4)),
    body=st.one_of(
        st.lists(st.binary(max_size=400), min_size=1, max_size=3).map(
            lambda parts: b"".join(section(0x75, part) for part in parts)
        ),
        simple.map(lambda value: section(0x77, value)),
        st.lists(simple, max_size=3).map(lambda items: section(0x76, items)),
    ),
)  # fmt: skip


@given(payloads)
def test_there_and_back(came: bytes) -> None:
    got = incoming(came)
    before, after = split(came), split(out(got.raw))
    assert after.head.properties == before.head.properties
    assert typed(after.head.application) == typed(before.head.application)
    kept = {key: value for key, value in before.head.annotations.items() if key not in ROUTE}
    assert typed(after.head.annotations) == typed(kept | {Symbol(key): value for key, value in ROUTE.items()})
    bare = before.stored[len(section(0x72, before.head.annotations)) :] if before.head.annotations else b""
    assert after.stored.endswith(bare)
    assert (after.kind, after.body, after.footer) == (before.kind, before.body, before.footer)
    assert unreadable([got.raw, as_0_9_1(got.raw)]) == ""
    assert body_of(as_0_9_1(got.raw)) == before.body
    end = int.from_bytes(got.raw[3:7], "big") + 7
    assert check(got.raw[PROPERTIES_AT:end]) == got.kind
    assert headers_of(as_0_9_1(got.raw)) == headers_of(got.raw) or "nan" in str(headers_of(got.raw))


@given(payloads)
def test_the_0_9_1_form_also_converts_to_amqp_1_0(came: bytes) -> None:
    """As if 0-9-1 published it again, on channel 7."""
    converted = as_0_9_1(incoming(came).raw)
    end = int.from_bytes(converted[3:7], "big") + 8
    body = converted[end + 7 : -1]
    raw = b"\2\0\7" + converted[3:end] + (frame(3, 7, body) if body else b"")
    before, after = split(came), split(out(raw))
    assert (after.body, after.footer) == (before.body, before.footer)
    assert after.kind == (0x75 if outline(came).data else before.kind)  # octets and text go as data
    if isinstance(before.head.properties.message_id, Uuid):
        assert after.head.properties.message_id == before.head.properties.message_id


@given(st.binary(max_size=200))
def test_any_octets_are_a_message_or_refused(came: bytes) -> None:
    try:
        got = incoming(came)
    except DecodeError:
        return
    assert isinstance(got, Incoming)
    assert unreadable([got.raw, as_0_9_1(got.raw)]) == ""
    split(out(got.raw))


@given(payloads, st.data())
def test_a_message_that_is_changed_is_another_or_refused(came: bytes, data: st.DataObject) -> None:
    changed = bytearray(came)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(came) - 1))] = data.draw(st.integers(0, 255))
    try:
        got = incoming(bytes(changed))
    except DecodeError:
        return
    assert unreadable([got.raw]) == ""
    assert unreadable([as_0_9_1(got.raw)]) == ""
    split(out(got.raw))


# -- proton's messages

texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)
"""Proton cuts some of them at a NUL."""
proton_values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), texts, st.binary(max_size=50),
    st.floats(allow_nan=False),
)  # fmt: skip


@given(
    st.dictionaries(texts, proton_values, max_size=4),
    st.one_of(
        proton_values.filter(lambda value: value is not None),
        st.lists(proton_values, max_size=4),
        st.dictionaries(texts, proton_values, max_size=3),
    ),
    st.booleans(), st.booleans(), st.integers(0, 255), texts,
)  # fmt: skip
def test_proton_gets_what_proton_sent(
    application: dict[str, Any], body: Any, durable: bool, inferred: bool, priority: int, text: str
) -> None:
    proton = pytest.importorskip("proton")
    sent = proton.Message(
        body=body, inferred=inferred, durable=durable, priority=priority, address=f"/queues/{text}", id=text,
        subject=text, properties=application, annotations={proton.symbol("x-opt-a"): text},
    )  # fmt: skip
    got = incoming(bytes(sent.encode()))
    assert (got.to, got.subject, got.kind.persistent) == (f"/queues/{text}", text, durable)
    assert got.kind.priority in (priority, 0)
    back = proton.Message()
    back.decode(out(got.raw, persistent=durable, priority=got.kind.priority))
    assert (back.address, back.id, back.subject, back.durable) == (sent.address, text, text, durable)
    assert back.properties == (application or None) or not application
    assert _plain(back.body) == _plain(body)
    assert back.annotations == {"x-opt-a": text, **ROUTE}
    assert (back.first_acquirer, back.delivery_count) == (True, 0)


def _plain(body: Any) -> Any:
    return bytes(body) if isinstance(body, memoryview) else body

"""Dead-lettering: the history in the headers, cycles, and forged histories (bad input 25)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.frame import Header, Method, decode_frame
from pika.spec import BasicProperties

from broker.amqp091.codec.dead_letter import MOST_DEATHS, cycles, dead_lettered
from broker.amqp091.codec.fields import Timestamp, read_table, write_table
from broker.amqp091.codec.frames import body_of
from broker.amqp091.codec.properties import HEADERS, PROPERTIES_AT, check, headers_of, table_span
from broker.model.queue.removals import Death
from tests.broker.amqp091.wire import content

BODY = b"x" * 5000
DIED = Death("q", "expired", "shop", "order.new", 1_700_000_000_999)
ONCE = {
    "count": 1, "reason": "expired", "queue": "q", "time": 1_700_000_000, "exchange": "shop",
    "routing-keys": ["order.new"],
}  # fmt: skip


def message(**properties: Any) -> bytes:
    """Content frames as pika writes their properties, on channel 7."""
    encoded = b"".join(BasicProperties(**properties).encode())
    return content(7, BODY, properties=encoded, frame_max=4096)


def with_table(table: bytes) -> bytes:
    return content(7, BODY, properties=(HEADERS).to_bytes(2, "big") + table)


def properties(raw: bytes) -> BasicProperties:
    """The properties as pika decodes them; fails if a client could not decode them."""
    end = int.from_bytes(raw[3:7], "big") + 8
    check(raw[PROPERTIES_AT : end - 1])
    assert body_of(raw) == BODY
    used, frame = decode_frame(raw)
    assert isinstance(frame, Header) and not isinstance(frame, Method)
    assert (used, frame.channel_number, frame.body_size) == (end, 7, len(BODY))
    return frame.properties  # type: ignore[no-any-return]


def deaths(raw: bytes) -> list[dict[str, Any]]:
    return headers_of(raw)["x-death"]  # type: ignore[no-any-return]


def test_first_death() -> None:
    got = headers_of(dead_lettered(message(), DIED, drop_cc=False))
    assert got == {
        "x-death": [ONCE],
        "x-first-death-reason": "expired", "x-first-death-queue": "q", "x-first-death-exchange": "shop",
        "x-last-death-reason": "expired", "x-last-death-queue": "q", "x-last-death-exchange": "shop",
    }  # fmt: skip
    assert type(got["x-death"][0]["time"]) is Timestamp


def test_the_types_are_those_of_rabbitmq() -> None:
    raw = dead_lettered(message(expiration="20"), DIED, drop_cc=False)
    assert b"\x05countl\0\0\0\0\0\0\0\x01" in raw
    assert b"\x13original-expirationS\0\0\0\x0220" in raw
    assert b"\x07x-deathA" in raw and b"\x0crouting-keysA\0\0\0\x0eS\0\0\0\x09order.new" in raw


def test_every_other_property_and_header_stays_byte_by_byte() -> None:
    whole: dict[str, Any] = {
        "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 9,
        "correlation_id": "c", "reply_to": "r", "message_id": "m", "timestamp": 5, "type": "t",
        "user_id": "u", "app_id": "a", "cluster_id": "i",
    }  # fmt: skip
    table = b"\x01bb\xff\x01uu\x00\x05\x01xx\0\0\0\x02\xff\xfe\x01dD\x02\0\0\x01\x00\x01vV"
    entries = len(table).to_bytes(4, "big") + table
    plain = BasicProperties(headers={}, **whole, expiration="60000").encode()
    raw = content(7, BODY, properties=b"".join(plain).replace(b"\0\0\0\0", entries, 1))
    assert headers_of(raw) == read_table(entries, 0)[0]
    dead = dead_lettered(raw, DIED, drop_cc=True)
    start, _ = table_span(dead)
    assert dead[start + 4 :].startswith(table)
    found = properties(dead)
    assert {name: getattr(found, name) for name in whole} == whole
    assert found.expiration is None
    assert deaths(dead) == [{"original-expiration": "60000", **ONCE}]


@pytest.mark.parametrize("names", [(), ("correlation_id",), ("reply_to", "priority"), ("message_id",)])
def test_the_expiration_is_removed_wherever_it_is(names: tuple[str, ...]) -> None:
    given = {name: 3 if name == "priority" else name for name in names}
    found = properties(dead_lettered(message(expiration="20", **given), DIED, drop_cc=False))
    assert found.expiration is None
    assert {name: getattr(found, name) for name in names} == given


def test_again_in_the_same_queue_counts() -> None:
    raw = dead_lettered(message(expiration="20"), DIED, drop_cc=False)
    raw = dead_lettered(raw, Death("dlq", "rejected", "dlx", "k", 1_700_000_001_000), drop_cc=False)
    assert [d["queue"] for d in deaths(raw)] == ["dlq", "q"]
    later = DIED._replace(exchange="dlx", wall_ms=1_800_000_000_000)
    raw = dead_lettered(raw, later, drop_cc=False)
    assert deaths(raw)[0] == {"original-expiration": "20", **ONCE, "count": 2}  # of the first time
    assert [d["queue"] for d in deaths(raw)] == ["q", "dlq"]
    raw = dead_lettered(raw, later._replace(reason="maxlen"), drop_cc=False)
    assert [(d["queue"], d["reason"], d["count"]) for d in deaths(raw)] == [
        ("q", "maxlen", 1), ("q", "expired", 2), ("dlq", "rejected", 1)
    ]  # fmt: skip
    headers = headers_of(raw)
    assert [headers[f"x-first-death-{k}"] for k in ("reason", "queue", "exchange")] == [
        "expired",
        "q",
        "shop",
    ]
    assert [headers[f"x-last-death-{k}"] for k in ("reason", "queue", "exchange")] == ["maxlen", "q", "dlx"]


def test_cc_and_bcc() -> None:
    raw = message(headers={"CC": ["a"], "BCC": ["b"], "x": "y"})
    assert headers_of(dead_lettered(raw, DIED, drop_cc=False)).keys() >= {"CC", "x"}
    assert headers_of(dead_lettered(raw, DIED, drop_cc=False))["BCC"] == ["b"]
    assert not {"CC", "BCC"} & headers_of(dead_lettered(raw, DIED, drop_cc=True)).keys()
    assert deaths(dead_lettered(raw, DIED, drop_cc=True))[0]["routing-keys"] == ["order.new", "a"]
    many = dead_lettered(message(headers={"CC": ["k" * 255] * 250}), DIED, drop_cc=False)
    again = dead_lettered(many, DIED, drop_cc=False)
    assert [(d["count"], len(d["routing-keys"])) for d in deaths(again)] == [(2, 16)]


# -- cycles


def died(*path: str) -> bytes:
    """The deaths in order: `queue`, or `queue!` for a rejection."""
    raw = message(headers={"a": "b"})
    for name in path:
        queue, how = name.rstrip("!"), "rejected" if name.endswith("!") else "expired"
        raw = dead_lettered(raw, DIED._replace(queue=queue, reason=how), drop_cc=False)
    return raw


@pytest.mark.parametrize(
    ("path", "target", "cycle"),
    [
        (["a"], "a", True),
        (["a"], "b", False),
        (["a", "b"], "a", True),
        (["a", "b!"], "a", False),
        (["a!", "b"], "a", False),
        (["a", "b!", "c"], "a", False),
        (["a!", "b", "c"], "b", True),
        (["a", "b!", "a"], "a", True),
        (["a!"], "a", False),
        (["aa"], "a", False),
    ],
)
def test_cycles(path: list[str], target: str, cycle: bool) -> None:
    reason = "rejected" if path[-1].endswith("!") else "expired"
    assert list(cycles(died(*path), [target], reason)) == [target] * cycle


def test_a_name_elsewhere_in_the_header_is_no_cycle() -> None:
    raw = dead_lettered(message(headers={"target": "a"}), DIED, drop_cc=False)
    assert not cycles(raw, ["a"], "expired")


# -- forged histories

ENTRY = {**ONCE, "time": Timestamp(5)}
FORGED: list[Any] = [
    None, "x", 5, [], {}, {"queue": "q"}, [1, "x", None, [ENTRY]],
    [{**ENTRY, "count": 0}], [{**ENTRY, "count": "1"}], [{**ENTRY, "count": True}], [{**ENTRY, "count": -5}],
    [{**ENTRY, "queue": 5}], [{**ENTRY, "queue": "q" * 256}], [{**ENTRY, "reason": None}],
    [{**ENTRY, "time": 5}], [{**ENTRY, "exchange": []}], [{**ENTRY, "routing-keys": "k"}],
    [{**ENTRY, "routing-keys": ["k"] * 1000}], [{**ENTRY, "routing-keys": [5]}],
    [{key: value for key, value in ENTRY.items() if key != "queue"}],
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=lambda f: str(f)[:60])
def test_a_malformed_history_is_dropped(forged: Any) -> None:
    raw = with_table(write_table({"x-death": forged}))
    assert not cycles(raw, ["elsewhere"], "expired")
    dead = dead_lettered(raw, DIED, drop_cc=False)
    properties(dead)
    assert deaths(dead) == [ONCE]


def test_forged_marks_are_no_second_entry_of_their_name() -> None:
    marks = {"x-first-death-reason": 5, "x-last-death-queue": [1], "x-last-death-exchange": "no"}
    headers = headers_of(dead_lettered(with_table(write_table(marks)), DIED, drop_cc=False))
    assert (headers["x-first-death-reason"], headers["x-last-death-queue"]) == ("expired", "q")


def test_a_count_at_its_end_stays_there() -> None:
    most = 2**63 - 1
    raw = with_table(write_table({"x-death": [{**ENTRY, "count": most}]}))
    assert deaths(dead_lettered(raw, DIED, drop_cc=False))[0]["count"] == most


def test_a_history_does_not_grow_without_end() -> None:
    for size in (1, 200):
        raw, sizes = message(), []
        for number in range(MOST_DEATHS + 40):
            where = f"{number:03}".ljust(size, "n")
            raw = dead_lettered(raw, DIED._replace(queue=where, routing_key="k" * size), drop_cc=False)
            sizes.append(int.from_bytes(raw[3:7], "big"))
            if cycles(raw, ["new"], "expired"):
                break
        else:
            pytest.fail("it could go round for ever")
        assert len(deaths(raw)) >= 28, "ladders of delays are no cycle"
        assert max(sizes) < 40_000


def test_a_rejection_keeps_even_the_longest_history_alive() -> None:
    forged = [{**ENTRY, "queue": f"{n}"} for n in range(MOST_DEATHS * 2)]
    raw = dead_lettered(with_table(write_table({"x-death": forged})), DIED, drop_cc=False)
    assert len(deaths(raw)) == MOST_DEATHS
    assert cycles(raw, ["new"], "expired")
    raw = dead_lettered(raw, DIED._replace(reason="rejected"), drop_cc=False)
    assert not cycles(raw, ["new"], "rejected")
    raw = dead_lettered(raw, DIED._replace(queue="next"), drop_cc=False)
    assert not cycles(raw, ["q"], "expired")


def test_a_header_has_no_room_for_a_history() -> None:
    raw = with_table(write_table({"a": "x" * 130_900, "x-death": "forged"}))
    dead = dead_lettered(raw, DIED, drop_cc=False)
    assert headers_of(dead) == {"a": "x" * 130_900}
    assert len(dead) <= len(raw)
    assert cycles(dead, ["any"], "expired") and not cycles(dead, ["any"], "rejected")


names = st.sampled_from(["a", "b", "c", "ü", ""])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=8), st.binary()
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["queue", "reason", "count", "time", "k"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["x-death", "x-first-death-queue", "CC", "BCC", "h"]), trees),
    st.lists(st.tuples(names, st.sampled_from(["rejected", "expired", "maxlen"])), min_size=1, max_size=6),
)
def test_any_header_and_any_path_leave_a_good_message(
    table: dict[str, Any], path: list[tuple[str, str]]
) -> None:
    raw = with_table(write_table(table))
    wanted: list[tuple[str, str]] = []
    for queue, reason in path:
        raw = dead_lettered(raw, DIED._replace(queue=queue, reason=reason), drop_cc=True)
        wanted = [(queue, reason), *(key for key in wanted if key != (queue, reason))]
    check(raw[PROPERTIES_AT : int.from_bytes(raw[3:7], "big") + 7])
    assert body_of(raw) == BODY
    assert [(d["queue"], d["reason"]) for d in deaths(raw)][: len(wanted)] == wanted
    assert sum(d["count"] for d in deaths(raw)) >= len(path)
    first = next(
        (at for at, (queue, reason) in enumerate(wanted) if reason == "rejected" or queue == "a"), None
    )
    cycle = path[-1][1] != "rejected" and first is not None and "rejected" not in wanted[first]
    if not table:
        assert bool(cycles(raw, ["a"], path[-1][1])) is cycle

"""Routing: the four types, exchange-to-exchange bindings, the memo."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import AccessRefused, NotFound, PreconditionFailed
from broker.model.routing import headers_matcher
from broker.model.routing.exchange import Binding, built_in_exchanges
from broker.model.routing.headers_matcher import LOOK, X_MATCH, HeadersMatcher
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, inner_route, route_by_headers, serving


@pytest.fixture
def vhost() -> VirtualHost:
    made = serving()
    for name in ("q1", "q2", "q3"):
        made.declare_queue(name, owner=OWNER)
    return made


def routed(vhost: VirtualHost, exchange: str, key: str) -> list[str]:
    return sorted(q.name for q in vhost.route(exchange, key).queues)


def test_default_exchange_goes_by_queue_name(vhost: VirtualHost) -> None:
    assert routed(vhost, "", "q2") == ["q2"]
    assert routed(vhost, "", "none") == []


def test_direct(vhost: VirtualHost) -> None:
    vhost.bind_queue("q1", "amq.direct", "a", owner=OWNER)
    vhost.bind_queue("q2", "amq.direct", "a", owner=OWNER)
    vhost.bind_queue("q2", "amq.direct", "b", owner=OWNER)
    assert routed(vhost, "amq.direct", "a") == ["q1", "q2"]
    assert routed(vhost, "amq.direct", "b") == ["q2"]
    vhost.unbind_queue("q1", "amq.direct", "a", owner=OWNER)
    assert routed(vhost, "amq.direct", "a") == ["q2"]


def test_fanout_and_one_queue_bound_twice(vhost: VirtualHost) -> None:
    vhost.bind_queue("q1", "amq.fanout", "a", owner=OWNER)
    vhost.bind_queue("q1", "amq.fanout", "b", owner=OWNER)
    vhost.bind_queue("q3", "amq.fanout", "", owner=OWNER)
    assert routed(vhost, "amq.fanout", "whatever") == ["q1", "q3"]


def test_topic(vhost: VirtualHost) -> None:
    vhost.bind_queue("q1", "amq.topic", "stock.*.nyse", owner=OWNER)
    vhost.bind_queue("q2", "amq.topic", "stock.#", owner=OWNER)
    vhost.bind_queue("q2", "amq.topic", "#", owner=OWNER)
    assert routed(vhost, "amq.topic", "stock.ibm.nyse") == ["q1", "q2"]
    assert routed(vhost, "amq.topic", "bond") == ["q2"]
    vhost.unbind_queue("q2", "amq.topic", "#", owner=OWNER)
    assert routed(vhost, "amq.topic", "bond") == []


def matched(matcher: HeadersMatcher[Binding], headers: dict[str, object]) -> list[Binding]:
    """Everything matched in all pieces. Checks that no piece examines more than two groups."""
    with patch.object(headers_matcher, "PIECE", 2):
        pieces = list(matcher.match("", headers))
    assert all(steps <= 3 * LOOK for steps, _ in pieces)
    return [binding for _, found in pieces for binding in found]


def headers_match(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    """Whether a message with `headers` matches a binding's `arguments`, decided header by header."""
    how = arguments.get("x-match", "all")
    hits = [
        key in headers and (value is None or same(value, headers[key]))
        for key, value in arguments.items()
        if key != "x-match" and (not key.startswith("x-") or str(how).endswith("-with-x"))
    ]
    return any(hits) if str(how).startswith("any") else all(hits)


def same(wanted: object, got: object) -> bool:
    """Equal in value and type: True is not 1 in a field table, but text may be str or bytes."""
    if isinstance(wanted, str) and isinstance(got, bytes):
        return wanted.encode() == got
    if isinstance(wanted, bytes) and isinstance(got, str):
        return wanted == got.encode()
    return isinstance(wanted, bool) == isinstance(got, bool) and wanted == got


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "text"}, {"a": b"text"}, True),
        ({"x-kind": "k", "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-kind": "k", "a": 1}, {"a": 1}, False),
        ({"x-match": "all-with-x", "x-kind": "k"}, {"x-kind": "k"}, True),
        ({"x-match": "any", "x-kind": "k"}, {"x-kind": "k"}, False),
        ({"x-match": "any-with-x", "x-kind": "k", "a": 1}, {"x-kind": "k"}, True),
    ],
)
def test_headers_match(arguments: dict[str, object], headers: dict[str, object], matches: bool) -> None:
    source = built_in_exchanges("/")["amq.headers"]
    matcher = HeadersMatcher()
    matcher.add(Binding(source, source, "", arguments))
    assert bool(matched(matcher, headers)) is headers_match(arguments, headers) is matches


_VALUES = st.sampled_from([None, True, False, 0, 1, 1.0, "a", b"a", "b", [1], [True], {"k": "a"}, b""])
_TABLES = st.dictionaries(st.sampled_from(["a", "b", "x-a", ""]), _VALUES, max_size=3)


@given(
    st.lists(st.tuples(st.sampled_from((None, *X_MATCH)), _TABLES), max_size=12), st.lists(_TABLES), st.data()
)
def test_the_headers_index_agrees_with_a_full_scan(
    asked: list[tuple[str | None, dict[str, object]]], messages: list[dict[str, object]], data: st.DataObject
) -> None:
    source = built_in_exchanges("/")["amq.headers"]
    matcher = HeadersMatcher()
    bindings = [
        Binding(source, source, str(number), table if how is None else {"x-match": how, **table})
        for number, (how, table) in enumerate(asked)
    ]
    octets = sum(map(matcher.add, bindings))
    kept = [binding for binding in bindings if data.draw(st.booleans())]
    octets -= sum(matcher.remove(binding) for binding in bindings if binding not in kept)
    for headers in messages:
        found = [binding for binding in kept if headers_match(binding.arguments, headers)]
        assert sorted(matched(matcher, headers), key=lambda b: int(b.routing_key)) == found
    assert octets - sum(matcher.remove(binding) for binding in kept) == 0
    assert not matched(matcher, {"a": 1})


def test_headers_exchange_asks_for_headers(vhost: VirtualHost) -> None:
    vhost.bind_queue("q1", "amq.headers", "", {"x-match": "any", "a": 1}, owner=OWNER)
    vhost.bind_exchange("amq.headers", "amq.fanout", "")
    assert vhost.route("amq.fanout", "k").needs_headers
    found = route_by_headers(vhost, "amq.fanout", "k", {"a": 1})
    assert [q.name for q in found.queues] == ["q1"]
    assert not route_by_headers(vhost, "amq.fanout", "k", {"a": 2}).queues
    with pytest.raises(PreconditionFailed, match="x-match"):
        vhost.bind_queue("q1", "amq.headers", "", {"x-match": "most"}, owner=OWNER)


def test_stale_routes_are_renewed_on_publish(vhost: VirtualHost) -> None:
    vhost.bind_queue("q1", "amq.match", "", {"a": 1}, owner=OWNER)
    vhost.bind_queue("q2", "amq.match", "", {"a": 1}, owner=OWNER)
    by_headers = route_by_headers(vhost, "amq.match", "", {"a": 1})
    plain = vhost.route("", "q1")
    vhost.delete_queue("q1", owner=OWNER)
    assert plain.generation != vhost.generation
    for route in (by_headers, plain):
        vhost.publish(route, [b"m"], persistent=False, channel=1, largest_frame=9)
    assert len(vhost.queues["q2"].ready) == 1


def test_exchanges_bound_in_a_cycle_reach_each_queue_once(vhost: VirtualHost) -> None:
    for name in ("a", "b", "c"):
        vhost.declare_exchange(name, "fanout")
    vhost.bind_exchange("b", "a", "")
    vhost.bind_exchange("c", "b", "")
    vhost.bind_exchange("a", "c", "")
    vhost.bind_exchange("a", "a", "")
    vhost.bind_queue("q1", "a", "", owner=OWNER)
    vhost.bind_queue("q1", "c", "", owner=OWNER)
    for start in ("a", "b", "c"):
        assert [q.name for q in vhost.route(start, "").queues] == ["q1"]
    vhost.unbind_exchange("b", "a", "")
    vhost.unbind_queue("q1", "a", "", owner=OWNER)
    assert routed(vhost, "a", "") == []


def test_publish_to_no_or_an_internal_exchange(vhost: VirtualHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'nope' in vhost '/'"):
        vhost.route("nope", "k")
    vhost.declare_exchange("inside", "fanout", internal=True)
    with pytest.raises(AccessRefused, match="internal"):
        vhost.route("inside", "k")


def test_memo_is_dropped_on_every_change(vhost: VirtualHost) -> None:
    route = vhost.route("amq.direct", "late")
    assert vhost.route("amq.direct", "late") is route
    vhost.bind_queue("q1", "amq.direct", "late", owner=OWNER)
    assert routed(vhost, "amq.direct", "late") == ["q1"]
    vhost.delete_queue("q1", owner=OWNER)
    assert routed(vhost, "amq.direct", "late") == []
    vhost.declare_queue("q1", owner=OWNER)
    assert routed(vhost, "", "q1") == ["q1"]


def test_memo_is_bounded(vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.model.vhost.topology.ROUTE_MEMO", 4)
    for i in range(20):
        vhost.route("amq.direct", f"k{i}")
        assert len(vhost._routes) <= 4


# -- alternate exchanges


def alternate(vhost: VirtualHost, name: str, type_: str, to: str, **more: bool) -> None:
    vhost.declare_exchange(name, type_, arguments={"alternate-exchange": to}, **more)


def test_unroutable_messages_follow_the_chain_of_alternates(vhost: VirtualHost) -> None:
    alternate(vhost, "first", "direct", "second")
    alternate(vhost, "second", "topic", "amq.fanout")
    vhost.bind_queue("q1", "first", "a", owner=OWNER)
    vhost.bind_queue("q2", "second", "b.*", owner=OWNER)
    vhost.bind_queue("q3", "amq.fanout", "", owner=OWNER)
    assert [routed(vhost, "first", key) for key in ("a", "b.c", "c")] == [["q1"], ["q2"], ["q3"]]
    assert routed(vhost, "second", "a") == ["q3"]


def test_an_alternate_may_be_added_removed_and_cyclic(vhost: VirtualHost) -> None:
    alternate(vhost, "first", "direct", "later")
    assert routed(vhost, "first", "x") == []
    alternate(vhost, "later", "direct", "first")
    assert routed(vhost, "first", "x") == []
    vhost.bind_queue("q1", "later", "x", owner=OWNER)
    assert routed(vhost, "first", "x") == ["q1"]
    vhost.delete_exchange("later")
    assert routed(vhost, "first", "x") == []


def test_an_alternate_may_be_internal_or_a_headers_exchange(vhost: VirtualHost) -> None:
    alternate(vhost, "by-headers", "headers", "rest")
    vhost.declare_exchange("rest", "fanout", internal=True)
    vhost.bind_queue("q1", "by-headers", "", owner=OWNER, arguments={"kind": "a"})
    vhost.bind_queue("q2", "rest", "", owner=OWNER)
    alternate(vhost, "first", "direct", "by-headers")
    assert vhost.route("first", "x").needs_headers
    for headers, reached in (({"kind": "a"}, ["q1"]), ({"kind": "b"}, ["q2"]), ({}, ["q2"])):
        route = route_by_headers(vhost, "first", "x", headers)
        assert [queue.name for queue in route.queues] == reached


def test_an_alternate_has_a_name(vhost: VirtualHost) -> None:
    with pytest.raises(
        PreconditionFailed, match="invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x'"
    ):
        vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": 1})
    assert "x" not in vhost.exchanges
    alternate(vhost, "x", "direct", "amq.fanout")
    with pytest.raises(PreconditionFailed, match="alternate-exchange"):
        alternate(vhost, "x", "direct", "amq.direct")


def test_an_exchange_is_replicated_at_a_level_that_there_is(vhost: VirtualHost) -> None:
    for level in ("none", "configuration", "all"):
        vhost.declare_exchange(level, "direct", arguments={"x-replicate": level})
    for wrong in ("All", 5, True):
        with pytest.raises(PreconditionFailed) as told:
            vhost.declare_exchange("x", "direct", arguments={"x-replicate": wrong})
        where = "exchange 'x' in vhost '/'"
        fault = f"{wrong!r} is not one of none, configuration, all"
        assert told.value.text == f"invalid arg 'x-replicate' for {where}: {fault}"
    assert "x" not in vhost.exchanges


# -- the broker's own publishing, and copies


def test_the_broker_itself_may_publish_to_an_internal_exchange(vhost: VirtualHost) -> None:
    vhost.declare_exchange("inside", "fanout", internal=True)
    vhost.bind_queue("q1", "inside", "", owner=OWNER)
    for _ in range(2):
        assert [queue.name for queue in inner_route(vhost, "inside", "k").queues] == ["q1"]
        with pytest.raises(AccessRefused, match="internal"):
            vhost.route("inside", "k")
        assert [q.name for q in route_by_headers(vhost, "inside", "k", {}, inner=True).queues] == ["q1"]
        with pytest.raises(AccessRefused, match="internal"):
            route_by_headers(vhost, "inside", "k", {})
    assert inner_route(vhost, "", "q2") is vhost.route("", "q2")
    with pytest.raises(NotFound, match="no exchange 'nope' in vhost '/'"):
        inner_route(vhost, "nope", "k")


def copied(vhost: VirtualHost, exchange: str, key: str, **headers: object) -> list[str]:
    return sorted(queue.name for queue in route_by_headers(vhost, exchange, key, headers).queues)


def test_further_routing_keys_reach_each_queue_once(vhost: VirtualHost) -> None:
    assert copied(vhost, "", "q1", CC=["q2", "nowhere"], BCC=["q3", "q1"]) == ["q1", "q2", "q3"]
    vhost.bind_queue("q1", "amq.topic", "a.*", owner=OWNER)
    vhost.bind_queue("q2", "amq.topic", "b", owner=OWNER)
    assert copied(vhost, "amq.topic", "x", CC=["a.b", "a.c"], BCC=[]) == ["q1"]
    assert copied(vhost, "amq.topic", "a.a", BCC=["b", 5, None]) == ["q1", "q2"]
    assert copied(vhost, "amq.topic", "a.a", CC="b", BCC={"b": 1}) == ["q1"]


def test_an_alternate_gets_messages_that_none_of_their_keys_routes(vhost: VirtualHost) -> None:
    alternate(vhost, "first", "direct", "amq.fanout")
    vhost.bind_queue("q1", "first", "a", owner=OWNER)
    vhost.bind_queue("q2", "amq.fanout", "", owner=OWNER)
    assert copied(vhost, "first", "x", CC=["a"]) == ["q1"]
    assert copied(vhost, "first", "a", CC=["x"]) == ["q1"]
    assert copied(vhost, "first", "x", CC=["y"]) == ["q2"]

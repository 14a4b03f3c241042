"""Exchanges that send each message to one binding: by a hash, or at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from broker.errors import PreconditionFailed
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, route_by_headers, serving

KEYS = [f"order.{number}" for number in range(4000)]


def vhost_of(type_: str, weights: dict[str, str], **arguments: object) -> VirtualHost:
    """With the exchange `x`, and queues bound by these keys."""
    vhost = serving()
    vhost.declare_exchange("x", type_, arguments={key.replace("_", "-"): v for key, v in arguments.items()})
    for name, weight in weights.items():
        vhost.declare_queue(name, owner=OWNER)
        vhost.bind_queue(name, "x", weight, owner=OWNER)
    return vhost


def placed(vhost: VirtualHost, keys: Iterable[str] = KEYS) -> dict[str, str]:
    found = {key: [queue.name for queue in vhost.route("x", key).queues] for key in keys}
    assert all(len(queues) == 1 for queues in found.values())
    return {key: queue for key, (queue,) in found.items()}


def test_a_hash_spreads_by_weight() -> None:
    shares = Counter(placed(vhost_of("x-consistent-hash", {"a": "1", "b": "1", "c": "2"})).values())
    assert shares["a"] == pytest.approx(1000, abs=120) and shares["b"] == pytest.approx(1000, abs=120)
    assert shares["c"] == pytest.approx(2000, abs=150)


def test_only_keys_of_the_binding_that_comes_or_goes_move() -> None:
    vhost = vhost_of("x-consistent-hash", {"a": "1", "b": "1", "c": "1"})
    before = placed(vhost)
    vhost.declare_queue("d", owner=OWNER)
    vhost.bind_queue("d", "x", "1", owner=OWNER)
    more = placed(vhost)
    moved = {key for key in KEYS if more[key] != before[key]}
    assert {more[key] for key in moved} == {"d"} and len(moved) == pytest.approx(1000, abs=120)
    vhost.unbind_queue("b", "x", "1", owner=OWNER)
    fewer = placed(vhost)
    assert {more[key] for key in KEYS if fewer[key] != more[key]} == {"b"}


def test_names_decide_and_not_the_order_of_the_bindings() -> None:
    names = dict.fromkeys("dacb", "3")
    other = dict(sorted(names.items()))
    for type_ in ("x-consistent-hash", "x-modulus-hash"):
        assert placed(vhost_of(type_, names)) == placed(vhost_of(type_, other))


def test_weights_of_one_queue_add_up_and_go_again() -> None:
    vhost = vhost_of("x-consistent-hash", {"a": "1", "b": "3"})
    before = placed(vhost)
    vhost.bind_queue("a", "x", "2", owner=OWNER)
    assert Counter(placed(vhost).values())["a"] == pytest.approx(2000, abs=150)
    vhost.unbind_queue("a", "x", "2", owner=OWNER)
    assert placed(vhost) == before
    for name, weight in (("a", "1"), ("b", "3")):
        vhost.unbind_queue(name, "x", weight, owner=OWNER)
    assert vhost.route("x", "k").queues == ()


def test_a_header_may_be_hashed() -> None:
    vhost = vhost_of("x-consistent-hash", {"a": "1", "b": "1"}, hash_header="who")
    assert vhost.route("x", "k").needs_headers
    for key in ("k", "l"):
        found = [route_by_headers(vhost, "x", key, {"who": n}).queues[0].name for n in range(100)]
        assert found == [route_by_headers(vhost, "x", "", {"who": n}).queues[0].name for n in range(100)]
        assert 25 < found.count("a") < 75
    same = {route_by_headers(vhost, "x", str(n), {}).queues[0].name for n in range(20)}
    assert len(same) == 1, "messages without it go one way"


def test_further_keys_do_not_count() -> None:
    vhost = vhost_of("x-consistent-hash", {"a": "1", "b": "1"})
    assert len(route_by_headers(vhost, "x", "k", {"CC": KEYS[:50]}).queues) == 1


def test_random_ones_are_told_for_each_message() -> None:
    vhost = vhost_of("x-random", {"a": "", "b": ""})
    assert vhost.route("x", "k").needs_headers
    found = [route_by_headers(vhost, "x", "k", {}).queues[0].name for _ in range(1000)]
    assert 400 < found.count("a") < 600 and found[:500] != found[500:]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "must be an integer"), ("two", "must be an integer"), ("1.5", "must be an integer"),
        ("٣", "must be an integer"), ("9" * 5000, "must be an integer"), ("0", "greater than 0"),
        ("-3", "greater than 0"), ("10001", "must not exceed 10000"),
    ],
)  # fmt: skip
def test_a_key_that_is_no_weight(key: str, why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        vhost_of("x-consistent-hash", {"a": key})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"hash_header": "a", "hash_property": "message_id"}, "mutually exclusive"),
        ({"hash_property": "user_id"}, "Unsupported property: user_id"),
        ({"hash_header": 1}, "invalid type 'signedint' for arg 'hash-header'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        vhost_of("x-consistent-hash", {}, **arguments)

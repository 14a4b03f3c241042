"""A node's answers to `definitions`: the contents, in pieces of one moment. A real model, no sockets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from broker.security.identity import default_users
from ha.adapter.management import definitions_view
from ha.adapter.management.definitions_view import definitions_of
from understudy.definitions.export import Listing, ListingRefused, document_of, text_of

OWNER = object()
STATUS = {"name": "left", "status": "active", "reason": "serving", "primary": "left at 127.0.0.1:1"}


@pytest.fixture
def vhost() -> VirtualHost:
    numbers = itertools.count(1)
    made = VirtualHosts(Hooks(), History(1), lambda: next(numbers).to_bytes(16, "big")).root
    made.shared.activate(1)
    return made


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions_view, "PIECE", 4)


def fill(vhost: VirtualHost, numbers: list[int]) -> None:
    for number in numbers:
        vhost.declare_exchange(f"x{number}", "topic", durable=True)
        vhost.declare_queue(f"q{number}", owner=OWNER, durable=True, arguments={"n": number, "m": True})
    for number in numbers:
        vhost.bind_queue(f"q{number}", f"x{number}", "#", owner=OWNER)
        vhost.bind_exchange("x0", f"x{number}", "k", {"n": number})


def listed(
    vhost: VirtualHost, between: Callable[[int], None] = lambda asked: None
) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """The whole listing, and the number of its questions. `between` is called after each question but the
    last."""
    listing = Listing()
    for asked in itertools.count(1):
        if listing.take(definitions_of(vhost.shared, default_users(), STATUS, listing.question())):
            break
        between(asked)
    return listing.found, asked


def test_all_that_a_client_may_have_declared_is_in_it_once(vhost: VirtualHost) -> None:
    fill(vhost, list(range(5)))
    found, asked = listed(vhost)
    assert asked == 5, "20 objects in pieces of 4"
    assert sorted(x["name"] for x in found["exchanges"]) == [f"x{n}" for n in range(5)]
    assert sorted(q["name"] for q in found["queues"]) == [f"q{n}" for n in range(5)]
    assert len({str(b) for b in found["bindings"]}) == len(found["bindings"]) == 10
    assert found["queues"][1] == {
        "name": "q1", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"n": 1, "m": True},
    }  # fmt: skip
    assert {
        "source": "x3", "vhost": "/", "destination": "x0", "destination_type": "exchange",
        "routing_key": "k", "arguments": {"n": 3},
    } in found["bindings"]  # fmt: skip


def test_exclusive_queues_built_in_exchanges_and_passwords_are_left_out(vhost: VirtualHost) -> None:
    vhost.declare_queue("mine", owner=OWNER, exclusive=True)
    vhost.declare_queue("ours", owner=OWNER)
    for name in ("mine", "ours"):
        vhost.bind_queue(name, "amq.direct", "k", owner=OWNER)
    found, _ = listed(vhost)
    assert [q["name"] for q in found["queues"]] == ["ours"]
    assert [(b["source"], b["destination"]) for b in found["bindings"]] == [("amq.direct", "ours")]
    assert found["exchanges"] == []
    assert found["users"] == [{"name": "guest", "tags": ["administrator"], "configured": True}]
    assert b"guest" not in b"".join(text_of(document_of(found)))


def test_a_listing_begins_anew_after_a_change_and_is_whole_at_last(vhost: VirtualHost) -> None:
    fill(vhost, list(range(5)))
    late = iter(range(100, 200))

    def declare_another(_asked: int) -> None:
        vhost.declare_queue(f"q{next(late)}", owner=OWNER)

    found, asked = listed(vhost, declare_another)
    assert asked == 3 * 2 + 1, "three listings that a change ends at their second piece, then one whole"
    assert {q["name"] for q in found["queues"]} == set(vhost.queues)
    assert len(found["queues"]) == len(vhost.queues)


def test_a_change_between_two_listings_spoils_neither(vhost: VirtualHost) -> None:
    fill(vhost, [0, 1])
    first, _ = listed(vhost)
    vhost.declare_queue("later", owner=OWNER)
    second, _ = listed(vhost)
    assert [q for q in second["queues"] if q not in first["queues"]] == [
        {"name": "later", "vhost": "/", "durable": False, "auto_delete": False, "arguments": {}}
    ]


def test_two_brokers_with_the_same_definitions_have_the_same_export(vhost: VirtualHost) -> None:
    other = VirtualHosts(Hooks(), History(9), lambda: bytes(16)).root
    other.new_uuid = iter(number.to_bytes(16, "little") for number in range(7, 99)).__next__
    other.shared.activate(9)
    fill(vhost, [0, 1, 2])
    fill(other, [0, 2, 1])
    assert list(text_of(document_of(listed(vhost)[0]))) == list(text_of(document_of(listed(other)[0])))


def test_who_does_not_serve_says_who_does(vhost: VirtualHost) -> None:
    vhost.shared.deactivate()
    answer = definitions_of(vhost.shared, (), {**STATUS, "name": "right", "reason": "it follows left"}, {})
    with pytest.raises(
        ListingRefused, match=r"right does not serve: .*; its primary is left at 127\.0\.0\.1:1"
    ):
        Listing().take(answer)


def test_a_primary_that_has_no_proof_of_being_one_does_not_tell(vhost: VirtualHost) -> None:
    assert not definitions_of(vhost.shared, (), {**STATUS, "withheld": True}, {})["ok"]


@pytest.mark.parametrize("start", [-1, "0", True, 1.5, None])
def test_a_start_that_is_none_is_refused(vhost: VirtualHost, start: object) -> None:
    assert not definitions_of(vhost.shared, (), STATUS, {"start": start})["ok"]


def test_a_start_beyond_the_end_is_the_end(vhost: VirtualHost) -> None:
    answer = definitions_of(vhost.shared, (), STATUS, {"start": 10**9})
    assert (answer["queues"], answer["next"]) == ([], None)

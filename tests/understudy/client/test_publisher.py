"""The publisher of the client kit: what it keeps, what it sends again and in which order, what it writes
down.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import ConnectionForced, NotAllowed

from tests.understudy.client.fake_broker import FakeChannel, FakeFailover, broker_dies
from understudy.client import NotConfirmed, Publisher


def publisher(broker: FakeFailover, **arguments: Any) -> Publisher:
    made = Publisher("127.0.0.1:1", "shop", **arguments)
    made.failover = broker  # type: ignore[assignment]
    made._hear_every = math.inf  # the script goes on where a test says so
    return made


def bodies(channel: FakeChannel) -> list[bytes | str]:
    return [published.body for published in channel.published]


def records(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.glob("*.ledger.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_kind(directory: Path, *kinds: str) -> list[tuple[Any, ...]]:
    """(kind, session number, first, last, pfirst) of the records of these kinds."""
    return [
        (r["kind"], int(r["prod"].split("/")[0].rsplit(".", 1)[1]), r["first"], r["last"], r.get("pfirst"))
        for r in records(directory)
        if r["kind"] in kinds
    ]


def test_it_publishes_at_once_and_keeps_until_confirmed() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    assert [shop.publish(b"a", "q"), shop.publish(b"b", "q")] == [1, 2]
    assert bodies(broker.channel) == [b"a", b"b"]
    assert broker.channel.confirming
    assert shop.in_doubt == 2
    broker.script.append(lambda: broker.channel.confirm(1))
    shop.poll()
    assert (shop.in_doubt, shop.counts.confirmed) == (1, 1)


def test_an_idle_publisher_that_is_polled_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("understudy.client.ledgers.time.monotonic", lambda: now)
    broker = FakeFailover()
    shop = publisher(broker, ledger_dir=tmp_path)
    for now in range(101, 121):  # noqa: B007
        broker.script.append(lambda: None)
        shop.poll()
    kinds = [r["kind"] for r in records(tmp_path)]
    assert 4 <= kinds.count("heartbeat") < 20 and len(set(kinds)) == 2


def test_a_full_window_waits_for_a_confirm() -> None:
    broker = FakeFailover()
    shop = publisher(broker, window=2)
    shop.publish(b"1", "q")
    shop.publish(b"2", "q")
    broker.script.append(lambda: broker.channel.confirm(2, multiple=True))
    shop.publish(b"3", "q")
    assert (shop.counts.confirmed, shop.in_doubt) == (2, 1)


def test_a_callback_may_publish_while_a_publish_waits_for_the_window() -> None:
    """Both messages have numbers of their own, and a return is known again by its number."""
    broker = FakeFailover()
    again: list[int] = []
    returned: list[int] = []

    def publish_again(_number: int) -> None:
        again.append(shop.publish(b"again", "q"))

    def note_return(number: int, _code: int, _text: str) -> None:
        returned.append(number)

    shop = publisher(broker, window=1, on_nack=publish_again, on_return=note_return)
    shop.publish(b"refused", "q")
    broker.script.append(lambda: broker.channel.nack(1))
    broker.script.append(lambda: broker.channel.confirm(2))
    assert shop.publish(b"waits", "nowhere", mandatory=True) == 3
    assert again == [2]
    broker.channel.give_back(3)
    broker.script.append(lambda: broker.channel.confirm(3))
    shop.flush()
    assert returned == [3]
    assert [(each.body, each.sequence) for each in broker.channel.published] == [
        (b"refused", None),
        (b"again", None),
        (b"waits", 3),
    ]
    assert shop.counts.published == 3


def test_multiple_confirms_and_single_ones_out_of_order() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    for number in range(6):
        shop.publish(b"%d" % number, "q")
    broker.channel.confirm(3)
    broker.channel.confirm(5)
    assert shop.counts.confirmed == 2
    broker.channel.confirm(4, multiple=True)
    assert shop.counts.confirmed == 5
    broker.channel.confirm(4, multiple=True)  # again: nothing is left of it
    broker.channel.confirm(99)
    assert (shop.counts.confirmed, shop.in_doubt) == (5, 1)


def test_what_is_in_doubt_goes_out_again_in_order_before_anything_new() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    for body in (b"1", b"2", b"3", b"4"):
        shop.publish(body, "q")
    broker.channel.confirm(2)
    broker.script.append(broker_dies)
    shop.poll()
    shop.publish(b"5", "q")
    assert bodies(broker.channels[0]) == [b"1", b"2", b"3", b"4"]
    assert bodies(broker.channels[1]) == [b"1", b"3", b"4", b"5"]
    assert shop.counts.resent == 3
    broker.channel.confirm(4, multiple=True)
    assert (shop.counts.confirmed, shop.in_doubt) == (5, 0)


def test_a_second_crash_during_resending_loses_and_reorders_nothing() -> None:
    broker = FakeFailover()

    def second_connection_dies_early(channel: FakeChannel) -> None:
        channel.fail_after = 2 if len(broker.channels) == 1 else None

    broker.prepare = second_connection_dies_early
    shop = publisher(broker)
    for body in (b"1", b"2", b"3", b"4"):
        shop.publish(body, "q")
    broker.script.append(broker_dies)
    shop.poll()
    broker.script.append(lambda: None)
    shop.poll()
    assert bodies(broker.channels[1]) == [b"1", b"2"]
    assert bodies(broker.channels[2]) == [b"1", b"2", b"3", b"4"]
    broker.channel.confirm(4, multiple=True)
    assert (shop.counts.confirmed, shop.in_doubt) == (4, 0)


def test_a_publish_during_which_the_connection_dies_is_sent_again() -> None:
    broker = FakeFailover()

    def first_dies(channel: FakeChannel) -> None:
        channel.fail_after = 1 if not broker.channels else None

    broker.prepare = first_dies
    shop = publisher(broker)
    shop.publish(b"1", "q")
    shop.publish(b"2", "q")
    assert bodies(broker.channels[1]) == [b"1", b"2"]


def test_each_connection_is_a_session_of_its_own() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    broker.script.append(broker_dies)
    shop.poll()
    shop.publish(b"2", "q")
    first, second = (properties["producer"] for properties in broker.properties)
    assert first != second
    assert first.startswith("shop.")
    assert publisher(FakeFailover())._life >= shop._life


def test_two_lives_that_begin_at_once_are_two_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000_000_000_000
    monkeypatch.setattr("understudy.client.ledgers.time.time_ns", lambda: now)
    lives = [publisher(FakeFailover(), ledger_dir=tmp_path)._life for _ in range(2)]
    now -= 3600 * 10**9
    lives.append(publisher(FakeFailover(), ledger_dir=tmp_path)._life)
    assert lives == sorted(set(lives)) and len(list(tmp_path.iterdir())) == 3


def test_returned_messages_are_not_among_the_confirmed() -> None:
    broker = FakeFailover()
    heard: list[tuple[int, int, str]] = []
    shop = publisher(broker, on_return=lambda *what: heard.append(what))
    shop.publish(b"1", "q", mandatory=True)
    shop.publish(b"2", "nowhere", mandatory=True)
    shop.publish(b"3", "q", mandatory=True)
    broker.channel.give_back(2)
    broker.script.append(lambda: broker.channel.confirm(3, multiple=True))
    shop.flush()
    assert heard == [(2, 312, "NO_ROUTE")]
    assert (shop.counts.confirmed, shop.counts.returned, shop.in_doubt) == (2, 1, 0)


def test_nacked_messages_are_told_and_not_sent_again() -> None:
    broker = FakeFailover()
    heard: list[int] = []
    shop = publisher(broker, on_nack=heard.append)
    for body in (b"1", b"2", b"3"):
        shop.publish(body, "q")
    broker.channel.nack(2, multiple=True)
    broker.script.append(lambda: broker.channel.confirm(3))
    shop.flush()
    assert heard == [1, 2]
    assert (shop.counts.nacked, shop.counts.confirmed, shop.in_doubt) == (2, 1, 0)


@pytest.mark.parametrize(
    "error", [OSError, TimeoutError, ConnectionForced, ZeroDivisionError, KeyboardInterrupt]
)
def test_what_a_callback_raises_reaches_the_caller_and_costs_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    """What was refused is in the ledgers and not sent again, whatever the application makes of it."""
    broker = FakeFailover()
    heard: list[int] = []

    def spool(number: int) -> None:
        heard.append(number)
        if number == 2:
            raise error

    shop = publisher(broker, ledger_dir=tmp_path, on_nack=spool)
    for body in (b"1", b"2", b"3", b"4"):
        shop.publish(body, "q")
    broker.script.append(lambda: broker.channel.nack(3, multiple=True))
    with pytest.raises(error):
        shop.poll()
    assert (heard, shop.counts.nacked, shop.in_doubt) == ([1, 2], 3, 1)
    broker.script.append(lambda: broker.channel.confirm(4))
    shop.flush()
    assert (heard, shop.counts.resent, len(broker.channels)) == ([1, 2, 3], 0, 1)
    assert of_kind(tmp_path, "nacked") == [("nacked", 1, 1, 3, None)]


def test_what_was_told_when_a_callback_raised_last_is_told_by_a_flush() -> None:
    broker = FakeFailover()
    heard: list[int] = []

    def stumble(number: int) -> None:
        heard.append(number)
        if number == 1:
            raise OSError

    shop = publisher(broker, on_nack=stumble)
    shop.publish(b"1", "q")
    shop.publish(b"2", "q")
    broker.script.append(lambda: broker.channel.nack(2, multiple=True))
    with pytest.raises(OSError):
        shop.flush()
    shop.flush()
    assert heard == [1, 2]


def test_a_return_counts_only_with_the_confirm_of_the_same_broker(tmp_path: Path) -> None:
    """Where the queue may be there: what was confirmed is said to be confirmed."""
    broker = FakeFailover()
    heard: list[tuple[int, int, str]] = []
    shop = publisher(broker, ledger_dir=tmp_path, on_return=lambda *what: heard.append(what))
    shop.publish(b"1", "q", mandatory=True)
    broker.channel.give_back(1)
    broker.script.append(broker_dies)
    shop.poll()
    shop.connect()
    broker.script.append(lambda: broker.channel.confirm(1))
    shop.flush()
    shop.close()
    assert (shop.counts.confirmed, shop.counts.returned, heard) == (1, 0, [])
    assert of_kind(tmp_path, "confirmed", "returned") == [("confirmed", 2, 1, 1, None)]


def test_flush_says_how_many_are_not_confirmed_and_keeps_them() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    with pytest.raises(NotConfirmed, match="1 message"):
        shop.flush(timeout=0)
    assert shop.in_doubt == 1


def test_an_error_that_will_not_heal_reaches_the_caller() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")

    def refuse() -> None:
        raise NotAllowed("NOT_ALLOWED - vhost 'shop' not found")

    broker.script.append(refuse)
    with pytest.raises(NotAllowed):
        shop.poll()
    assert shop.in_doubt == 1


def test_the_ledgers_hold_sessions_tags_and_own_numbers(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, ledger_dir=tmp_path)
    for number in range(4):
        shop.publish(b"%d" % number, "q")
    shop.publish(b"other", "z")
    broker.channel.confirm(2, multiple=True)
    broker.script.append(broker_dies)
    shop.poll()
    shop.publish(b"new", "z")
    broker.channel.confirm(4, multiple=True)
    shop.close()
    assert of_kind(tmp_path, "sent") == [
        ("sent", 1, 1, 4, 1),
        ("sent", 1, 5, 5, 5),
        ("sent", 2, 1, 2, 3),
        ("sent", 2, 3, 4, 5),
    ]
    assert of_kind(tmp_path, "confirmed") == [("confirmed", 1, 1, 2, None), ("confirmed", 2, 1, 4, None)]
    kinds = [record["kind"] for record in records(tmp_path)]
    assert (kinds[0], kinds[-1]) == ("open", "seal")
    assert [record["wseq"] for record in records(tmp_path)] == list(range(len(kinds)))


def test_sent_is_never_written_after_its_confirm(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, ledger_dir=tmp_path)
    for number in range(3):
        shop.publish(b"%d" % number, "q")
        broker.channel.confirm(number + 1)
    shop.close()
    assert [kind for kind, *_ in of_kind(tmp_path, "sent", "confirmed")] == ["sent", "confirmed"] * 3


def test_outages_are_bracketed_by_signs_of_service() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    broker.channel.confirm(1)
    broker.script.append(broker_dies)
    shop.poll()
    shop.publish(b"2", "q")
    broker.channel.confirm(1)
    assert broker.outage_marks == ["serving", "lost", "serving"]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ({"headers": {"a": object()}}, ValueError),
        ({"headers": {"a": "x" * 131_072}}, ValueError),
        ({"priority": 256}, ValueError),
        ({"expiration": 5}, TypeError),
        ({"message_id": "x" * 256}, ValueError),
        ({"routing_key": "x" * 256}, ValueError),
        ({"exchange": None}, TypeError),
        ({"body": 5}, TypeError),
        ({"body": "grüße", "content_encoding": "ascii"}, ValueError),
        ({"body": "grüße", "content_encoding": "klingon"}, ValueError),
    ],
)
def test_what_cannot_be_sent_is_refused_and_holds_up_nothing(
    what: dict[str, Any], error: type[Exception]
) -> None:
    """py-amqp would take some of it for a broken connection, for ever, and stumble over the rest."""
    broker = FakeFailover()
    shop = publisher(broker)
    with pytest.raises(error):
        shop.publish(**{"body": b"x", "routing_key": "q", **what})
    assert (shop.counts.published, shop.in_doubt) == (0, 0)
    assert shop.publish("grüße", "q", headers={"a": 1}) == 1
    assert bodies(broker.channel) == ["grüße".encode()]


def test_what_is_sent_is_what_was_given_whatever_becomes_of_it() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    body, nested = bytearray(b"early"), {"a": 1}
    shop.publish(body, "q", headers={"nested": nested})  # type: ignore[arg-type]
    (kept,) = shop._session.in_doubt.values()  # type: ignore[union-attr]
    before = kept.message._serialize_properties()
    body[:] = b"later"
    nested["a"] = 2
    broker.script.append(broker_dies)
    shop.poll()
    shop.connect()
    assert bodies(broker.channels[1]) == [b"early"]
    assert kept.message._serialize_properties() == before


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        publisher(FakeFailover(), window=0)
    with pytest.raises(ValueError, match="address"):
        Publisher("", "shop")
    shop = publisher(FakeFailover())
    shop.close()
    shop.close()
    with pytest.raises(RuntimeError):
        shop.publish(b"late", "q")

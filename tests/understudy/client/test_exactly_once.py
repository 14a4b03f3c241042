"""Publishers with `exactly_once`: which numbers they tell the broker, and what they keep over processes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import AccessRefused, PreconditionFailed

from tests.understudy.client.fake_broker import FakeChannel, FakeFailover, broker_dies
from tests.understudy.client.interrupts import interrupted, void
from understudy.client import Fenced, NotExactlyOnce, Publisher, Refused
from understudy.client.numbering import SPAN


def publisher(broker: FakeFailover, folder: Path, **arguments: Any) -> Publisher:
    made = Publisher("127.0.0.1:1", "shop", folder, exactly_once=True, **arguments)
    made.failover = broker  # type: ignore[assignment]
    made._hear_every = math.inf
    return made


def state(folder: Path) -> tuple[int, int]:
    """What the file says: the first number that may be unknown, and the first that nobody used."""
    told = json.loads((folder / "shop.producer.json").read_text())
    return told["next_number"], told["unused_from"]


def claims(broker: FakeFailover) -> list[int]:
    """The first number on each connection, with a later epoch each time a process begins."""
    return [told["producer_next"] for told in broker.properties]


def confirm(shop: Publisher, broker: FakeFailover, tag: int, **how: bool) -> None:
    broker.script.append(lambda: broker.channel.confirm(tag, **how))
    shop.poll()


def published(shop: Publisher, count: int) -> list[int]:
    return [shop.publish(b"m", "q") for _ in range(count)]


def killed(folder: Path, count: int, confirmed: int) -> None:
    """A process that publishes so many messages, hears of some of them, and does not live to say so."""
    broker = FakeFailover()
    shop = publisher(broker, folder, window=SPAN)
    published(shop, count)
    confirm(shop, broker, confirmed, multiple=True)


def test_a_new_publisher_registers_before_it_has_a_file_and_then_begins_at_1(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    assert not (tmp_path / "shop.producer.json").exists()
    assert published(shop, 2) == [1, 2]
    first, second = broker.properties
    assert (first["producer_id"], first["producer_epoch"], first["producer_next"]) == ("shop", 0, 1)
    assert (second["producer_id"], second["producer_next"]) == ("shop", 1) and second["producer_epoch"] > 1
    assert state(tmp_path) == (1, 1 + SPAN)


def test_an_interrupted_start_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    for call in range(2):
        synced: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                "understudy.client.numbering.os.fsync",
                lambda fd, synced=synced, call=call: (
                    synced.append(fd) if len(synced) < call else interrupted(fd)
                ),
            )
            with pytest.raises(KeyboardInterrupt):
                shop.publish(b"m", "q")
    assert (tmp_path / "shop.producer.json").exists()
    shop.connect()
    assert claims(broker) == [1, 1, 1, 1] and len(broker.channel.published) == shop.in_doubt == 1
    other = publisher(FakeFailover(), tmp_path / "other")
    (tmp_path / "other" / "shop.producer.json").write_bytes((tmp_path / "shop.producer.json").read_bytes())
    with pytest.raises(Fenced, match="another process has begun to publish"):
        other.connect()


def test_an_interrupt_at_any_place_gives_no_number_to_two_messages(tmp_path: Path) -> None:
    at, more = 0, True
    while more:
        at += 1
        broker = FakeFailover()
        folder = tmp_path / str(at)
        shop = publisher(broker, folder)
        more = interrupted(at, lambda: void(shop.publish(b"first", "q")))  # noqa: B023
        shop.publish(b"second", "q")
        given: dict[int, set[bytes | str]] = {}
        for first, channel in zip(claims(broker), broker.channels, strict=True):
            for index, message in enumerate(channel.published):
                given.setdefault(first + index, set()).add(message.body)
        assert all(len(bodies) == 1 for bodies in given.values()), f"interrupted at place {at}"
        assert max(given) == shop.counts.published < state(folder)[1], f"interrupted at place {at}"
    assert at > 50


def test_what_is_in_doubt_goes_out_again_with_its_number(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    published(shop, 5)
    confirm(shop, broker, 2, multiple=True)
    broker.script += [broker_dies, lambda: broker.channel.confirm(3, multiple=True)]
    shop.flush()
    assert claims(broker) == [1, 1, 3]
    assert shop.counts.confirmed == 5


def test_numbers_between_those_in_doubt_are_left_out_by_another_connection(tmp_path: Path) -> None:
    """1 and 3 are in doubt, 2 is refused: 3 may not go out as the second message of a connection."""
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    published(shop, 3)
    broker.script += [lambda: broker.channel.nack(2), broker_dies]
    shop.poll()
    shop.poll()
    broker.script += [lambda: broker.channel.confirm(1), lambda: broker.channel.confirm(1)]
    shop.flush()
    assert claims(broker) == [1, 1, 1, 3]
    assert [len(channel.published) for channel in broker.channels] == [0, 3, 1, 1]


def test_no_message_is_sent_that_is_too_far_from_the_oldest_in_doubt(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path, window=SPAN)
    published(shop, SPAN)
    broker.script += [
        lambda: broker.channel.confirm(SPAN),  # the newest one: room in the window, and none in numbers
        lambda: broker.channel.confirm(7, multiple=True),
    ]
    assert shop.publish(b"m", "q") == SPAN + 1
    assert not broker.script and state(tmp_path) == (8, 8 + SPAN) and shop.keep_from == 8


def test_the_file_is_written_once_for_many_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    monkeypatch.setattr("understudy.client.numbering.os.fsync", syncs.append)
    broker = FakeFailover()
    shop = publisher(broker, tmp_path, window=2)
    for number in range(2000):
        published(shop, 1)
        confirm(shop, broker, number + 1)
    assert len(syncs) == 2 * 2, "file and folder, for the first message and for one in the midst"


class TestAfterAKill:
    def test_resume_goes_on_with_what_may_be_unknown(self, tmp_path: Path) -> None:
        killed(tmp_path, 5, confirmed=2)
        broker = FakeFailover()
        shop = publisher(broker, tmp_path)
        assert shop.resume() == shop.next_number == shop.keep_from == 1, "the file is behind, and never ahead"
        assert published(shop, 1) == [1] and claims(broker) == [1]

    def test_without_resume_no_number_means_two_messages(self, tmp_path: Path) -> None:
        killed(tmp_path, 5, confirmed=2)
        broker = FakeFailover()
        shop = publisher(broker, tmp_path)
        assert published(shop, 2) == [1 + SPAN, 2 + SPAN] and claims(broker) == [1 + SPAN]

    def test_a_clean_end_leaves_nothing_unknown(self, tmp_path: Path) -> None:
        broker = FakeFailover()
        with publisher(broker, tmp_path) as shop:
            published(shop, 5)
            broker.script.append(lambda: broker.channel.confirm(5, multiple=True))
        assert state(tmp_path) == (6, 6)
        again = publisher(FakeFailover(), tmp_path)
        assert (again.next_number, again.resume()) == (6, 6)

    def test_the_application_may_know_better(self, tmp_path: Path) -> None:
        killed(tmp_path, 5, confirmed=2)
        broker = FakeFailover()
        shop = publisher(broker, tmp_path)
        shop.connect()
        assert shop.resume(at=3) == 3
        shop.skip()
        assert published(shop, 1) == [4] and claims(broker) == [1 + SPAN, 4]
        with pytest.raises(RuntimeError, match="before the first publish"):
            shop.resume()

    def test_the_older_process_finds_the_newer_one_in_the_file(self, tmp_path: Path) -> None:
        broker = FakeFailover()
        older = publisher(broker, tmp_path)
        published(older, 1)
        confirm(older, broker, 1)
        newer = publisher(FakeFailover(), tmp_path)
        published(newer, 1)
        before = state(tmp_path)
        older._last = SPAN
        for _ in range(2):
            with pytest.raises(Fenced, match="a newer process has noted itself"):
                older.publish(b"m", "q")
        older.close()
        assert state(tmp_path) == before


@pytest.mark.parametrize("with_callback", [True, False])
def test_a_refusal_that_was_not_reported_is_still_unknown(tmp_path: Path, with_callback: bool) -> None:
    """The process may be killed before the application hears of it."""
    broker = FakeFailover()
    told: list[int] = []
    shop = publisher(broker, tmp_path, window=SPAN, on_nack=told.append if with_callback else None)
    published(shop, SPAN)
    for tag in (1, 2):
        broker.channel.confirm(tag) if tag == 1 else broker.channel.nack(tag)
    assert shop._oldest() == (2 if with_callback else 3)
    published(shop, 1)
    assert (told, state(tmp_path)[0]) == ([2] if with_callback else [], 3)


def test_a_fork_leaves_the_parents_file_alone(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    published(shop, 3)
    shop.failover = broker  # type: ignore[assignment]
    before = state(tmp_path)
    child = os.fork()
    if child == 0:
        shop.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert state(tmp_path) == before


# -- what the broker refuses


def refuses(error: Exception, *connections: int) -> Any:
    """Prepares channels: the broker refuses the numbers on these connections, counted from 0."""
    made: list[FakeChannel] = []

    def prepare(channel: FakeChannel) -> None:
        made.append(channel)
        if len(made) - 1 in connections:
            channel.confirm_select = lambda: raised(error)  # type: ignore[method-assign]

    return prepare


def raised(error: Exception) -> None:
    raise error


NEWER = AccessRefused("ACCESS_REFUSED - producer 'shop' has a newer process")


def test_a_publisher_whose_file_is_lost_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    broker = FakeFailover(prepare=refuses(NEWER, 0, 1))
    shop = publisher(broker, tmp_path)
    for _ in range(2):
        with pytest.raises(NotExactlyOnce, match=r"bring it back.*call `resume\(at=N\)`") as caught:
            shop.publish(b"m", "q")
    assert "\n" not in str(caught.value) and not (tmp_path / "shop.producer.json").exists()
    again = publisher(broker, tmp_path)
    assert again.resume(at=900) == 900 and published(again, 1) == [900]
    assert claims(broker) == [1, 1, 900] and state(tmp_path) == (900, 900 + SPAN)


def test_a_fenced_publisher_gives_up_no_message_and_goes_on_no_more(tmp_path: Path) -> None:
    """The broker closes its channel, with one message in doubt: that message is not refused."""
    broker = FakeFailover(prepare=refuses(NEWER, 2))
    shop = publisher(broker, tmp_path)
    published(shop, 1)
    broker.script.append(lambda: raised(AccessRefused("ACCESS_REFUSED - goes on elsewhere", (60, 40))))
    shop.poll()
    for action in (lambda: shop.poll(), lambda: shop.publish(b"m", "q"), lambda: shop.flush()):
        with pytest.raises(Fenced, match="is not known from number 1 on"):
            action()
    assert (shop.in_doubt, shop.counts.nacked) == (1, 0)
    shop.close()


def test_a_message_that_is_forbidden_is_refused_when_it_is_alone(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    published(shop, 1)
    forbidden = AccessRefused("ACCESS_REFUSED - write access", (60, 40))
    broker.script += [lambda: raised(forbidden)] * 2
    with pytest.raises(Refused, match="message 1, "):
        shop.flush()
    assert (shop.in_doubt, shop.counts.nacked, claims(broker)[:3]) == (0, 1, [1, 1, 1])


def test_numbers_that_are_out_of_reach_say_so(tmp_path: Path) -> None:
    killed(tmp_path, 1, confirmed=1)
    broker = FakeFailover(prepare=refuses(PreconditionFailed("PRECONDITION_FAILED - has had 9000"), 0))
    with pytest.raises(NotExactlyOnce, match=r"has had 9000.*resume") as caught:
        publisher(broker, tmp_path).publish(b"m", "q")
    assert not isinstance(caught.value, Fenced)


def test_a_broker_that_knows_no_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotExactlyOnce, match="does not know the numbers of publishers"):
        publisher(FakeFailover(server_properties={"product": "RabbitMQ"}), tmp_path).publish(b"m", "q")


# -- what the application gives


def test_what_exactly_once_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exactly_once needs ledger_dir"):
        Publisher("127.0.0.1:1", "shop", exactly_once=True)
    with pytest.raises(ValueError, match="window is at most 1024"):
        publisher(FakeFailover(), tmp_path, window=SPAN + 1)
    shop = publisher(FakeFailover(), tmp_path)
    for number in (0, -1, 1 << 53, 1 << 63):
        with pytest.raises(ValueError, match=r"from 1 to 2\^53"):
            shop.resume(at=number)
        with pytest.raises(ValueError, match="count is at least 1"):
            shop.skip(number)
    with pytest.raises(RuntimeError, match="resume needs exactly_once"):
        Publisher("127.0.0.1:1", "shop").resume()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"v": 1}', "x" * 5000, "[" * 4000,
        '{"v": 1, "producer": "bank", "epoch": 1, "next_number": 1, "unused_from": 1}',
        '{"v": 1, "producer": "shop", "epoch": 1, "next_number": 9, "unused_from": 8}',
        '{"v": 1, "producer": "shop", "epoch": true, "next_number": 1, "unused_from": 1}',
        '{"v": 1, "producer": "shop", "epoch": 1, "next_number": 1, "unused_from": 1e99}',
    ],
)  # fmt: skip
def test_a_file_that_is_torn_or_anothers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.producer.json"
    path.write_text(text)
    with pytest.raises(NotExactlyOnce, match=r"shop.producer.json does not have the numbers") as caught:
        publisher(FakeFailover(), tmp_path)
    assert "\n" not in str(caught.value) and path.read_text() == text


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    broker = FakeFailover()
    shop = publisher(broker, tmp_path)
    published(shop, 1)
    confirm(shop, broker, 1)
    (tmp_path / "shop.producer.json.part").mkdir()
    shop._last = SPAN
    with pytest.raises(NotExactlyOnce, match=r"cannot keep the publisher's numbers in .*Is a directory"):
        shop.publish(b"m", "q")
    assert shop.counts.published == 1

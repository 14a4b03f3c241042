"""What a broker will not have: one message, one address. It is told, noted, and holds up nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton")
from proton import Condition, Delivery, Event, EventType, Terminus

from broker.settings import BrokerSettings
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.amqp10.plain import ORDERS, Exchange, Queue, declare, delete_exchange, records
from tests.understudy.client.amqp10.scripted import Scripted, Served
from tests.understudy.client.interrupts import interrupted
from understudy.client import Consumer as PlainConsumer
from understudy.client.amqp10 import Publisher, Refused
from understudy.shared.amqp10.sections import DATA, body_octets, outline

NEWS: Any = Exchange("news", type="fanout", durable=True)
TOO_LARGE = b" " * 100_000


def bodies(broker: BrokerThread, queue: str) -> list[str]:
    """All that is in it, in order; it is empty then."""
    found = []
    with PlainConsumer(str(broker.address), queue, "reader") as reader:
        while (delivery := reader.receive(0.2)) is not None:
            found.append(bytes(delivery.body).decode())  # type: ignore[arg-type]
            reader.ack(delivery)
    return found


def own_numbers(folder: Path, outcome: str) -> list[int]:
    """The publisher's numbers of what the ledger says had this outcome."""
    sent = {
        (record["prod"], tag): record["pfirst"] + tag - record["first"]
        for record in records(folder, "sent")
        for tag in range(record["first"], record["last"] + 1)
    }
    return [
        sent[record["prod"], tag]
        for record in records(folder, outcome)
        for tag in range(record["first"], record["last"] + 1)
    ]


def test_an_address_that_is_not_there_costs_its_own_messages_only(
    broker: BrokerThread, tmp_path: Path
) -> None:
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop", tmp_path) as shop:
        shop.publish(b"1", "orders")
        for number, address in ((2, "missing"), (3, "/exchanges/missing/key")):
            with pytest.raises(Refused, match=f"publishing to '{address}': no .*missing") as caught:
                shop.publish(b"lost", address)
            assert (caught.value.condition, caught.value.sequences) == ("amqp:not-found", (number,))
        assert shop.publish(b"4", "orders") == 4
        shop.flush(10)
        assert (shop.counts.confirmed, shop.counts.nacked, shop.counts.resent, shop.in_doubt) == (2, 2, 0, 0)
        assert shop.failover.connects == 1
    assert bodies(broker, "orders") == ["1", "4"]
    assert (own_numbers(tmp_path, "confirmed"), own_numbers(tmp_path, "nacked")) == ([1, 4], [2, 3])


def test_one_who_asked_is_told_of_an_address_that_is_not_there(broker: BrokerThread) -> None:
    declare(broker, ORDERS)
    told: list[tuple[int, str, str]] = []
    with Publisher(str(broker.address), "shop", on_nack=lambda *what: told.append(what)) as shop:
        shop.publish(b"lost", "missing")
        shop.publish(b"1", "orders")
    assert told == [(1, "amqp:not-found", "publishing to 'missing': no queue 'missing' in vhost '/'")]
    assert (shop.counts.confirmed, shop.counts.nacked) == (1, 1)


def test_one_that_is_too_large_costs_nothing_else(
    brokers: Callable[..., BrokerThread], tmp_path: Path
) -> None:
    broker = brokers(settings=BrokerSettings(message_max=100_000))
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop", tmp_path) as shop:
        shop.publish(b"1", "orders")
        with pytest.raises(
            Refused, match=r"'orders': a message of 1000[0-9]+ octets, and the broker"
        ) as caught:
            shop.publish(TOO_LARGE, "orders")
        assert (caught.value.condition, caught.value.sequences) == ("amqp:link:message-size-exceeded", (2,))
        shop.publish(b"3", "orders")
    assert (shop.counts.confirmed, shop.counts.nacked, shop.counts.resent) == (2, 1, 0)
    assert shop.failover.connects == 1
    assert bodies(broker, "orders") == ["1", "3"]
    assert (own_numbers(tmp_path, "confirmed"), own_numbers(tmp_path, "nacked")) == ([1, 3], [2])
    tags = [tag for r in records(tmp_path, "confirmed") for tag in range(r["first"], r["last"] + 1)]
    assert tags == [1, 2], "a broker counts what comes"


def test_an_exchange_that_is_deleted_meanwhile(broker: BrokerThread, tmp_path: Path) -> None:
    """Its link ends; what went by others is sent once. Made again, it is good again."""
    declare(broker, ORDERS, Queue("copies", exchange=NEWS))
    told: list[int] = []
    with Publisher(str(broker.address), "shop", tmp_path, on_nack=lambda *what: told.append(what[0])) as shop:
        shop.publish(b"1", "/exchanges/news")
        shop.flush(10)
        delete_exchange(broker, NEWS)
        shop.publish(b"2", "orders")
        for number in (3, 4):
            shop.publish(b"%d" % number, "/exchanges/news")
        shop.publish(b"5", "orders")
        shop.flush(10)
        assert told == [3, 4]
        declare(broker, Queue("copies", exchange=NEWS))
        shop.publish(b"6", "/exchanges/news")
    assert (bodies(broker, "orders"), bodies(broker, "copies")) == (["2", "5"], ["1", "6"])
    assert (shop.counts.confirmed, shop.counts.nacked, shop.failover.connects) == (4, 2, 1)
    assert (own_numbers(tmp_path, "confirmed"), own_numbers(tmp_path, "nacked")) == ([1, 2, 5, 6], [3, 4])


class Squeamish:
    """Has nothing settled that is still in its hands when something poisonous comes: it closes the link then,
    or the connection. `took`: what it had read by then counts, too."""

    def __init__(self, closes: str) -> None:
        self._closes = closes
        self.took: Counter[str] = Counter()
        self._held: list[Delivery] = []

    def __call__(self, served: Served, kind: EventType, what: Any) -> None:
        if kind is Event.LINK_REMOTE_OPEN:
            what.target.copy(what.remote_target)
            what.open()
            what.flow(100)
            self._held.clear()
        elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            what.close()
        elif kind is Event.DELIVERY and what.readable and not what.partial:
            link = what.link
            payload = bytes(link.recv(what.pending) or b"")
            plan = outline(payload)
            assert plan.kind == DATA
            body = body_octets(payload, plan).decode()
            link.advance()
            if link.state & link.LOCAL_CLOSED:
                return
            self.took[body] += 1
            if body == "poison":
                broken = link if self._closes == "link" else served.engine
                broken.condition = Condition("amqp:internal-error", "it went down the wrong way")
                broken.close()
                return
            self._held.append(what)
            if len(self._held) >= 3 or body in ("last", "again") or self.took["poison"]:
                for delivery in self._held:
                    delivery.update(Delivery.ACCEPTED)
                    delivery.settle()
                self._held.clear()


@pytest.mark.parametrize("closes", ["link", "connection"])
def test_one_that_costs_its_link_is_found_and_given_up(closes: str, tmp_path: Path) -> None:
    """The broker does not say which it was: those that were in doubt with it are sent again one by one."""
    script = Squeamish(closes)
    told: list[tuple[int, str, str]] = []
    with (
        Scripted(script) as peer,
        Publisher(peer.address, "shop", tmp_path, on_nack=lambda *what: told.append(what)) as shop,
    ):
        for body in ("1", "2", "3", "4", "poison", "6", "7", "8", "last"):
            shop.publish(body.encode(), "orders")
        shop.flush(10)
        shop.publish(b"again", "orders")
        shop.flush(10)
    assert told == [(5, "amqp:internal-error", "publishing to 'orders': it went down the wrong way")]
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (9, 1, 0)
    assert script.took.pop("poison") == 2
    assert set(script.took) == {"1", "2", "3", "4", "6", "7", "8", "last", "again"}
    assert max(script.took.values()) <= 2
    assert (own_numbers(tmp_path, "nacked"), sorted(own_numbers(tmp_path, "confirmed"))) == (
        [5],
        [1, 2, 3, 4, 6, 7, 8, 9, 10],
    )


def test_a_link_that_is_closed_before_anything_went_by_it() -> None:
    """Some brokers answer the attach as if all were well, then say no. They would say it again."""

    def script(_served: Served, kind: EventType, what: Any) -> None:
        if kind is Event.LINK_REMOTE_OPEN:
            what.target.copy(what.remote_target)
            what.open()
            what.condition = Condition("amqp:unauthorized-access", "not for you")
            what.close()

    with Scripted(script) as peer, Publisher(peer.address, "shop") as shop:
        with pytest.raises(Refused, match="amqp:unauthorized-access: publishing to 'orders': not for you"):
            shop.publish(b"1", "orders")
        assert (shop.in_doubt, shop.counts.nacked, shop.failover.connects) == (0, 1, 1)


def test_all_else_is_confirmed_before_a_refusal_is_raised_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `with` ends by a `flush`; an error in its midst would leave the rest in doubt."""
    monkeypatch.setattr("understudy.client.amqp10.publisher.HEAR_EVERY", 60.0)
    script = Squeamish("connection")
    with Scripted(script) as peer:
        shop = Publisher(peer.address, "shop", tmp_path)
        with pytest.raises(Refused, match="amqp:internal-error: publishing to 'orders'") as caught, shop:
            for body in ("1", "2", "poison", "4", "last"):
                shop.publish(body.encode(), "orders")
    assert caught.value.sequences == (3,)
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (4, 1, 0)
    assert sorted(own_numbers(tmp_path, "confirmed")) == [1, 2, 4, 5]


def test_an_interrupt_at_any_place_forgets_no_message_and_no_refusal(broker: BrokerThread) -> None:
    """One place in seven is tried. What was in doubt may be there twice."""
    declare(broker, ORDERS, Queue("others"))
    addresses = ("orders", "missing", "orders", "others")
    at, more = -6, True
    while more:
        at += 7
        told: list[int] = []
        shop = Publisher(str(broker.address), "shop", on_nack=lambda *what, told=told: told.append(what[0]))
        shop.connect()

        def publish_all(shop: Publisher = shop, at: int = at) -> None:
            while (done := shop.counts.published) < len(addresses):
                shop.publish(b"%d" % (4 * at + done), addresses[done])
            shop.flush(10)

        more = interrupted(at, publish_all)
        publish_all()
        assert told == [2], f"interrupted at place {at}"
        assert shop.counts.confirmed >= 3 and (shop.counts.nacked, shop.in_doubt) == (1, 0)
        shop.close()
    assert at > 300
    there = {int(body) for queue in ("orders", "others") for body in bodies(broker, queue)}
    assert there == {4 * step + number for step in range(1, at + 1, 7) for number in (0, 2, 3)}


def test_a_link_that_is_closed_midway_holds_up_no_other() -> None:
    """Of what it was given, part is left unsent: nobody waits for that."""
    closed: list[str] = []

    def script(_served: Served, kind: EventType, what: Any) -> None:
        if kind is Event.LINK_REMOTE_OPEN:
            if what.remote_target.address in closed:
                what.target.type = Terminus.UNSPECIFIED
                what.open()
                what.condition = Condition("amqp:not-found", "it was there")
                what.close()
                return
            what.target.copy(what.remote_target)
            what.open()
            what.flow(10)
        elif kind is Event.DELIVERY and what.readable:
            link = what.link
            link.recv(what.pending)
            if link.remote_target.address == "large" and not closed:
                closed.append("large")
                link.condition = Condition("amqp:resource-deleted", "it was there")
                link.close()
            elif not what.partial and not link.state & link.LOCAL_CLOSED:
                link.advance()
                what.update(Delivery.ACCEPTED)
                what.settle()

    with Scripted(script, window=65536) as peer, Publisher(peer.address, "shop") as shop:
        with pytest.raises(Refused, match="amqp:not-found: publishing to 'large': it was there"):
            shop.publish(b" " * 5_000_000, "large")
        shop.publish(b"2", "small")
        shop.flush(10)
    assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (1, 1, 0)

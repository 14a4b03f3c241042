"""Failover of real processes: kill -9, promote, nothing confirmed is lost, the old primary comes back as
backup.

The numbers are those of docs/explanation/guarantees.md.
"""

from __future__ import annotations

import base64
import json
import re
import resource
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pytest

from tests.failover.nodes.pair import FAULTS, PATIENCE, Pair, channel_of, kinds, understudy
from understudy.client import Consumer, NotConfirmed, Publisher
from understudy.demo.plain_client import Plain, plain_connection
from understudy.demo.stage import queues_in
from understudy.management import ask

_Queue: Any = kombu.entity.Queue
_Exchange: Any = kombu.entity.Exchange
ORDERS = _Queue("orders", durable=True)
STATUS_KEYS = {"name", "status", "epoch", "link", "members", "promotable", "reason"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


class Background:
    """Runs one command while the test goes on; `code` waits for it."""

    def __init__(self, pair: Pair, *command: str) -> None:
        self._result: tuple[int, str, str] | None = None

        def run() -> None:
            self._result = pair.command(*command)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    @property
    def result(self) -> tuple[int, str, str]:
        self._thread.join(3 * PATIENCE)
        assert self._result is not None
        return self._result


def drain(pair: Pair, queue: str, count: int) -> Counter[int]:
    """Consume until `count` different numbers have come, then what is left."""
    seen: Counter[int] = Counter()
    with Consumer(pair.both, queue, f"drain-{queue}") as consumer:
        while len(seen) < count or left_over(pair):
            delivery = consumer.receive(0.2)
            if delivery is not None:
                seen[int(delivery.body)] += 1
                consumer.ack(delivery)
            else:
                consumer.flush()
    return seen


def queues(pair: Pair) -> list[dict[str, Any]]:
    """The queues of whichever node serves."""
    name = next(name for name in pair.addresses if pair.status(name) in ("active", "recovering"))
    return queues_in(ask(pair.addresses[name], "query"))


def left_over(pair: Pair) -> int:
    """Messages in all queues, delivered and unacked ones included."""
    return sum(row["ready"] + row["unacked"] for row in queues(pair))


def test_a_killed_primary_loses_nothing_that_was_confirmed_and_comes_back(pair: Pair) -> None:
    pair.whole()
    with Publisher(pair.both, "shop", declare=[ORDERS], window=200) as shop:
        for number in range(1000):
            shop.publish(b"%d" % number, "orders")
        pair.kill("left")
        promotion = Background(pair, "promote", "right")
        for number in range(1000, 2000):
            shop.publish(b"%d" % number, "orders")
        shop.flush(timeout=2 * PATIENCE)
        assert promotion.result[0] == 0, promotion.result
        assert shop.counts.confirmed == 2000
        assert shop.failover.connects == 2

        pair.start("left")
        pair.wait_for("left", "ready")
        assert pair.status("right") == "active"

        pair.kill("right")
        promotion = Background(pair, "promote", "left")
        for number in range(2000, 2500):
            shop.publish(b"%d" % number, "orders")
        shop.flush(timeout=2 * PATIENCE)
        assert promotion.result[0] == 0, promotion.result
        pair.start("right")
        pair.wait_for("right", "ready")
    seen = drain(pair, "orders", 2500)
    assert sorted(seen) == list(range(2500))
    assert sum(seen.values()) - 2500 <= shop.counts.resent


def test_survivors_of_an_earlier_epoch_are_redelivered_in_order_and_acked_ones_stay_away(pair: Pair) -> None:
    pair.whole()
    with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
        for number in range(500):
            shop.publish(b"%d" % number, "orders")
        shop.flush(timeout=PATIENCE)
        with Consumer(pair.both, "orders", "early") as early:
            for delivery in early.deliveries(until=lambda: early.counts.received == 200):
                assert not delivery.redelivered
    pair.until(lambda: dequeued(pair, "right") == 200, "the backup to hear of the acks")
    pair.kill("left")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err
    with Consumer(pair.both, "orders", "late") as late:
        rest = list(late.deliveries(until=lambda: late.counts.received == 300))
    assert [int(delivery.body) for delivery in rest] == list(range(200, 500))
    assert all(delivery.redelivered for delivery in rest)
    assert len({delivery.id.epoch for delivery in rest if delivery.id}) == 1


def dequeued(pair: Pair, name: str) -> int:
    """Messages that a backup was told are gone, by its own ledger."""
    records = [record for record in pair.ledger(name) if record["kind"] == "backup_dequeue"]
    return sum(record["last"] - record["first"] + 1 for record in records)


def test_fanout_topic_and_their_bindings_survive(pair: Pair) -> None:
    pair.whole()
    news, logs = _Exchange("news", type="fanout"), _Exchange("logs", type="topic")
    declare = [
        _Queue("news.mail", exchange=news),
        _Queue("news.web", exchange=news),
        _Queue("logs.errors", exchange=logs, routing_key="*.error"),
    ]
    with Publisher(pair.both, "press", declare=declare) as press:
        for number in range(100):
            press.publish(b"%d" % number, "", "news")
            press.publish(b"%d" % number, "shop.error" if number % 2 else "shop.info", "logs")
        press.flush(timeout=PATIENCE)
        pair.kill("left")
        assert pair.command("promote", "right")[0] == 0
    with Publisher(pair.both, "press2") as press:  # declares nothing: exchanges and bindings must be there
        for number in range(100, 200):
            press.publish(b"%d" % number, "", "news")
            press.publish(b"%d" % number, "shop.error" if number % 2 else "shop.info", "logs")
    assert sorted(drain_one(pair, "news.mail", 200)) == list(range(200))
    assert sorted(drain_one(pair, "news.web", 200)) == list(range(200))
    assert sorted(drain_one(pair, "logs.errors", 100)) == list(range(1, 200, 2))


def drain_one(pair: Pair, queue: str, count: int) -> list[int]:
    with Consumer(pair.both, queue, f"one-{queue}") as consumer:
        return [int(d.body) for d in consumer.deliveries(until=lambda: consumer.counts.received == count)]


def test_plain_kombu_code_survives_with_its_own_failover_list(pair: Pair) -> None:
    pair.whole()
    client = Plain(pair.both, _Queue("plain", durable=True))
    client.connect()
    stop = threading.Event()
    traffic = threading.Thread(target=client.run, args=(400, 0.0, stop))
    traffic.start()
    try:
        pair.until(lambda: client.counts()["confirmed"] > 100, "some confirms")
        pair.kill("left")
        assert pair.command("promote", "right")[0] == 0
        traffic.join(2 * PATIENCE)
        assert not traffic.is_alive()
    finally:
        stop.set()
        traffic.join(PATIENCE)
    counts = client.counts()
    assert (counts["published"], counts["confirmed"], counts["lost"]) == (400, 400, 0)


def test_a_fresh_pair_waits_until_one_is_promoted_and_an_early_promotion_is_refused(pair: Pair) -> None:
    pair.start("left")
    assert pair.status("left") == "joining"
    code, _, err = pair.command("promote", "left")
    assert code == 1
    assert err.count("\n") == 1
    pair.start("right")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err
    pair.wait_for("left", "ready")
    code, out, _ = pair.command("status", "left", "--format", "json", "--expect", "ready")
    assert code == 0
    found = json.loads(out)
    assert set(found) >= STATUS_KEYS
    assert (found["name"], found["status"], found["link"]) == ("left", "ready", "up")
    code, out, _ = pair.command("status", "right")
    assert code == 0
    assert "active" in out
    assert pair.command("promote", "right")[0] == 0, "promoting the active node is success"
    code, _, err = pair.command("promote", "left")
    assert code == 1, "the primary lives"
    assert "refused" in err
    assert pair.command("status", "left", "--expect", "active")[0] == 1
    assert pair.command("ready", "left")[0] == 0
    assert pair.command("ping", "left")[0] == 0
    assert pair.command("query", "right")[0] == 0


def test_a_backup_refuses_clients_and_names_the_primary(pair: Pair) -> None:
    pair.whole()
    connection = plain_connection(str(pair.addresses["right"]))
    with pytest.raises(Exception, match=f"320.*{pair.addresses['left']}"):
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
    connection.collect()


def test_demote_hands_over_without_loss(pair: Pair) -> None:
    pair.whole()
    with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
        for number in range(200):
            shop.publish(b"%d" % number, "orders")
        shop.flush(timeout=PATIENCE)
        code, _, err = pair.command("demote", "left")
        assert code == 0, err
        pair.until(lambda: pair.status("left") == "joining", "left to be joining")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        pair.wait_for("left", "ready")
        shop.publish(b"200", "orders")
    assert sorted(drain_one(pair, "orders", 201)) == list(range(201))


def test_sigterm_is_a_clean_end_with_an_inventory_and_a_seal(pair: Pair) -> None:
    pair.whole()
    with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
        for number in range(50):
            shop.publish(b"%d" % number, "orders")
    assert pair.stop("right") == 0
    assert pair.stop("left") == 0
    for name in ("left", "right"):
        records = pair.ledger(name)
        assert kinds(records)[-1] == "seal"
        present = [record for record in records if record["kind"] == "present"]
        assert [(record["first"], record["last"]) for record in present] == [(1, 50)]


def test_a_backup_that_is_stopped_holds_up_nobody(tmp_path: Path) -> None:
    """It says so itself: a primary that only saw the link close would wait for `ha.ack_timeout`."""
    with Pair(tmp_path, "ha.ack_timeout=300s") as pair:
        pair.whole()
        with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
            assert pair.stop("right") == 0
            shop.publish(b"1", "orders")
            shop.flush(timeout=PATIENCE)
        changes = [record["reason"] for record in pair.ledger("left") if record["kind"] == "insync"]
        assert changes == ["promoted", "included", "excluded"]


@pytest.mark.system
def test_under_block_a_promoted_backup_confirms_nothing_before_another_is_in_sync(tmp_path: Path) -> None:
    with Pair(tmp_path, "ha.on_backup_loss=block") as pair:
        pair.whole()
        with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
            shop.publish(b"1", "orders")
            shop.flush(timeout=PATIENCE)
            pair.kill("left")
            code, told, err = pair.command("promote", "right")
            assert code == 0, err
            assert "confirms are held until a backup is in sync (ha.on_backup_loss is block)" in told
            shop.publish(b"2", "orders")
            with pytest.raises(NotConfirmed):
                shop.flush(timeout=1)
            assert "confirms are held" in str(pair.answer("right")["reason"])
            pair.start("left")
            shop.flush(timeout=PATIENCE)
            assert pair.status("left") == "ready"
        assert drain(pair, "orders", 2).keys() == {1, 2}


def test_a_primary_whose_disk_refuses_a_write_does_not_keep_its_backup_from_being_promoted(
    tmp_path: Path,
) -> None:
    """It ends at once, whoever is connected: its backup must not take it for frozen."""
    with Pair(tmp_path, "broker.stop_timeout=300s") as pair:
        pair.whole()
        with channel_of(pair, "left"), channel_of(pair, "left") as channel:
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            persistent, confirmed = pika.BasicProperties(delivery_mode=2), 0
            left = pair.brokers["left"]
            left.expected_to_end = True
            _, most = resource.prlimit(left.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(left.pid, resource.RLIMIT_FSIZE, (200_000, most))
            with suppress(*FAULTS):
                while True:
                    channel.basic_publish("", "q", bytes(10_000), persistent)
                    confirmed += 1
            assert left.wait(PATIENCE) == 1
            code, _, err = pair.command("promote", "right")
            assert code == 0, err
        assert "could not write" in left.last_words()
        assert left_over(pair) >= confirmed


def test_a_restarted_standalone_broker_still_has_what_was_persistent(tmp_path: Path) -> None:
    with Pair(tmp_path, "ha.brokers=", "ha.replicate=none") as single:
        single.start("left")
        assert single.status("left") == "standalone"
        address = str(single.addresses["left"])
        with Publisher(address, "shop", declare=[ORDERS]) as shop:
            for number in range(100):
                shop.publish(b"%d" % number, "orders")
        single.kill("left")
        single.start("left")
        with Consumer(address, "orders", "after") as after:
            got = list(after.deliveries(until=lambda: after.counts.received == 100))
        assert [int(delivery.body) for delivery in got] == list(range(100))
        assert all(delivery.redelivered for delivery in got)


def test_http_tells_the_primary_from_the_backup(tmp_path: Path) -> None:
    with Pair(tmp_path, "broker.http=127.0.0.1:0") as pair:
        pair.whole()
        doors = {}
        for name, broker in pair.brokers.items():
            (door,) = re.findall(r"HTTP on (http://\S+)", broker.log.read_text())
            doors[name] = door
        assert fetch(doors["left"] + "/health/primary") == (200, "active\n")
        assert fetch(doors["right"] + "/health/primary") == (503, "ready\n")
        assert fetch(doors["right"] + "/health/ready")[0] == 200
        assert 'understudy_status{status="ready"} 1.0' in fetch(doors["right"] + "/metrics")[1]
        assert fetch(doors["right"] + "/api/promote", post=True)[0] == 401
        code, text = fetch(doors["right"] + "/api/promote", post=True, login="guest:guest")
        assert (code, json.loads(text)["ok"]) == (409, False), "the primary lives"
        pair.kill("left")
        code, text = fetch(doors["right"] + "/api/promote", post=True, login="guest:guest")
        assert (code, json.loads(text)["ok"]) == (200, True), text
        assert fetch(doors["right"] + "/health/primary")[0] == 200
        assert pair.stop("right") == 0


def fetch(url: str, *, post: bool = False, login: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, method="POST" if post else "GET")
    if login is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_two_processes_do_not_share_a_data_directory_or_a_port(pair: Pair) -> None:
    pair.start("left")
    data = str(pair.folder / "left")
    code, _, err = understudy("serve", "--listen", "127.0.0.1:0", "--data-dir", data)
    assert code == 1
    assert data in err
    assert err.count("\n") == 1
    taken = str(pair.addresses["left"])
    code, _, err = understudy("serve", "--listen", taken, "--data-dir", str(pair.folder / "other"))
    assert code == 1
    assert taken in err.splitlines()[-1]

"""What the console shows of a node's folders: quarantine, reports, a watch's alarms. Real files and a real
broker, so that what is republished is in its queue."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import amqp
import pytest
from yarl import URL

from broker.security.authenticator import Authenticator
from broker.security.identity import User, default_users
from broker.security.logins import Logins
from broker.store.files import RealFiles
from ha.adapter.quarantine import Quarantine
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.http.test_server import StandIn
from tests.understudy.quarantine.test_reader import ORDERS, entry
from understudy.http.room import NodeFolders
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

HTML = "<script>alert(1)</script>"
ALARM = {"n": 1, "ts_us": 5, "kind": "lost", "severity": "loss", "sentence": HTML}
Asked = tuple[int, Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three messages of `orders` in quarantine, reports, and a watch."""
    (tmp_path / "node.json").write_text("{}")
    Quarantine(RealFiles(), str(tmp_path), 3).export(
        ORDERS, "orders", [entry(at, b"%d" % at) for at in (1, 2, 3)]
    )
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "night.html").write_text("<p>all is well</p>")
    (tmp_path / "reports" / "night.json").write_text(json.dumps({"verdict": "proven"}))
    (tmp_path / "reports" / "torn.html").write_text("")
    (tmp_path / "reports" / "torn.json").write_text('{"verdict": ')
    (tmp_path / "secret.html").write_text("no")
    watch = tmp_path / "ledger.watch"
    (watch / "state").mkdir(parents=True)
    (watch / "alarms.jsonl").write_text(json.dumps(ALARM) + '\n{"n": 2, "kind')
    return tmp_path


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as found:
        yield found


def asked(data: Path, broker: str, *requests: tuple[str, str, Any], user: str = "guest") -> list[Asked]:
    async def run() -> list[Asked]:
        users = (*default_users(), User("watcher", frozenset({"monitoring"}), password="guest"))
        folders = NodeFolders(data, data / "reports", data / "ledger.watch", (broker,))
        server = HttpServer(
            StandIn(),
            Logins(Authenticator(users)),
            clock=lambda: 1.0,
            tick_soon=lambda: None,
            folders=folders,
        )
        at = await server.start(HostPort("127.0.0.1", 0))
        found: list[Asked] = []
        login = {"Authorization": f"Basic {b64encode(f'{user}:guest'.encode()).decode()}"}
        try:
            async with aiohttp.ClientSession(headers=login) as session:
                for method, path, body in requests:
                    url = URL(f"http://{at}/api/{path}", encoded=True)
                    more = {"skip_auto_headers": ["Content-Type"]} if body is None else {"json": body}
                    async with session.request(method, url, **more) as answer:
                        is_json = answer.content_type == "application/json"
                        found.append((answer.status, await answer.json() if is_json else await answer.text()))
        finally:
            await server.close()
        return found

    return asyncio.run(run())


def test_messages_in_quarantine_are_shown_and_republished_once(data: Path, broker: BrokerThread) -> None:
    with amqp.Connection(f"{broker.address}") as connection:
        connection.channel().queue_declare("orders", durable=True, auto_delete=False)
    again = ("POST", "quarantine/republish", {"queue": ORDERS.hex()})
    before, shown, first, second, after = asked(
        data, str(broker.address), ("GET", "quarantine", None), ("GET", f"quarantine/{ORDERS.hex()}", None),
        again, again, ("GET", "quarantine", None),
    )  # fmt: skip
    assert [(line["name"], line["messages"], line["republished"]) for line in before[1]["queues"]] == [
        ("orders", 3, 0)
    ]
    assert [message["body"] for message in shown[1]["messages"]] == ["1", "2", "3"]
    assert (first[0], first[1]["republished"], second[1]["republished"], second[1]["before"]) == (
        200,
        3,
        0,
        3,
    )
    assert after[1]["queues"][0]["republished"] == 3
    with amqp.Connection(f"{broker.address}") as connection:
        channel = connection.channel()
        assert [channel.basic_get("orders").body for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_republish_that_the_broker_refuses_says_why(data: Path, broker: BrokerThread) -> None:
    [(status, said)] = asked(
        data, str(broker.address), ("POST", "quarantine/republish", {"queue": ORDERS.hex(), "to": "none"})
    )
    assert (status, said["republished"], said["reason"]) == (409, 0, "queue 'none' does not exist")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400), ({"queue": 7}, 400), ({"queue": "ab", "to": ""}, 400), ([], 400),
        ({"queue": "ab", "to": "x" * 256}, 400), ({"queue": "ab", "in_doubt": "yes"}, 400),
        ({"queue": "ab", "all": True}, 400), ({"queue": HTML}, 404),
    ],
)  # fmt: skip
def test_a_wrong_republish_is_refused_in_one_line(data: Path, body: Any, status: int) -> None:
    [(found, said)] = asked(data, "127.0.0.1:1", ("POST", "quarantine/republish", body))
    assert found == status
    assert "\n" not in said["reason"] and said["code"]


def test_who_watches_sees_no_messages_and_publishes_none(data: Path) -> None:
    answers = asked(
        data, "127.0.0.1:1", ("GET", "quarantine", None), ("GET", f"quarantine/{ORDERS.hex()}", None),
        ("POST", "quarantine/republish", {"queue": ORDERS.hex()}), ("GET", "watch", None), user="watcher",
    )  # fmt: skip
    assert [status for status, _ in answers] == [200, 403, 403, 200]


def test_reports_are_listed_with_their_verdicts_and_no_name_leaves_the_folder(data: Path) -> None:
    outside = [
        "..%2fsecret.html",
        "%2e%2e%2fsecret.html",
        ".hidden.html",
        "night.json",
        "none.html",
        "night.html%00",
    ]
    found, whole, *others = asked(
        data, "127.0.0.1:1", ("GET", "reports", None), ("GET", "reports/night.html", None),
        *(("GET", f"reports/{name}", None) for name in outside),
    )  # fmt: skip
    assert {line["name"]: line["verdict"] for line in found[1]["reports"]} == {
        "night.html": "proven",
        "torn.html": None,
    }
    assert whole == (200, "<p>all is well</p>")
    assert [status for status, _ in others] == [404] * len(outside)


def test_the_alarms_of_a_watch_come_without_a_torn_line(data: Path) -> None:
    [(status, found)] = asked(data, "127.0.0.1:1", ("GET", "watch", None))
    assert (status, found["is_there"], found["alarms"]) == (200, True, [ALARM])

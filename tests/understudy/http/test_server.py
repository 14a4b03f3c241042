"""The HTTP door: who may do what, and what the codes say. A stand-in node; real aiohttp on a real socket."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker.security.authenticator import Authenticator
from broker.security.identity import User, default_users
from broker.security.logins import Logins
from broker.security.tls import Tls
from tests.broker.stored import hashed
from tests.tls import Authority
from understudy.http.metrics.node_collector import NodeCollector
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort


class StandIn:
    """A node that is whatever it is told to be, and remembers what it was asked."""

    def __init__(self) -> None:
        self.state = "active"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] = {"ok": True, "reason": "serving"}
        self.ticks = 0
        self.more: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        return {
            "name": "left", "node_id": "ab", "status": self.state, "epoch": 65537, "link": "up",
            "promotable": False,
            "members": [{"name": "left", "in_sync": True}, {"name": "right", "in_sync": False}],
            "reason": "all is well", "queues": 3, **self.more,
        }  # fmt: skip

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None:
        self.asked.append((command, args))
        reply(self.answer)

    def tick(self) -> None:
        self.ticks += 1


Asked = list[tuple[int, str]]
STORED = {
    "alice": User("alice", frozenset({"administrator"}), password_hash=hashed("word")),
    "bob": User("bob", password_hash=hashed("word")),
}  # fmt: skip


def visit(node: StandIn, *requests: tuple[str, str, dict[str, Any]], amqp: HostPort | None = None) -> Asked:
    """Status and text of each (method, path, aiohttp's arguments)."""

    async def run() -> Asked:
        users = (*default_users(), User("joe", password="joe"))
        login = Logins(Authenticator(users, stored=STORED.get))
        server = HttpServer(node, login, clock=lambda: 1.0, tick_soon=node.tick, amqp=amqp)
        at = await server.start(HostPort("127.0.0.1", 0))
        found: Asked = []
        try:
            async with aiohttp.ClientSession() as session:
                for method, path, arguments in requests:
                    bare = {} if "json" in arguments else {"skip_auto_headers": ["Content-Type"]}
                    async with session.request(method, f"http://{at}{path}", **bare, **arguments) as answer:
                        found.append((answer.status, await answer.text()))
        finally:
            await server.close()
        return found

    return asyncio.run(run())


def login(name: str, password: str) -> dict[str, Any]:
    encoded = b64encode(f"{name}:{password}".encode()).decode()
    return {"headers": {"Authorization": f"Basic {encoded}"}}


GUEST = login("guest", "guest")
JSON = {"Content-Type": "application/json"}
AS_JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("state", "live", "ready", "primary"),
    [
        ("standalone", 200, 200, 200),
        ("joining", 200, 503, 503),
        ("catch-up", 200, 503, 503),
        ("ready", 200, 200, 503),
        ("recovering", 200, 200, 200),
        ("active", 200, 200, 200),
    ],
)
def test_health_follows_the_status(state: str, live: int, ready: int, primary: int) -> None:
    node = StandIn()
    node.state, node.more = state, {"promotable": state == "ready"}
    answers = visit(node, *(("GET", f"/health/{what}", {}) for what in ("live", "ready", "primary")))
    assert [code for code, _ in answers] == [live, ready, primary]


def test_a_ready_node_that_may_not_be_promoted_is_not_healthy() -> None:
    """Its link is lost, and its primary may still serve."""
    node = StandIn()
    node.state = "ready"
    assert visit(node, ("GET", "/health/ready", {})) == [(503, "ready\n")]


def test_metrics_and_status_are_open_to_read() -> None:
    (code, text), (status_code, status) = visit(
        StandIn(), ("GET", "/metrics", {}), ("GET", "/api/status", {})
    )
    assert (code, status_code) == (200, 200)
    assert 'understudy_status{status="active"} 1.0' in text
    assert "understudy_epoch 65537.0" in text
    assert "understudy_members_in_sync 1.0" in text
    assert "process_cpu_seconds_total" in text
    assert '"reason": "all is well"' in status


def test_commands_ask_for_post_and_an_administrator() -> None:
    node = StandIn()
    codes = [
        code
        for code, _ in visit(
            node,
            ("GET", "/api/promote", GUEST),
            ("POST", "/api/promote", {}),
            ("POST", "/api/promote", login("guest", "wrong")),
            ("POST", "/api/promote", {"headers": {"Authorization": "Basic !!!"}}),
            ("POST", "/api/promote", {"headers": {"Authorization": "Basic \xe9"}}),
            ("POST", "/api/promote", {"data": b"no JSON"}),
            ("POST", "/api/demote", login("joe", "joe")),
            ("POST", "/api/demote", {"data": b"no JSON"}),
            ("GET", "/api/switchover", GUEST),
            ("POST", "/api/switchover", {"json": {"to": "b"}}),
        )
    ]
    assert codes == [405, 401, 401, 401, 401, 401, 403, 401, 405, 401]
    assert node.asked == []


def test_an_administrator_promotes_demotes_and_switches_over() -> None:
    node = StandIn()
    answers = visit(
        node,
        ("POST", "/api/promote", GUEST),
        ("POST", "/api/promote", {**GUEST, "json": {"force_lossy": True}}),
        ("POST", "/api/demote", GUEST),
        ("POST", "/api/switchover", GUEST),
        ("POST", "/api/switchover", {**GUEST, "json": {"to": "b"}}),
    )
    assert [code for code, _ in answers] == [200] * 5
    assert node.asked == [
        ("promote", {"force_lossy": False, "operator": True}),
        ("promote", {"force_lossy": True, "operator": True}),
        ("demote", {"operator": True}),
        ("switchover", {"to": None, "operator": True}),
        ("switchover", {"to": "b", "operator": True}),
    ]
    assert node.ticks == 5


def test_a_stored_administrator_is_one() -> None:
    node = StandIn()
    codes = [
        code
        for code, _ in visit(
            node,
            ("POST", "/api/promote", login("alice", "word")),
            ("POST", "/api/promote", login("alice", "other")),
            ("POST", "/api/promote", login("bob", "word")),
        )
    ]
    assert codes == [200, 401, 403]


def test_a_refusal_is_a_409_with_the_reason() -> None:
    node = StandIn()
    node.answer = {"ok": False, "reason": "not promotable: catching up"}
    ((code, text),) = visit(node, ("POST", "/api/promote", GUEST))
    assert code == 409
    assert "catching up" in text


@pytest.mark.parametrize(
    "body", [b"[", b"[]", b"3", b'{"force_lossy": 1}', b'{"to": 1}', b'{"colour": "red"}', b"\xff\xfe"]
)
def test_a_wrong_body_is_a_400(body: bytes) -> None:
    node = StandIn()
    sent = {"headers": GUEST["headers"] | JSON, "data": body}
    answers = visit(
        node,
        ("POST", "/api/promote", sent),
        ("POST", "/api/demote", sent),
        ("POST", "/api/switchover", sent),
    )
    assert [code for code, _ in answers] == [400, 400, 400]
    assert node.asked == []


def test_each_metric_is_in_the_table_and_each_of_the_table_is_told() -> None:
    ((_, text),) = visit(StandIn(), ("GET", "/metrics", {}))
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE understudy_")}
    table = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    assert told == set(re.findall(r"^\| `(understudy_\w+)` \|", table, re.MULTILINE))


def test_metrics_tell_the_lag_of_each_backup_and_what_happened() -> None:
    node = StandIn()
    node.more = {
        "members": [
            {"name": "a", "in_sync": True, "connected": True, "lag": 0, "self": True},
            {"name": "b", "in_sync": True, "connected": True, "lag": 3, "lag_bytes": 4096, "queues_left": 0},
            {"name": "c", "in_sync": False, "connected": False},
        ],
        "events": {"excluded": 2}, "quarantined": 5, "withheld": True,
        "dequeues": {"waiting": 7, "longest_lag": 0.0125, "left": {"expired": 3}},
        "ledger": {"path": "p", "lost": 4, "failures": 2, "failing": False, "last_write": 1.5},
        "memory": {"messages": 5, "unfinished": 6},
    }  # fmt: skip
    ((_, text),) = visit(node, ("GET", "/metrics", {}))
    for line in (
        'understudy_backup_lag_batches{member="b"} 3.0',
        'understudy_backup_lag_bytes{member="b"} 4096.0',
        'understudy_member_connected{member="c"} 0.0',
        'understudy_events_total{event="excluded"} 2.0',
        "understudy_ledger_lost_records_total 4.0",
        "understudy_ledger_write_failures_total 2.0",
        "understudy_ledger_last_write_timestamp_seconds 1.5",
        'understudy_events_total{event="promoted"} 0.0',
        "understudy_quarantined_messages_total 5.0",
        "understudy_members_in_sync 2.0",
        "understudy_dequeues_waiting 7.0",
        'understudy_messages_left_total{reason="expired"} 3.0',
        "understudy_dequeue_lag_seconds_max 0.0125",
        "understudy_withheld 1.0",
        'understudy_memory_bytes{part="unfinished"} 6.0',
        "understudy_authority_ok 1.0",
    ):
        assert line in text.splitlines()
    assert 'member="a"' not in text


def test_agents_of_one_exchange_in_two_virtual_hosts_are_two_series() -> None:
    """Prometheus refuses a page that has one series twice."""
    node = StandIn()
    agent = {
        "exchange": "x", "upstream": "hub", "state": "running", "interest": 7, "taken": 5, "given": 4,
        "waiting": 3, "doubles": 0, "looped": 1, "spoilt": 0, "refused": 2, "unrouted": 0,
    }  # fmt: skip
    node.more["federation"] = {"agents": [agent | {"vhost": name} for name in ("/", "shop")]}
    ((_, text),) = visit(node, ("GET", "/metrics", {}))
    lines = [line for line in text.splitlines() if line.startswith("understudy_federation_")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines) == 2 * 10
    for start, of_it in (
        ("running{", "} 1.0"), ("interest_bindings{", "} 7.0"), ("messages_given_total{", "} 4.0"),
        ("messages_left_out_total{", 'reason="refused",upstream="hub",vhost="shop"} 2.0'),
    ):  # fmt: skip
        found = [line for line in lines if line.startswith(f"understudy_federation_{start}")]
        assert any('vhost="shop"' in line and line.endswith(of_it) for line in found)


def test_an_authority_that_commits_nothing_is_in_the_metrics() -> None:
    node = StandIn()
    node.more["authority"] = {"kind": "pacemaker", "ok": False, "code": "pacemaker-two-votes", "reason": "b"}
    ((_, text),) = visit(node, ("GET", "/metrics", {}))
    assert "understudy_authority_ok 0.0" in text.splitlines()


def test_metrics_tell_of_the_certificate_in_use_and_of_one_that_is_refused(tmp_path: Path) -> None:
    def told(tls: Tls | None) -> list[float]:
        collected = NodeCollector(StandIn().status, tls).collect()
        return [sample.value for each in collected for sample in each.samples if "_tls_" in sample.name]

    authority = Authority(tmp_path)
    tls = authority.node("node")
    assert told(None) == [] and told(tls) == [tls.expires_at, 0.0]
    authority.signed("node", days=-1)
    assert not tls.read(time.time()) and told(tls) == [tls.expires_at, 1.0]
    authority.signed("node", days=90)
    assert tls.read(time.time()) and told(tls) == [tls.expires_at, 0.0]


@pytest.mark.parametrize("path", ["/api/promote", "/api/definitions"])
def test_a_body_that_is_not_what_its_headers_say_is_a_400(path: str) -> None:
    headers = GUEST["headers"] | JSON | {"Content-Encoding": "gzip"}
    request = "POST", path, {"data": b"{}", "headers": headers}
    [(status, text)] = visit(StandIn(), request, amqp=HostPort("127.0.0.1", 1))
    assert status == 400
    assert "the body does not match its headers" in text


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /api/promote HTTP/1.1\r\nHost: localhost\r\nContent-Length: -3\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /health/live HTTP/7.7\r\n\r\n",
        b"\x16\x03\x01\x00\xa5 hello\r\n\r\n",
    ],
)
def test_a_request_that_is_none_is_a_400_and_at_most_one_line_in_the_log(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> bytes:
        server = HttpServer(
            StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None
        )
        reader, writer = await asyncio.open_connection(*await server.start(HostPort("127.0.0.1", 0)))
        try:
            writer.write(request_)
            return await reader.readline()
        finally:
            writer.close()
            await server.close()

    with caplog.at_level("INFO"):
        assert asyncio.run(scene()).split()[1] == b"400"
    shown = [logging.Formatter().format(record) for record in caplog.records]
    assert len(shown) <= 1
    assert not any("\n" in text for text in shown)


def test_a_request_that_is_broken_off_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        server = HttpServer(
            StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None
        )
        reader, writer = await asyncio.open_connection(*await server.start(HostPort("127.0.0.1", 0)))
        headers = f"Host: localhost\r\n{AS_JSON}\r\nExpect: 100-continue\r\n"
        headers += f"Authorization: {GUEST['headers']['Authorization']}"
        writer.write(f"POST /api/promote HTTP/1.1\r\nContent-Length: 9\r\n{headers}\r\n\r\n".encode())
        assert b"100" in await reader.readline()  # it waits for the body
        writer.close()
        await server.close()

    with caplog.at_level("INFO"):
        asyncio.run(scene())
    shown = [logging.Formatter().format(record) for record in caplog.records]
    assert len(shown) == 1
    assert "\n" not in shown[0]


def test_an_open_connection_does_not_hold_up_the_end() -> None:
    async def scene() -> float:
        server = HttpServer(
            StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None
        )
        at = await server.start(HostPort("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(*at)
        headers = "\r\n".join(f"{name}: {value}" for name, value in GUEST["headers"].items())
        head = f"POST /api/promote HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{AS_JSON}"
        head += "\r\nExpect: 100-continue"
        writer.write(f"{head}\r\n{headers}\r\n\r\n".encode())
        assert b"100" in await reader.readline()  # it waits for the body
        began = time.monotonic()
        await server.close()
        writer.close()
        return time.monotonic() - began

    assert asyncio.run(scene()) < 20

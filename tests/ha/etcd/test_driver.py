"""The daemon's side, over real HTTP, with an etcd in memory behind it: what is asked is answered, whatever
becomes of an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from aiohttp import web

from ha.adapter.authority_port import AuthorityRequest
from ha.core.record.in_sync_record import Incarnation, first_record
from ha.etcd import codes
from ha.etcd import driver as driver_module
from ha.etcd.driver import MOST_WAITING, Etcd, EtcdDriver
from ha.etcd.register import LEASE_LOST, Call, Keys
from tests.ha.asking import DEADLINE, Asking
from tests.ha.etcd.virtual import VirtualEtcd
from understudy.shared.codes import Code

RECORD = first_record("pair", 1, Incarnation("a", 1), "a").as_json()
FIRST = AuthorityRequest(1, "swap", None, RECORD)


class Gateway:
    """An endpoint. `odd`: what it answers instead, (status, text), to calls whose path ends with `odd_end`;
    `hangs`: it does not. `closing`: it closes a connection that has asked, once this is set."""

    def __init__(self, etcd: VirtualEtcd) -> None:
        self.etcd = etcd
        self.odd: tuple[int, str] | None = None
        self.odd_end = ""
        self.hangs = False
        self.closing: asyncio.Event | None = None
        self.called = asyncio.Event()
        self.calls = 0
        self.tokens: list[str] = []
        """Those that count, if it wants one; the last is what a login gives."""
        self.logins = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        self.called.set()
        if self.hangs:
            await asyncio.sleep(DEADLINE)
        if self.closing is not None:
            await self.closing.wait()
            assert request.transport is not None
            request.transport.close()
        if self.odd is not None and request.path.endswith(self.odd_end):
            return web.Response(status=self.odd[0], text=self.odd[1])
        if request.path.endswith("/authenticate"):
            self.logins += 1
            await asyncio.sleep(0.05)  # as a password takes
            return web.json_response({"token": self.tokens[-1]})
        if self.tokens and request.headers.get("Authorization") not in self.tokens:
            fault = "invalid auth token" if "Authorization" in request.headers else "user name is empty"
            code = 16 if "Authorization" in request.headers else 3
            return web.json_response({"error": fault, "message": fault, "code": code}, status=400)
        call = Call(request.path, await request.json())
        if self.etcd.refuses(call):
            fault = "etcdserver: mvcc: database space exceeded"
            return web.json_response({"error": fault, "message": fault, "code": 8}, status=429)
        answer = self.etcd.answer(call)
        if LEASE_LOST in answer:
            fault = "etcdserver: requested lease not found"
            return web.json_response({"error": fault, "message": fault, "code": 5}, status=404)
        whole = web.json_response(answer)
        pieces = web.StreamResponse(headers={"Content-Type": "application/json"})
        await pieces.prepare(request)
        assert isinstance(whole.body, bytes)
        for at in range(0, len(whole.body), 40):
            await pieces.write(whole.body[at : at + 40])
            await asyncio.sleep(0)
        await pieces.write_eof()
        return pieces


@asynccontextmanager
async def running(count: int = 1, username: str = "") -> AsyncIterator[tuple[Asking, EtcdDriver, Any]]:
    """A driver and its endpoints, which are members of one etcd."""
    etcd, gateways, runners = VirtualEtcd(), [], []
    for _ in range(count):
        gateway, app = Gateway(etcd), web.Application()
        app.router.add_post("/{path:.*}", gateway.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        gateways.append(gateway)
        runners.append(runner)
    try:
        async with driving(*(gateway.url for gateway in gateways), username=username) as (node, driver):
            yield node, driver, gateways
    finally:
        for runner in runners:
            await runner.cleanup()


@asynccontextmanager
async def driving(*urls: str, username: str = "") -> AsyncIterator[tuple[Asking, EtcdDriver]]:
    node, loop = Asking(), asyncio.get_running_loop()
    where = Etcd(urls, username, "secret" if username else "")
    driver = EtcdDriver(node, where, Keys("/pair", "a 1", 5), loop.time, lambda: None)
    try:
        yield node, driver
    finally:
        await driver.close()


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(whole())


def test_the_lease_goes_at_a_planned_end() -> None:
    async def scenario() -> None:
        async with running() as (node, driver, gateways):
            assert await node.ask(driver, FIRST, AuthorityRequest(2, "read", renews=True)) == ["done", "done"]
            assert node.answers[2][1] == RECORD
            etcd = gateways[0].etcd
            assert len(etcd.leases) == 1
        assert not etcd.leases

    play(scenario)


def test_an_endpoint_that_fails_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ANSWER", 0.3)

    async def scenario() -> None:
        async with running(3) as (node, driver, (first, second, third)):
            first.hangs = True
            second.odd = (503, '{"error": "etcdserver: no leader", "message": "no leader", "code": 14}')
            assert await node.ask(driver, FIRST) == ["done"]
            asked = first.calls, second.calls
            assert await node.ask(driver, AuthorityRequest(2, "read")) == ["done"]
            assert (first.calls, second.calls) == asked and third.calls > 1, "it stays with the third"

    play(scenario)


def test_requests_do_not_pile_up_while_etcd_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ANSWER", 0.3)

    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            assert await node.ask(driver, FIRST) == ["done"]
            gateway.hangs, gateway.calls = True, 0
            renewals = [AuthorityRequest(number, "read", renews=True) for number in range(2, 42)]
            assert set(await node.ask(driver, *renewals)) == {"unknown"}
            assert gateway.calls <= MOST_WAITING
            assert node.reasons[41] == "etcd has not answered earlier requests"
            gateway.hangs = False
            assert await node.ask(driver, AuthorityRequest(99, "read", renews=True)) == ["done"]

    play(scenario)


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ((200, "<html>"), codes.OTHER_VERSION),
        ((200, "[]"), codes.OTHER_VERSION),
        ((404, "Not Found"), codes.OTHER_VERSION),
        ((200, "{}"), codes.FAULT),
        ((500, '{"error": "x", "message": "a\\nb", "code": 2}'), codes.FAULT),
        ((500, '{"error": "x", "code": "many"}'), codes.FAULT),
        (
            (
                200,
                '{"responses": [{"response_range": {"kvs": [{"value": "", "mod_revision": Infinity}]}}, {}]}',
            ),
            codes.FAULT,
        ),
        ((400, '{"error": "permission denied", "code": 7}'), codes.REFUSED),
        ((400, '{"error": "mvcc: database space exceeded", "code": 8}'), codes.NO_SPACE),
        ((503, '{"error": "request timed out", "code": 14}'), codes.NO_QUORUM),
        ((401, '{"error": "invalid auth token", "code": 16}'), codes.REFUSED),
        ((401, '{"message": "invalid auth token", "code": 16, "details": []}'), codes.REFUSED),
        (
            (200, '{"error": {"grpc_code": 7, "http_code": 403, "message": "permission denied"}}'),
            codes.REFUSED,
        ),
        ((200, '{"error": {"code": 14, "message": "no leader"}}'), codes.NO_QUORUM),
        ((200, '{"error": {"grpc_code": [], "message": {}}}'), codes.FAULT),
    ],
)
def test_an_odd_answer_is_unknown_and_has_a_name(odd: tuple[int, str], code: Any) -> None:
    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            gateway.odd = odd
            assert await node.ask(driver, FIRST) == ["unknown"]
            ok, said = node.stands[-1]
            assert (ok, said.code) == (False, code.name) and "\n" not in str(said)
            gateway.odd = None
            assert await node.ask(driver, AuthorityRequest(2, "swap", None, RECORD)) == ["done"]
            assert node.stands[-1][0]

    play(scenario)


def test_a_full_etcd_keeps_the_lease_and_lets_nobody_take_over() -> None:
    """A renewal succeeds, and is not taken for a sign that etcd takes writes again."""
    renewal, look = AuthorityRequest(2, "read", renews=True), AuthorityRequest(3, "read")

    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            assert await node.ask(driver, FIRST, renewal) == ["done", "done"]
            assert node.stands[-1][0], "it is not known yet"
            gateway.etcd.full = True
            assert await node.ask(driver, look) == ["unknown"]
            assert "database space exceeded" in node.reasons[3]
            for number in (4, 5):
                assert await node.ask(driver, AuthorityRequest(number, "read", renews=True)) == ["done"]
                assert (node.stands[-1][0], node.stands[-1][1].code) == (False, codes.NO_SPACE.name)
            other = AuthorityRequest(6, "swap", None, RECORD)
            assert await node.ask(driver, other) == ["conflict"] and not node.stands[-1][0]
            gateway.etcd.full = False
            assert await node.ask(driver, AuthorityRequest(7, "read")) == ["done"] and node.stands[-1][0]

    play(scenario)


def test_a_full_etcd_is_noticed_while_the_primary_only_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "PROBE", 0.1)

    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            assert await node.ask(driver, FIRST) == ["done"]
            for full in (True, False):
                gateway.etcd.full = full
                number = 10 if full else 10_000
                async with asyncio.timeout(DEADLINE):
                    while node.stands[-1][0] is full:
                        number += 1
                        await node.ask(driver, AuthorityRequest(number, "read", renews=True))

    play(scenario)


@pytest.mark.parametrize(
    ("first", "code", "fault"),
    [
        (b"AMQP\0\0\x09\x01", codes.OTHER_VERSION, "it does not answer in HTTP"),
        (b"\x15\x03\x03\0\2\2\x46", codes.OTHER_VERSION, "it does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", codes.OTHER_VERSION, "HTTP status 200, and no JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-", codes.UNREACHABLE, "it closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", codes.UNREACHABLE, "its answer breaks off"),
        (b"", codes.UNREACHABLE, "it closed the connection"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_of_something_else_is_named_once_in_one_line(
    first: bytes, code: Code, fault: str, scheme: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(first)
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, driving(f"{scheme}://{host}") as (node, driver):
            assert await node.ask(driver, FIRST) == ["unknown"]
            said = node.stands[-1][1]
            assert "\n" not in said.sentence and said.sentence.count(host) == 1
            if scheme == "http":
                assert said.code == code.name and said.sentence.endswith(f": {fault}")
            else:
                assert said.code == codes.UNREACHABLE.name and "operation" not in said.sentence

    play(scenario)


def test_each_endpoint_is_named_once_with_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by calls side by side, of which one goes on while another waits."""
    hosts = "one:2379", "two:2379", "three:2379"
    several = (
        "Multiple exceptions: [Errno 111] Connect call failed ('{}', 2379), [Errno 101] Connect call failed"
    )

    class Failing:
        def __init__(self, url: str) -> None:
            self.url = url

        async def __aenter__(self) -> None:
            for _ in range(rng.randrange(5)):
                await asyncio.sleep(0)
            raise aiohttp.ClientConnectorError(MagicMock(), OSError(several.format(self.url)))

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(aiohttp.ClientSession, "post", lambda self, url, **more: Failing(url))

    async def scenario() -> None:
        async with driving(*(f"http://{host}" for host in hosts)) as (node, driver):
            reads = [AuthorityRequest(number, "read") for number in range(1, 21)]
            await node.ask(driver, *reads)
            for _, said in node.stands:
                told = said.sentence.split("; ")
                assert sorted(told) == sorted(
                    f"{host}: connection refused, network is unreachable" for host in hosts
                )

    rng = Random(1)
    play(scenario)


@pytest.mark.parametrize(
    ("answer", "leases"),
    [
        ('{"error": {"grpc_code": 5, "http_code": 404, "message": "requested lease not found"}}', 2),
        ('{"error": {"code": 5, "message": "etcdserver: requested lease not found"}}\n', 2),
        ('{"result": {"ID": "1", "TTL": "5"}}\n{"error": {"grpc_code": 14, "message": "no leader"}}\n', 1),
    ],
)
def test_the_stream_of_a_renewal_may_end_with_an_error(answer: str, leases: int) -> None:
    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            assert await node.ask(driver, FIRST) == ["done"]
            gateway.odd, gateway.odd_end = (200, answer), "/keepalive"
            assert await node.ask(driver, AuthorityRequest(2, "read", renews=True)) == ["done"]
            assert len(gateway.etcd.leases) == leases

    play(scenario)


def test_a_late_answer_does_not_change_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ANSWER", 0.3)

    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            gateway.hangs = True
            first = asyncio.create_task(node.ask(driver, AuthorityRequest(1, "read")))
            while not gateway.calls:
                await asyncio.sleep(0)
            gateway.hangs = False
            assert await node.ask(driver, AuthorityRequest(2, "read")) == ["done"]
            assert await first == ["unknown"]
            assert [ok for ok, _ in node.stands] == [True]

    play(scenario)


def test_after_its_end_it_asks_and_answers_nothing() -> None:
    async def scenario() -> None:
        async with running() as (node, driver, (gateway,)):
            assert await node.ask(driver, FIRST) == ["done"]
            await driver.close()
            calls, told = gateway.calls, len(node.stands)
            node.wanted.append(AuthorityRequest(2, "read"))
            driver.carry()
            driver.start()
            await driver.close()
            for _ in range(20):
                await asyncio.sleep(0)
            assert (gateway.calls, len(node.stands), list(node.answers)) == (calls, told, [1])
            assert node.wanted, "it does not take the request"

    play(scenario)


def test_its_connections_close_whatever_the_last_call_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(keys: Keys) -> None:
        raise RuntimeError("of a test")

    async def scenario() -> None:
        async with running() as (node, driver, _):
            assert await node.ask(driver, FIRST) == ["done"]
            monkeypatch.setattr(driver_module, "release", release)
            with pytest.raises(RuntimeError, match="of a test"):
                await driver.close()
            assert driver._http.closed

    play(scenario)


def test_a_refused_login_is_not_tried_again_and_again() -> None:
    async def scenario() -> None:
        async with running(username="orders") as (node, driver, (gateway,)):
            gateway.odd = (400, '{"error": "authentication failed, invalid user ID or password", "code": 3}')
            reads = [AuthorityRequest(number, "read") for number in range(1, 21)]
            for each in reads:
                assert await node.ask(driver, each) == ["unknown"]
            assert gateway.calls <= 2 and node.stands[-1][1].code == codes.REFUSED.name

    play(scenario)


def test_calls_side_by_side_share_a_login() -> None:
    async def scenario() -> None:
        async with running(username="orders") as (node, driver, (gateway,)):
            for count, token in enumerate(("one", "another"), 1):  # the first one has expired
                gateway.tokens = [token]
                reads = [AuthorityRequest(10 * count + number, "read") for number in range(10)]
                assert set(await node.ask(driver, *reads)) == {"done"}
                assert gateway.logins == count

    play(scenario)


def test_calls_side_by_side_share_the_fault_of_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them wait when a gateway has the first call of a login. It fails only then."""
    monkeypatch.setattr(driver_module, "ANSWER", DEADLINE)

    async def scenario() -> None:
        async with running(2, username="orders") as (node, driver, gateways):
            for gateway in gateways:
                gateway.closing, gateway.tokens = asyncio.Event(), ["one"]
            reads = [AuthorityRequest(number, "read") for number in range(10)]
            asking = asyncio.create_task(node.ask(driver, *reads))
            for gateway in gateways:
                await gateway.called.wait()
                gateway.closing.set()
            assert set(await asking) == {"unknown"}
            assert [gateway.calls for gateway in gateways] == [1, 1]
            for _, said in node.stands:
                assert said.sentence.count("it closed the connection") == 2
            gateways[1].closing = None
            assert await node.ask(driver, AuthorityRequest(99, "read")) == ["done"]

    play(scenario)

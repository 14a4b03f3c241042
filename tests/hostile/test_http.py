"""HTTP for those who should not be there: pages in an operator's browser, and whoever takes up its places."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.understudy.http.test_server import GUEST, StandIn
from tests.understudy.serving import serving
from understudy import codes
from understudy.config.load import load
from understudy.config.settings import ConfigError
from understudy.http.guard import Guard, names_of
from understudy.http.places import Limits
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

LOGIN = GUEST["headers"]["Authorization"]
MUTATING = ["/api/promote", "/api/demote", "/api/switchover", "/api/definitions", "/no/such"]
READING = ["/metrics", "/health/live", "/health/ready", "/health/primary", "/api/status", "/api/definitions"]
Headers = list[tuple[str, str]]


def ask(
    method: str, path: str, headers: Headers, body: bytes | None = None, node: StandIn | None = None
) -> tuple[int, str]:
    """Status and text, logged in as an administrator. `AT` in a header is where the node listens."""

    async def run() -> tuple[int, str]:
        server = HttpServer(
            node or StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0,
            tick_soon=lambda: None, hosts=("node.example",),
        )  # fmt: skip
        at = await server.start(HostPort("127.0.0.1", 0))
        sent = CIMultiDict([("Authorization", LOGIN)])
        for name, value in headers:
            sent.add(name, value.replace("AT", str(at)))
        try:
            async with (
                aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session,
                session.request(method, f"http://{at}{path}", headers=sent, data=body) as answer,
            ):
                return answer.status, await answer.text()
        finally:
            await server.close()

    return asyncio.run(run())


JSON = [("Content-Type", "application/json")]


# -- the form of a request


@pytest.mark.parametrize("path", MUTATING[:4])
@pytest.mark.parametrize(
    "kind",
    [
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json",
        "text/json", "application/json-seq", None,
    ],
)  # fmt: skip
def test_a_body_that_is_not_called_json_is_a_415(path: str, kind: str | None) -> None:
    node = StandIn()
    headers = [] if kind is None else [("Content-Type", kind)]
    status, text = ask("POST", path, headers, b"{}", node)
    assert status == 415 and json.loads(text)["code"] == codes.HTTP_NOT_JSON.name
    assert node.asked == []


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_a_body_that_is_json_is_read(kind: str) -> None:
    node = StandIn()
    assert ask("POST", "/api/promote", [("Content-Type", kind)], b'{"force_lossy": true}', node)[0] == 200
    assert node.asked == [("promote", {"force_lossy": True, "operator": True})]


def test_no_body_need_not_be_called_anything() -> None:
    """`curl -X POST`."""
    node = StandIn()
    assert ask("POST", "/api/demote", [], None, node)[0] == 200
    assert ask("POST", "/api/demote", [("Content-Type", "text/plain")], None, node)[0] == 415


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/api/promote", b'{"force_lossy": false, "force_lossy": true}', "force_lossy"),
        ("/api/promote", b'{"force_lossy": true, "force\\u005flossy": true}', "force_lossy"),
        ("/api/demote", b'{"x": {"a": 1, "a": 2}}', "a"),
        ("/api/switchover", b'{"to": "a", "to": "b"}', "to"),
        ("/api/switchover", b'{"\\n": "a", "\\n": "b"}', "\\n"),
    ],
)
def test_a_key_that_is_there_twice_is_a_400(path: str, body: bytes, key: str) -> None:
    node = StandIn()
    status, text = ask("POST", path, JSON, body, node)
    assert (status, json.loads(text)["reason"]) == (400, f"the body has '{key}' twice")
    assert node.asked == []


@pytest.mark.parametrize("option", ["dry_run", "strict", "quorum_as_classic", "vhost"])
def test_an_option_that_is_there_twice_is_a_400(option: str) -> None:
    status, text = ask("POST", f"/api/definitions?{option}=true&{option}=false", JSON, b"{}")
    assert (status, json.loads(text)["reason"]) == (400, f"{option} is given twice")


# -- who sends it


@pytest.mark.parametrize("path", MUTATING)
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:15672", "",
        "http://AT.evil.example", "file://", "http://[", "http://AT:", "http://AT:x",
    ],
)  # fmt: skip
def test_a_page_of_another_origin_changes_nothing(path: str, origin: str) -> None:
    node = StandIn()
    status, text = ask("POST", path, [("Origin", origin), *JSON], b"{}", node)
    assert (status, node.asked) == (403, [])
    assert "broker.http_hosts" in json.loads(text)["reason"] and "\n" not in text.strip()


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", ""])
def test_a_page_that_the_browser_calls_another_site_changes_nothing(site: str) -> None:
    node = StandIn()
    status, text = ask("POST", "/api/promote", [("Sec-Fetch-Site", site), *JSON], b"{}", node)
    assert (status, node.asked) == (403, []) and "another site" in text


def test_two_origins_are_one_too_many() -> None:
    headers = [("Origin", "http://AT"), ("Origin", "http://evil.example"), *JSON]
    assert ask("POST", "/api/promote", headers, b"{}")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "http://AT")], [("Sec-Fetch-Site", "same-origin")], [("Sec-Fetch-Site", "none")],
        [("Host", "node.example"), ("Origin", "https://node.example")],
        [("Host", "node.example:8443"), ("Origin", "https://NODE.example.:8443")],
    ],
)  # fmt: skip
def test_the_nodes_own_origin_is_none_of_those(headers: Headers) -> None:
    assert ask("POST", "/api/promote", [*headers, *JSON], b"{}")[0] == 200


@pytest.mark.parametrize("path", READING[:-1])
def test_reading_is_for_every_page_that_the_browser_does_not_hide_it_from(path: str) -> None:
    """There is no CORS here: a foreign page gets no answer to see."""
    headers = [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")]
    assert ask("GET", path, headers)[0] in (200, 503)


# -- by which name


@pytest.mark.parametrize("path", [*READING, "/no/such"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:15672", "127.0.0.1.evil.example", "localhost.evil.example",
        "evil@127.0.0.1", "2130706433", "0x7f.1", "[::1", "[]", ":15672", "localhost/", "localhost?x", "a b",
        "node.example.evil",        "x" * 5000, "caf\u00e9.example",
    ],
)  # fmt: skip
def test_a_name_that_is_not_the_nodes_own_is_a_421(path: str, host: str) -> None:
    status, text = ask("GET", path, [("Host", host)])
    assert status == 421
    assert "broker.http_hosts" in json.loads(text)["reason"] and len(text) < 400 and text.isascii()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:1", "192.0.2.7:15672", "[::1]:15672", "[2001:db8::1]", "[fe80::1%25eth0]:1",
        "localhost", "LOCALHOST.:15672", "ip6-localhost", "node.example", "Node.Example:80", "",
    ],
)  # fmt: skip
def test_addresses_and_names_of_its_own_are_known(host: str) -> None:
    """Health checks and Prometheus come by address: nobody looks that up."""
    assert Guard(("node.example",)).refusal("GET", {"host": [host]}) is None


def test_two_hosts_are_one_too_many() -> None:
    found = Guard().refusal("GET", {"host": ["localhost", "evil.example"]})
    assert found is not None and found.status == 400
    assert Guard().refusal("GET", {}) is None, "health checks of HTTP/1.0 name none; browsers always do"


def test_a_change_is_refused_by_its_name_too() -> None:
    node = StandIn()
    headers = [("Host", "evil.example"), ("Origin", "http://evil.example"), *JSON]
    assert ask("POST", "/api/promote", headers, b"{}", node)[0] == 421
    assert node.asked == []


def test_what_the_configuration_calls_the_node_and_its_pair_is_known() -> None:
    settings = load(
        None,
        [
            "broker.listen=one.example:1", "broker.tls_listen=two.example:1", "broker.http=three.example:1",
            "ha.brokers=four.example:1,five.example:1", "ha.listen=six.example:1",
            "tls.certificate=c", "tls.key=k",            "ha.public_brokers=amqps://seven.example:1,h:1",
            "broker.http_hosts=eight.example,b\u00fccher.example",
        ],
    )  # fmt: skip
    guard = Guard(names_of(settings))
    for name in ("one", "two", "three", "four", "five", "six", "seven", "eight", "xn--bcher-kva"):
        assert guard.refusal("GET", {"host": [f"{name}.example:15672"]}) is None
    assert guard.refusal("GET", {"host": ["nine.example"]}) is not None


@pytest.mark.parametrize("name", ["http://x", "x:1", "*", "*.example", "a b", "x/y", "a..b"])
def test_what_is_no_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^broker\.http_hosts \(--set\): .* is not a host name"):
        load(None, [f"broker.http_hosts={name}"])


# -- places


class Asked(StandIn):
    """Does what it is asked only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: list[Callable[[dict[str, Any]], None]] = []
        self.came = asyncio.Event()

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None:
        self.asked.append((command, args))
        self.owed.append(reply)
        self.came.set()


class Visitor:
    """A connection by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, text: str) -> Visitor:
        self.writer.write(text.encode())
        return self

    async def gone(self) -> bytes:
        """All that came before the end."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def status(self) -> int:
        """Of the next answer; all of it is read."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        await self.reader.readexactly(int(length[1]))
        return int(head.split()[1])


class Door:
    """A server with few places."""

    def __init__(self, server: HttpServer, at: HostPort, node: Asked) -> None:
        self.server, self.at, self.node = server, at, node

    async def visitor(self, *, seen: bool = True) -> Visitor:
        """`seen`: the server has taken it."""
        found = Visitor(*await asyncio.open_connection(*self.at))
        at = found.writer.get_extra_info("sockname")
        while seen and at not in self._taken():
            await asyncio.sleep(0)
        return found

    def _taken(self) -> list[object]:
        return [transport.get_extra_info("peername") for transport in self.server._places._by_transport]

    async def health(self) -> int:
        visitor = (await self.visitor(seen=False)).say(HEALTH)
        status = await visitor.status()
        visitor.writer.close()
        await visitor.gone()
        return status


HEALTH = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
COMMAND = f"POST /api/demote HTTP/1.1\r\nHost: localhost\r\nAuthorization: {LOGIN}\r\n"
PLACES = 10
"""Nine of them for administrators."""
NEVER = 3600.0
PATIENT = Limits(head=NEVER, body=NEVER, upload=NEVER, idle=NEVER)
PATIENCE = 60.0


def scene(play: Callable[[Door], Awaitable[None]], limits: Limits = PATIENT) -> None:
    async def run() -> None:
        node = Asked()
        server = HttpServer(
            node, Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None,
            visitors=PLACES,
            limits=limits,
        )  # fmt: skip
        at = await server.start(HostPort("127.0.0.1", 0))
        try:
            async with asyncio.timeout(PATIENCE):
                await play(Door(server, at, node))
        finally:
            for reply in node.owed:
                reply({"ok": True, "reason": ""})
            await server.close()

    asyncio.run(run())


@pytest.mark.parametrize("said", ["", "GET /health/li", "GET / HTTP/1.1\r\nX: y\r\n", HEALTH])
def test_a_full_house_lets_the_longest_silent_go(said: str) -> None:
    """Whatever they have begun to say, or said long ago."""

    async def play(door: Door) -> None:
        crowd = [(await door.visitor()).say(said) for _ in range(PLACES)]
        if said == HEALTH:
            assert [await each.status() for each in crowd] == [200] * PLACES
        for first in crowd[:3]:
            crowd.append(await door.visitor())
            assert await first.gone() == b""
        assert await door.health() == 200
        assert await crowd[3].gone() == b""
        assert await crowd[-1].say(HEALTH).status() == 200

    scene(play)


def test_a_drip_of_octets_is_silence() -> None:
    async def play(door: Door) -> None:
        crowd = [(await door.visitor()).say("G") for _ in range(PLACES)]
        quiet = crowd[-1]
        for each in crowd[:-1]:
            each.say("E")
        assert await door.health() == 200
        assert await crowd[0].gone() == b"", "it was there first, though another one has said less"
        assert await quiet.say(HEALTH[1:]).status() == 200

    scene(play)


def test_who_has_logged_in_keeps_the_place_and_leaves_some_to_others() -> None:
    async def play(door: Door) -> None:
        crowd = []
        for number in range(PLACES - 1):
            door.node.came.clear()
            crowd.append((await door.visitor()).say(COMMAND + "\r\n"))
            await door.node.came.wait()
            assert len(door.node.asked) == number + 1
        silent = await door.visitor()
        assert await door.health() == 200
        assert await silent.gone() == b""
        late = (await door.visitor()).say(COMMAND + "\r\n")
        assert await late.status() == 503
        assert await door.health() == 200
        door.node.owed.pop(0)({"ok": True, "reason": ""})
        assert await crowd[0].status() == 200
        door.node.came.clear()
        crowd[0].say(COMMAND + "\r\n")
        await door.node.came.wait()

    scene(play)


SHORT = 0.02


@pytest.mark.parametrize("said", ["", "GET /health/li", "GET / HTTP/1.1\r\nX: y\r\n", HEALTH])
def test_a_head_that_is_not_whole_in_time_ends_the_connection(said: str) -> None:
    async def play(door: Door) -> None:
        visitor = (await door.visitor()).say(said)
        if said == HEALTH:
            assert await visitor.status() == 200
            visitor.say("GET /hea")
        assert await visitor.gone() == b""
        assert await door.health() == 200

    scene(play, replace(PATIENT, head=1.0 if said == HEALTH else SHORT))


def test_a_drip_does_not_lengthen_the_time_for_a_head() -> None:
    async def play(door: Door) -> None:
        visitor = await door.visitor()
        ended = asyncio.ensure_future(visitor.gone())
        visitor.say("GET / HTTP/1.1\r\nX: ")
        while not ended.done():
            visitor.say("y")
            await asyncio.sleep(0)

    scene(play, replace(PATIENT, head=SHORT))


def test_a_body_that_is_not_there_in_time_is_a_408() -> None:
    async def play(door: Door) -> None:
        head = COMMAND + "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        assert await (await door.visitor()).say(head + "{").status() == 408
        post = head.replace("/api/demote", "/api/definitions")
        assert await (await door.visitor()).say(post + "{").status() in (408, 503)
        assert door.node.asked == []

    scene(play, replace(PATIENT, body=SHORT, upload=SHORT, head=SHORT * 10))


def test_a_body_that_nobody_wants_is_not_waited_for() -> None:
    async def play(door: Door) -> None:
        visitor = (await door.visitor()).say(HEALTH.replace("\r\n\r\n", "\r\nContent-Length: 9\r\n\r\n{"))
        assert (await visitor.gone()).startswith(b"HTTP/1.1 200")

    scene(play, replace(PATIENT, head=SHORT))


def test_a_connection_that_rests_ends_after_its_time() -> None:
    async def play(door: Door) -> None:
        assert (await (await door.visitor()).say(HEALTH).gone()).startswith(b"HTTP/1.1 200")

    scene(play, replace(PATIENT, idle=SHORT))


def test_who_takes_no_answer_ends_after_its_time() -> None:
    async def play(door: Door) -> None:
        door.node.more["reason"] = "x" * (64 << 20)
        visitor = (await door.visitor()).say("GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not door.server._places._visits:
            await asyncio.sleep(0)
        while door.server._places._visits:
            await asyncio.sleep(0)
        visitor.writer.transport.abort()

    scene(play, replace(PATIENT, idle=SHORT))


def test_a_full_house_and_a_late_head_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    async def play(door: Door) -> None:
        crowd = [await door.visitor() for _ in range(3 * PLACES)]
        assert await door.health() == 200
        assert not crowd[-1].reader.at_eof()

    with caplog.at_level("INFO"):
        scene(play)
    full = codes.HTTP_FULL.say(places=PLACES, peer="127.0.0.1").about("HTTP")
    assert [record.msg for record in caplog.records if "places are taken" in record.getMessage()] == [full]


def test_a_real_node_answers_health_checks_whoever_else_is_there(tmp_path: Path) -> None:
    with serving(tmp_path) as node, ExitStack() as crowd:
        for number in range(450):
            visitor = crowd.enter_context(socket.create_connection(node.http, timeout=PATIENCE))
            visitor.sendall(b"GET /health/live HTTP/1.1\r\n"[: number % 27])
        for path in ("live", "ready", "primary"):
            with urllib.request.urlopen(f"http://{node.http}/health/{path}", timeout=PATIENCE) as answer:
                assert answer.status == 200

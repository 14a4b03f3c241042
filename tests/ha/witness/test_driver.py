"""The pair's side, over real sockets: what is asked is answered, whatever becomes of the witness."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pika
import pytest

from ha.adapter.authority_port import AuthorityRequest
from ha.core.record.in_sync_record import Incarnation, first_record
from ha.witness import codes
from ha.witness.driver import Where, WitnessDriver
from tests.ha.asking import DEADLINE, Asking
from tests.understudy.serving import serving
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Code

A, B = ("a" * 32, 1), ("b" * 32, 1)
RECORD = first_record("c" * 32, 65537, Incarnation(*A), "a").as_json()


@asynccontextmanager
async def driving(
    node: Asking, port: int, asker: tuple[str, int] = A, name: str = "shop", password: str = "secret",
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
) -> AsyncIterator[WitnessDriver]:  # fmt: skip
    where = Where("127.0.0.1", port, name, password, asker, 5.0, tls)
    driver = WitnessDriver(node, where, asyncio.get_running_loop().time, lambda: None)
    driver.start()
    try:
        yield driver
    finally:
        await driver.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


def told(node: Asking, code: Code) -> str:
    """The last sentence with that code; "" if there is none."""
    return next((said.sentence for _, said in reversed(node.stands) if said.code == code.name), "")


def test_two_nodes_share_one_record_and_a_lease(tmp_path: Path) -> None:
    async def talk(port: int) -> None:
        a, b = Asking(), Asking()
        async with driving(b, port, B) as of_b:
            async with driving(a, port) as of_a:
                assert await a.ask(of_a, AuthorityRequest(1, "swap", None, RECORD)) == ["done"]
                assert await b.ask(of_b, AuthorityRequest(1, "swap", None, RECORD)) == ["conflict"]
                assert await b.ask(of_b, AuthorityRequest(2, "read")) == ["done"]
                assert b.answers[2] == ("done", RECORD) and not b.gone[2]
                assert await a.ask(of_a, AuthorityRequest(2, "read", renews=True)) == ["done"]
                assert told(a, codes.ANSWERS) == f"the witness answers at 127.0.0.1:{port}"
            assert await b.ask(of_b, AuthorityRequest(3, "read")) == ["done"]
            assert b.gone[3], "the owner has stopped, and said so"

    with serving(tmp_path, "--set", "ha.witness_for=shop", "--set", "ha.witness_password=secret") as witness:
        asyncio.run(talk(witness.amqp.port))
        witness.stop()
    with serving(tmp_path, "--set", "ha.witness_for=shop", "--set", "ha.witness_password=secret") as witness:
        asyncio.run(kept(witness.amqp.port))


async def kept(port: int) -> None:
    node = Asking()
    async with driving(node, port, B) as driver:
        await node.ask(driver, AuthorityRequest(1, "read"))
        assert node.answers[1] == ("done", RECORD) and not node.gone[1], "a whole lease after a restart"


def test_who_may_not_ask_is_told_so_and_who_may_does_nothing_else(tmp_path: Path) -> None:
    async def talk(port: int) -> None:
        for name, password in (("shop", "wrong"), ("nobody", "secret"), ("guest", "guest")):
            node = Asking()
            async with driving(node, port, name=name, password=password) as driver:
                assert await node.ask(driver, AuthorityRequest(1, "read")) == ["unknown"]
                await until(lambda: bool(told(node, codes.REFUSED)))  # noqa: B023
                assert "refuses this node: 403" in told(node, codes.REFUSED)
        at = HostPort("127.0.0.1", port)
        with pytest.raises(Unreachable, match="403"):
            ask(at, "status", user="shop", password="secret")
        login = pika.PlainCredentials("shop", "secret")
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(*at, "/", login))

    with serving(tmp_path, "--set", "ha.witness_for=shop", "--set", "ha.witness_password=secret") as witness:
        asyncio.run(talk(witness.amqp.port))


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"", "the server closed the socket"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server sent a frame that no server sends here"),
        (b"AMQP\x03\x01\x00\x00", "the server"),
        (b"\x00" * 100, "the server sent a frame that no server sends here"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "it speaks TLS"),
        (None, "the server did not finish the handshake in time"),
    ],
    ids=["closes", "HTTP", "AMQP 1.0", "zeros", "TLS", "silent"],
)
def test_what_is_no_witness_is_named_and_every_request_is_answered(answer: bytes | None, cause: str) -> None:
    async def talk() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(8)
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        node = Asking()
        async with server, driving(node, server.sockets[0].getsockname()[1]) as driver:
            assert await node.ask(driver, AuthorityRequest(1, "read"), AuthorityRequest(2, "read")) == [
                "unknown", "unknown",
            ]  # fmt: skip
            await until(lambda: cause in told(node, codes.UNREACHABLE) and bool(node.stands))
            assert all("\n" not in said.sentence and not ok for ok, said in node.stands)

    asyncio.run(talk())


def test_a_witness_that_comes_late_is_found(tmp_path: Path) -> None:
    async def talk() -> None:
        held = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = held.sockets[0].getsockname()[1]
        held.close()
        node = Asking()
        async with driving(node, port) as driver:
            assert await node.ask(driver, AuthorityRequest(1, "read")) == ["unknown"]
            assert "connection refused" in told(node, codes.UNREACHABLE)
            options = ("--set", "ha.witness_for=shop", "--set", "ha.witness_password=secret")
            loop = asyncio.get_running_loop()
            context = serving(tmp_path, *options, "--listen", f"127.0.0.1:{port}")
            await loop.run_in_executor(None, context.__enter__)
            try:
                await until(lambda: bool(told(node, codes.ANSWERS)))
                assert await node.ask(driver, AuthorityRequest(2, "read")) == ["done"]
            finally:
                context.__exit__(None, None, None)

    asyncio.run(talk())

"""HTTP to a real pair in this process: nodes, disks and clock of `tests.ha.pair`, real aiohttp on real
sockets."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from broker.security.authenticator import Authenticator
from broker.security.logins import Logins
from tests.ha.pair import STEP, Host, Pair
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

Answer = tuple[int, Any]
ADMINISTRATOR = ("guest", "guest")


class Doors:
    """A door for each node of the pair, which runs as long as the event loop is free."""

    def __init__(self, pair: Pair, session: aiohttp.ClientSession) -> None:
        self.pair = pair
        self._session = session
        self._servers: dict[str, tuple[HttpServer, HostPort]] = {}

    async def open(self, host: Host) -> None:
        node = host.running
        logins = Logins(Authenticator(host.users, stored=node.vhosts.directory.users.get))
        server = HttpServer(node, logins, clock=lambda: self.pair.now, tick_soon=lambda: None)
        self._servers[host.name] = server, await server.start(HostPort("127.0.0.1", 0))

    async def close(self) -> None:
        for server, _ in self._servers.values():
            await server.close()

    def origin(self, name: str) -> str:
        """Of a page of that node."""
        return f"http://{self._servers[name][1]}"

    async def run(self) -> None:
        while True:
            self.pair.step()
            self.pair.now += STEP
            await asyncio.sleep(0)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: str = "a",
        user: tuple[str, str] = ADMINISTRATOR,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Status, and the JSON of the answer or its text."""
        _, address = self._servers[at]
        login = {"Authorization": f"Basic {b64encode(':'.join(user).encode()).decode()}"}
        bare = {"skip_auto_headers": ["Content-Type"]} if body is None else {"json": body}
        arguments: dict[str, Any] = {"headers": login | (headers or {}), **bare}
        url = URL(f"http://{address}{path}", encoded=True)
        async with self._session.request(method, url, **arguments) as response:
            return response.status, await _content(response)


async def _content(response: aiohttp.ClientResponse) -> Any:
    text = await response.text()
    return await response.json() if text and "json" in response.content_type else text


@asynccontextmanager
async def doors(pair: Pair) -> AsyncIterator[Doors]:
    """To all nodes that run."""
    async with aiohttp.ClientSession() as session:
        found = Doors(pair, session)
        for host in pair.hosts:
            await found.open(host)
        running = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            running.cancel()
            await found.close()

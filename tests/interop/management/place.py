"""Where a broker's management answers, and plain requests to it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pika
import pika.exceptions

from understudy.shared.addresses import HostPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = "%2F"
"""The virtual host `/` in a path."""
PATIENCE = 20.0


class Answer(NamedTuple):
    """`body`: from JSON; None if it is empty."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(slots=True, frozen=True)
class Place:
    """One broker. `run`: appended to the names of objects, so that the same case may run twice."""

    amqp: HostPort
    http: HostPort
    run: str = ""
    user: str = "guest"
    password: str = "guest"

    def ask(self, method: str, path: str, body: object = None, login: str = "") -> Answer:
        """`path`: below `/api/`. `login`: another user and password."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.http}/api/{path}", data, method=method)
        word = login or f"{self.user}:{self.password}"
        request.add_header("Authorization", f"Basic {b64encode(word.encode()).decode()}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return _answer(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            return _answer(error.code, error.read(), error.headers)

    def get(self, path: str) -> Any:
        found = self.ask("GET", path)
        assert found.status == 200, (path, found)
        return found.body

    def does(self, method: str, path: str, body: object = None, status: int = 204) -> Answer:
        """Ask, and expect that status."""
        found = self.ask(method, path, body)
        assert found.status == status, (method, path, found)
        return found

    @contextmanager
    def channel(self, **properties: object) -> Iterator[Any]:
        """A channel of an AMQP client with confirms. `properties`: of its connection."""
        credentials = pika.PlainCredentials(self.user, self.password)
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                self.amqp.host, self.amqp.port, credentials=credentials, client_properties=properties
            )
        )
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            with suppress(pika.exceptions.AMQPError):  # a case may have closed it
                connection.close()


def _answer(status: int, body: bytes, headers: Any) -> Answer:
    return Answer(status, json.loads(body) if body.strip() else None, dict(headers.items()))


def until(found: Callable[[], Any]) -> Any:
    """Ask until the answer is true. Statistics come some seconds later, here as in RabbitMQ; there is nothing
    to wait for but the answer."""
    end = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return answer


def in_path(name: str) -> str:
    return quote(name, safe="")

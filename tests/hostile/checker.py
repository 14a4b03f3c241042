"""A driver of `Logins` in the test's own hand: nothing is hashed, and each check is one counted step."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from broker.peer import Peer
from broker.security.identity import HA, User
from broker.security.logins import Logins
from broker.security.tickets import Work
from tests.broker.amqp091.wire import Raw, World
from tests.broker.stored import hashed

WORD = "word"


def hash_of(name: str) -> str:
    """Looks like an argon2id hash, another for each name; the checker goes by the password alone."""
    salt = b64encode(name.encode().ljust(16)[:16]).rstrip(b"=").decode()
    return f"$argon2id$v=19$m=19456,t=2,p=1${salt}${b64encode(bytes(32)).rstrip(b'=').decode()}"


def users(*names: str) -> tuple[User, ...]:
    """Those, with the password `word` and a hash of it; an operator and a peer, with words; `carol`, whose
    hash is RabbitMQ's."""
    return (
        *(User(name, password_hash=hash_of(name)) for name in names),
        User("op", frozenset({"administrator"}), password="op"),
        User("ha", frozenset({HA}), password="secret"),
        User("carol", password_hash=hashed(WORD)),
    )


class Checker:
    """`made`: names whose password was checked, in order. The password `word` is right."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins
        self.asked = 0
        self.made: list[str] = []
        self.out: list[Work] = []
        logins.wanted = self._wanted

    def _wanted(self) -> None:
        self.asked += 1

    def take(self, now: float) -> Work | None:
        work = self.logins.take(now)
        if work is not None:
            self.out.append(work)
        return work

    def finish(self, work: Work, now: float, *, memory: bool = True) -> None:
        self.out.remove(work)
        self.made.append(work.name)
        self.logins.checked(work, work.check.password == WORD if memory else None, now)

    def run(self, now: float, most: int = 1000) -> int:
        """One after another, until nothing is to be had now; how many."""
        for made in range(most):
            work = self.take(now)
            if work is None:
                return made
            self.finish(work, now)
        return most


class Hall:
    """A broker whose passwords the test checks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logins = world.broker.logins
        self.checker = Checker(self.logins)

    @property
    def now(self) -> float:
        return self.world.now

    def knock(self, name: str, password: str, host: str = "192.0.2.1", **login: Any) -> Raw:
        """A client sends its name and password, and all that it would say next."""
        client = self.world.connect(Peer(host, 40000, loopback=host.startswith("127."), tls=True))
        client.begin_login(name, password, **login)
        client.send(0, "connection.open", virtual_host="/")
        client.send(1, "channel.open")
        return client

    def check(self, most: int = 1000) -> int:
        made = self.checker.run(self.now, most)
        self.world.tick()
        return made


def answer(client: Raw) -> str:
    """What the broker says to a client that has said all: `open`, a reply code, `abandoned`, or `waits`."""
    seen = client.read()
    for frame in seen:
        if frame.name == "connection.close":
            return str(frame["reply_code"])
    if client.closed:
        return "abandoned"
    return "open" if any(frame.name == "channel.open-ok" for frame in seen) else "waits"

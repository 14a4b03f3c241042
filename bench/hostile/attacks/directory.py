"""Clients with a login for whom names are expensive to look up: by bindings, and by permissions."""

from __future__ import annotations

import itertools
import string
import struct
from collections.abc import Iterable

from bench.brokers import understudy
from bench.hostile.attacks.strikes import again, bind, declare, empty, logged_in, number, publish
from bench.hostile.attacks.target import Target
from bench.wire import HEADER, frame, longstr, method, shortstr

BINDINGS, QUEUES, TOPICS = 65_000, 65, 20_000
_HEADERS = string.ascii_lowercase[:20]
_BURST = 20
_STORED = "stored"
_PATTERN = "^([a-z]+)*_q$"
_LETTERS = 27


def bind_headers(target: Target) -> None:
    """65,000 bindings of 65 queues to a headers exchange. Each asks for eight headers of twenty, and no two
    for the same, so that no header leads to few of them."""
    wire = logged_in(target)
    wire.socket.sendall(b"".join(declare(f"headers{n}", flags=16) for n in range(QUEUES)))
    wanted = itertools.islice(itertools.combinations(_HEADERS, 8), BINDINGS)
    for at, names in enumerate(wanted):
        wire.socket.sendall(bind(f"headers{at % QUEUES}", "amq.headers", "", _table(names)))
    wire.call(1, 60, 10, struct.pack(">IHB", 0, 0, 0))
    wire.close()


def headers(target: Target) -> None:
    """Messages with every other one of these headers; bindings come and go between them."""
    header = frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0x2000) + longstr(_table(_HEADERS[::2])))
    where = shortstr("headers0") + shortstr("amq.headers") + shortstr("")
    unbind = method(1, 50, 50, b"\0\0" + where + longstr(_table("z")))
    changed = bind("headers0", "amq.headers", "", _table("z")) + unbind
    again(target, b"", (publish("amq.headers") + header) * _BURST + changed)


def bind_topics(target: Target) -> None:
    """Patterns of ten words `a`, `*` and `#`, all for one queue: each word of a key keeps most of them
    possible."""
    wire = logged_in(target)
    wire.socket.sendall(declare("topics", flags=16))
    every = map("".join, itertools.product("a*#", repeat=10))
    for words in itertools.islice((words for words in every if "##" not in words), TOPICS):
        wire.socket.sendall(bind("topics", "amq.topic", ".".join(words)))
    wire.call(1, 60, 10, struct.pack(">IHB", 0, 0, 0))
    wire.close()


def topics(target: Target) -> None:
    """Messages with keys of 100 words, each another one, so that no route is remembered."""
    again(target, b"", b"".join(publish("amq.topic", key) + empty() for key in topic_keys()))


def topic_keys() -> list[str]:
    words = ["a"] * 100
    return [".".join([*words[:at], "b", *words[at + 1 :]]) for at in range(len(words))]


def _table(names: Iterable[str]) -> bytes:
    return b"".join(number(name, 1) for name in names)


def store_user(target: Target) -> None:
    """By an administrator: a user who may configure what a pattern matches that takes long."""
    at = ("-b", f"{target.host}:{target.port}")
    for command, said in (
        (("user", "add", _STORED, "--stdin"), _STORED),
        (("permission", "set", _STORED, _PATTERN, "", ""), ""),
    ):
        done = understudy(*command, *at, said=said)
        if done.returncode:
            raise RuntimeError(f"understudy {' '.join(command)}: {done.stderr}")


def patterns(target: Target) -> None:
    """queue.declare of names of 27 letters, which the pattern matches not, and tries every way to."""
    letters = itertools.cycle(string.ascii_lowercase)
    strike = b"".join(
        declare("".join(itertools.islice(letters, _LETTERS)))
        + method(1, 20, 41)
        + method(1, 20, 10, shortstr(""))
        for _ in range(100)
    )
    again(target, b"", strike, user=_STORED)

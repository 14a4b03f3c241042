"""A login that waits: who asked, and the password check that its answer needs.

Owner: `Logins`, which makes them; `CheckQueue` keeps the checks in the order of their turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.errors import AmqpError
from broker.security.authenticator import Check, Login
from broker.security.identity import Identity

Answer = Identity | AmqpError
"""Who it is, or why not: `LoginRefused`, or `ConnectionForced` if the password was not looked at."""


class Ticket:
    """A login whose answer comes later: `answer` is called once, on the broker's thread, with it and the
    time."""

    __slots__ = ("answer", "login", "work")

    def __init__(self, login: Login, answer: Callable[[Answer, float], None]) -> None:
        self.login, self.answer = login, answer
        self.work: Work | None = None


@dataclass(slots=True, eq=False)
class Work:
    """One check, and who waits for it. `address` and `name`: for whose turn it counts."""

    check: Check
    address: str
    name: str
    tickets: dict[Ticket, None] = field(default_factory=dict)
    running: bool = False

"""A pending login: its caller, and the password check that it needs.

Owner: `Logins`, which creates them. `CheckQueue` keeps the checks in the order of their turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.errors import AmqpError
from broker.security.authenticator import Check, Login
from broker.security.identity import Identity

Answer = Identity | AmqpError
"""The identity, or why not: `LoginRefused`, or `ConnectionForced` if the password was not checked."""


class Ticket:
    """A login that is answered later. `answer` is called once on the broker's thread, with the answer and the
    time."""

    __slots__ = ("answer", "login", "work")

    def __init__(self, login: Login, answer: Callable[[Answer, float], None]) -> None:
        self.login, self.answer = login, answer
        self.work: Work | None = None


@dataclass(slots=True, eq=False)
class Work:
    """One check and the tickets that wait for it. `address` and `name`: whose turn it uses."""

    check: Check
    address: str
    name: str
    tickets: dict[Ticket, None] = field(default_factory=dict)
    running: bool = False

"""Questions to a simulated authority, and its answers, for tests of authorities."""

from __future__ import annotations

from typing import Any, Protocol

from ha.adapter.authority_port import AuthorityRequest
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.register import Answered


class Authority(Protocol):
    def ask(self, host: str, request: AuthorityRequest, answered: Answered) -> None: ...


class Asking:
    """An authority and its clients; `answers` has (host, outcome, version held) as they come."""

    def __init__(self, clock: Clock, authority: Authority) -> None:
        self.clock = clock
        self._authority = authority
        self.answers: list[tuple[str, str, object]] = []

    def ask(
        self, host: str, document: dict[str, Any] | None = None, expected: tuple[int, int] | None = None
    ) -> None:
        """For a swap to `document`, or without one for a read."""

        def answered(
            outcome: str, held: dict[str, Any] | None, reason: str, owner_gone: bool = False
        ) -> None:
            self.answers.append((host, outcome, held and (held["epoch"], held["revision"])))

        kind = AuthorityRequest(1, "read") if document is None else None
        self._authority.ask(host, kind or AuthorityRequest(1, "swap", expected, document), answered)

    def run(self, seconds: float = 3.0) -> list[tuple[str, str, object]]:
        self.clock.run(self.clock.now + seconds)
        answers, self.answers = self.answers, []
        return answers

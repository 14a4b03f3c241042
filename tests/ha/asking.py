"""A node of tests that has an authority asked, through a real driver."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from understudy.shared.codes import Coded

DEADLINE = 20.0
"""Seconds until an answer counts as missing."""


class Driver(Protocol):
    def carry(self) -> None: ...


class Asking:
    """A node that asks what a test wants asked."""

    def __init__(self) -> None:
        self.wanted: list[AuthorityRequest] = []
        self.answers: dict[int, tuple[str, dict[str, Any] | None]] = {}
        self.reasons: dict[int, str] = {}
        self.gone: dict[int, bool] = {}
        self.stands: list[tuple[bool, Coded]] = []
        self.told = asyncio.Event()

    def wants_authority(self) -> list[AuthorityRequest]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def authority_answered(
        self, request_id: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None:  # fmt: skip
        self.answers[request_id] = outcome, record
        self.reasons[request_id] = reason
        self.gone[request_id] = owner_gone
        self.told.set()

    def authority_stands(self, ok: bool, said: Coded) -> None:
        self.stands.append((ok, said))

    async def ask(self, driver: Driver, *requests: AuthorityRequest) -> list[str]:
        """The outcomes."""
        self.wanted += requests
        driver.carry()
        async with asyncio.timeout(DEADLINE):
            while not {request.request_id for request in requests} <= self.answers.keys():
                self.told.clear()
                await self.told.wait()
        return [self.answers[request.request_id][0] for request in requests]

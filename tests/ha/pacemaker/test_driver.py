"""The daemon's side, with a real helper: what is asked is answered, whatever becomes of the helper."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from ha.pacemaker import codes
from ha.pacemaker import driver as driver_module
from ha.pacemaker.driver import PacemakerDriver, helper_words
from tests.ha.pacemaker.cibs import DOWN, LOST, MEMBER, record
from tests.ha.pacemaker.fakes import DEADLINE, Commands, gone
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Asking:
    """A node that asks what a test wants asked."""

    def __init__(self) -> None:
        self.wanted: list[AuthorityRequest] = []
        self.answers: list[tuple[int, str, dict[str, Any] | None]] = []
        self.stands: list[tuple[bool, Coded]] = []
        self.told = asyncio.Event()

    def wants_authority(self) -> list[AuthorityRequest]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def authority_answered(
        self, request_id: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None:  # fmt: skip
        self.answers.append((request_id, outcome, record))
        self.told.set()

    def authority_stands(self, ok: bool, said: Coded) -> None:
        self.stands.append((ok, said))
        self.told.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not true():
                self.told.clear()
                await self.told.wait()


@asynccontextmanager
async def running(words: list[str] | None = None) -> AsyncIterator[tuple[Asking, PacemakerDriver]]:
    node = Asking()
    loop = asyncio.get_running_loop()
    driver = PacemakerDriver(node, words or helper_words("understudy"), loop.time, lambda: None)
    driver.start()
    try:
        yield node, driver
    finally:
        pid = driver.pid
        await driver.close()
        assert pid is None or gone(pid)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(whole())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    commands = Commands(tmp_path)
    commands.whole({"a": MEMBER, "b": DOWN})
    monkeypatch.setenv("PATH", commands.environment["PATH"])
    return commands


def test_how_the_cib_stands_is_asked_before_the_node_asks_anything(fake: Commands) -> None:
    async def scenario() -> None:
        async with running() as (node, _):
            await node.until(lambda: bool(node.stands))
            assert node.stands[0][0] is True and not node.answers

    play(scenario)


def test_it_is_asked_again_while_the_node_is_quiet(fake: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "PROBE", 0.05)

    async def scenario() -> None:
        async with running() as (node, _):
            await node.until(lambda: bool(node.stands))
            fake.whole({"a": MEMBER, "b": LOST})
            await node.until(lambda: node.stands[-1][1].code == codes.VOTES_UNKNOWN.name)
            assert not node.stands[-1][0]
            fake.whole({"a": MEMBER, "b": DOWN})
            await node.until(lambda: node.stands[-1][0])

    play(scenario)


def test_reads_and_swaps_go_there_and_back(fake: Commands) -> None:
    async def scenario() -> None:
        async with running() as (node, driver):
            await node.until(lambda: bool(node.stands))
            node.wanted = [
                AuthorityRequest(1, "read"),
                AuthorityRequest(2, "swap", (5, 1), record(5, 2)),
            ]
            driver.carry()
            await node.until(lambda: len(node.answers) == 2)
            assert sorted(node.answers) == [(1, "done", None), (2, "conflict", None)]

    play(scenario)


def test_a_question_before_the_helper_runs_is_unknown_after_the_tick(fake: Commands) -> None:
    async def scenario() -> None:
        async with running() as (node, driver):
            node.wanted = [AuthorityRequest(1, "read")]
            driver.carry()
            assert not node.answers
            await node.until(lambda: bool(node.answers))
            assert node.answers == [(1, "unknown", None)]

    play(scenario)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_helper_that_dies_leaves_unknowns_and_is_started_again(fake: Commands, number: int) -> None:
    async def scenario() -> None:
        async with running() as (node, driver):
            await node.until(lambda: bool(node.stands))
            first = driver.pid
            assert first is not None
            fake.hang_for(5)
            node.wanted = [AuthorityRequest(1, "read"), AuthorityRequest(2, "swap", None, record())]
            driver.carry()
            os.kill(first, number)
            await node.until(lambda: len(node.answers) == 2)
            assert node.answers == [(1, "unknown", None), (2, "unknown", None)]
            assert node.stands[-1] == (False, codes.HELPER_ENDED.say(how=f"signal {int(number)}"))
            fake.whole({"a": MEMBER, "b": DOWN})
            await node.until(lambda: node.stands[-1][0])
            assert driver.pid not in (None, first)
            node.wanted = [AuthorityRequest(3, "read")]
            driver.carry()
            await node.until(lambda: (3, "done", None) in node.answers)

    play(scenario)
    fake.end_those_that_hang()


def test_a_helper_that_stands_still_is_replaced(fake: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "PATIENCE", 0.2)
    monkeypatch.setattr(driver_module, "GRACE", 0.1)

    async def scenario() -> None:
        async with running() as (node, driver):
            await node.until(lambda: bool(node.stands) and driver.pid is not None)
            first = driver.pid
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            node.wanted = [AuthorityRequest(1, "read")]
            driver.carry()
            await node.until(lambda: bool(node.answers))
            assert node.answers == [(1, "unknown", None)] and not node.stands[-1][0]
            assert gone(first)
            await node.until(lambda: driver.pid not in (None, first))

    play(scenario)


@pytest.mark.parametrize(
    "said",
    [
        "hello", "[]", "{}", '{"id": 1}',
        '{"id": 1, "outcome": "yes", "record": null, "code": "x", "reason": ""}',
        '{"id": 1, "outcome": "done", "record": null, "reason": ""}',
        '{"id": 1, "outcome": "done", "record": null, "code": "x", "reason": 5}',
        '{"id": 1, "outcome": "done", "record": null, "code": null, "reason": ""}',
        "x" * (driver_module.LONGEST + 10), "\xff\xfe",
    ],
)  # fmt: skip
def test_a_helper_that_talks_nonsense_is_replaced(fake: Commands, tmp_path: Path, said: str) -> None:
    (tmp_path / "said").write_bytes(said.encode("latin-1") + b"\n")
    script = f"import sys; sys.stdin.readline(); print(open({str(tmp_path / 'said')!r}, 'rb').read())"
    script = script.replace("print(", "sys.stdout.buffer.write(") + "; sys.stdout.flush(); sys.stdin.read()"

    async def scenario() -> None:
        async with running([sys.executable, "-c", script]) as (node, _):
            await node.until(lambda: any(said.code == codes.HELPER_NONSENSE.name for ok, said in node.stands))
            assert not node.answers and not any(ok for ok, _ in node.stands)

    play(scenario)


def test_a_helper_that_cannot_be_started_is_said_again_and_again(
    fake: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "RESTART", 0.01)

    async def scenario() -> None:
        async with running(["/does/not/exist"]) as (node, driver):
            await node.until(lambda: len(node.stands) > 3)
            assert node.stands[0] == (False, codes.HELPER_NOT_STARTED.say(cause="No such file or directory"))
            node.wanted = [AuthorityRequest(1, "read")]
            driver.carry()
            await node.until(lambda: bool(node.answers))
            assert node.answers == [(1, "unknown", None)]

    play(scenario)


def test_a_late_answer_is_nobodys(fake: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is answered once."""

    async def scenario() -> None:
        async with running() as (node, driver):
            await node.until(lambda: bool(node.stands))
            node.wanted = [AuthorityRequest(1, "read")]
            driver.carry()
            driver._answered(1, "unknown", None, codes.HELPER_SILENT.say())
            node.wanted = [AuthorityRequest(2, "read")]
            driver.carry()
            await node.until(lambda: (2, "done", None) in node.answers)
            assert [each for each in node.answers if each[0] == 1] == [(1, "unknown", None)]

    play(scenario)

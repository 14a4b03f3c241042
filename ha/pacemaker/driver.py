"""The daemon's side of the `pacemaker` authority: runs the helper process, and carries requests and answers.

Owner: the daemon, on its event loop; the shell calls `carry` in each tick. The loop never waits for the
helper. A request that is not answered in time is `unknown`. So are open requests when the helper dies; the
helper is then started again. While nothing else is asked, the driver asks now and then how the CIB stands, so
that a standby that could not be promoted shows it before it is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, get_args

from ha.adapter.authority_port import Asker, AuthorityOutcome
from ha.pacemaker import codes
from ha.pacemaker.commands import CIBADMIN
from understudy.shared.codes import Coded

PATIENCE = 5.0
"""Seconds until a helper that says nothing is given up: by its own limit it has answered before."""
GRACE = 0.5
"""Seconds more, in which what had come while this process stood still is read."""
PROBE = 10.0
"""Seconds without a question, after which it is asked how the CIB stands."""
RESTART = 0.5
"""Seconds until a helper that has ended is started again."""
MOST_WAITING = 1 << 20
"""Bytes in the pipe to a helper that does not read."""
LONGEST = 1 << 20
"""Bytes of one answer."""


def search_path() -> str:
    """The folders in which the cluster's commands are looked for. The PATH of a user who may not configure
    the cluster may lack theirs."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def cibadmin_is_there() -> bool:
    """Does this machine have cibadmin, which all requests need?"""
    return shutil.which(CIBADMIN, path=search_path()) is not None


def helper_words(set_id: str) -> list[str]:
    """The helper's command line. -P: the working directory is not searched for modules."""
    return [sys.executable, "-P", "-m", "ha.pacemaker.helper", "--set", set_id, "--parent", str(os.getpid())]


class PacemakerDriver:
    """`words`: the helper's command; `clock` and `tick_soon`: the shell's."""

    def __init__(
        self, node: Asker, words: Sequence[str], clock: Callable[[], float], tick_soon: Callable[[], None]
    ) -> None:
        self._node = node
        self._words = words
        self._clock = clock
        self._tick_soon = tick_soon
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._open: dict[int, asyncio.TimerHandle] = {}
        self._probes = 0
        self._probe: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the helper, while there is one."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def carry(self) -> None:
        """Take the node's requests of the last tick."""
        for request in self._node.wants_authority():
            expected, record = request.expected, request.record
            self._ask(request.request_id, {"kind": request.kind, "expected": expected, "record": record})

    async def close(self) -> None:
        """The helper ends with its input; its answers are ignored from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for timer in [*self._open.values(), *([self._probe] if self._probe is not None else [])]:
            timer.cancel()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.communicate(), 1.0)
            except TimeoutError:
                self._kill()
                await process.communicate()

    # -- asking

    def _ask(self, request_id: int, question: dict[str, Any]) -> None:
        process = self._process
        self._open[request_id] = self._loop.call_later(PATIENCE, self._late, request_id, False)
        if process is None or process.stdin is None or process.stdin.is_closing():
            self._later(request_id, codes.HELPER_NOT_RUNNING.say())
        elif process.stdin.transport.get_write_buffer_size() > MOST_WAITING:
            self._later(request_id, codes.HELPER_NOT_READING.say())
        else:
            process.stdin.write(json.dumps({"id": request_id, **question}).encode() + b"\n")
        self._probe_later()

    def _later(self, request_id: int, said: Coded) -> None:
        """Not from within the tick that asks."""
        self._loop.call_soon(self._answered, request_id, "unknown", None, said)

    def _probe_later(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        self._probe = self._loop.call_later(PROBE, self._probe_now)

    def _probe_now(self) -> None:
        """Its number is below all that the node has; only the sentence matters."""
        self._probes += 1
        self._ask(-self._probes, {"kind": "read"})

    # -- answers

    def _answered(
        self, request_id: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, said: Coded
    ) -> None:
        timer = self._open.pop(request_id, None)
        if timer is None:
            return
        timer.cancel()
        self._node.authority_stands(outcome != "unknown", said)
        if request_id > 0:
            self._node.authority_answered(request_id, outcome, record, self._clock(), said.sentence)
            self._tick_soon()

    def _late(self, request_id: int, again: bool) -> None:
        if not again:
            self._open[request_id] = self._loop.call_later(GRACE, self._late, request_id, True)
            return
        self._answered(request_id, "unknown", None, codes.HELPER_SILENT.say())
        self._kill()

    def _heard(self, line: bytes) -> None:
        """ValueError, KeyError, TypeError: not an answer of the helper."""
        answer = json.loads(line)
        request_id, outcome, record = (answer[key] for key in ("id", "outcome", "record"))
        code, reason = answer["code"], answer["reason"]
        if outcome not in get_args(AuthorityOutcome) or not (
            isinstance(code, str) and isinstance(reason, str)
        ):
            raise ValueError(f"not an answer: {answer!r:.100}")
        self._answered(int(request_id), outcome, record, Coded(code, reason))

    # -- the process

    async def _run(self) -> None:
        """Start it, hear it, start it again."""
        while True:
            why = await self._live()
            self._process = None
            for request_id in list(self._open):
                self._answered(request_id, "unknown", None, why)
            self._node.authority_stands(False, why)
            await asyncio.sleep(RESTART)

    async def _live(self) -> Coded:
        """One life of the helper; returns how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                start_new_session=True, limit=LONGEST, env={**os.environ, "PATH": search_path()},
            )  # fmt: skip
        except OSError as error:
            return codes.HELPER_NOT_STARTED.say(cause=error.strerror)
        self._process = process
        assert process.stdout is not None
        self._probe_now()
        try:
            while line := await process.stdout.readline():
                self._heard(line)
        except (ValueError, KeyError, TypeError) as error:
            self._kill()
            await process.wait()
            return codes.HELPER_NONSENSE.say(fault=" ".join(str(error).split()))
        code = await process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return codes.HELPER_ENDED.say(how=how)

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass

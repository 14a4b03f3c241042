"""The daemon's side of the `etcd` authority: carries requests and answers over HTTP.

Owner: the daemon, on its event loop; the shell calls `carry` in each tick. The loop never waits for etcd. A
request that is not answered in time is `unknown`.

It uses etcd's JSON gateway, which each member has on its client port. An endpoint that does not answer is
left for the next of the list, and stays left until that one fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from ha.adapter.authority_port import Asker, AuthorityRequest
from ha.core.record.in_sync_record import RecordVersion
from ha.etcd import codes
from ha.etcd.register import (
    LEASE_LOST,
    Call,
    EtcdAnswer,
    Json,
    Keys,
    Unreadable,
    read,
    release,
    renew,
    swap,
)  # fmt: skip
from understudy.shared.codes import Coded

ANSWER = 1.0
"""Seconds that an endpoint may take for one call."""
PROBE = 5.0
"""Seconds without a question, after which etcd is asked whether it answers."""
LONGEST = 1 << 20
"""Bytes of an answer."""
LOGIN = 5.0
"""Seconds after a login that was refused until the next one."""
MOST_WAITING = 3
"""Requests that use the lease and wait for each other. One more is answered with `unknown` at once: a node
goes on asking while etcd hangs."""

# Codes of gRPC in an answer of the gateway (google.rpc.Code).
INVALID, NOT_FOUND, PERMISSION, EXHAUSTED, PRECONDITION, UNAVAILABLE = 3, 5, 7, 8, 9, 14
UNAUTHENTICATED = 16

LOGIN_AGAIN = ("user name is empty", "revision of auth store is old")
"""In a refusal that a login may mend."""
FAULTS = {
    INVALID: (codes.REFUSED, False),
    PERMISSION: (codes.REFUSED, False),
    PRECONDITION: (codes.REFUSED, False),
    EXHAUSTED: (codes.NO_SPACE, False),
    UNAVAILABLE: (codes.NO_QUORUM, True),
}
"""What a code says, and whether another endpoint may do better."""

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Etcd:
    """Where it is, and how this node logs in. `endpoints`: URLs without a path. `username`: empty for an
    etcd without users. `tls`: for endpoints with https."""

    endpoints: Sequence[str]
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class _Fault(Exception):
    """A call came to nothing. `elsewhere`: another endpoint may do better."""

    def __init__(self, said: Coded, *, elsewhere: bool) -> None:
        super().__init__(said.sentence)
        self.said, self.elsewhere = said, elsewhere


class _LoginNeeded(Exception):
    """The token is missing or has expired."""


class EtcdDriver:
    """`clock` and `tick_soon`: the shell's."""

    def __init__(
        self, node: Asker, etcd: Etcd, keys: Keys, clock: Callable[[], float], tick_soon: Callable[[], None]
    ) -> None:
        self._node = node
        self._etcd = etcd
        self._keys = keys
        self._clock = clock
        self._tick_soon = tick_soon
        self._loop = asyncio.get_running_loop()
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER))
        self._endpoint = 0
        self._token = ""
        self._login_at = 0.0
        self._login_fault = codes.REFUSED.say(endpoint="", fault="it has given no token")
        self._leasing = asyncio.Lock()
        self._waiting = 0
        self._said = codes.UNREACHABLE.say(faults="etcd has not answered yet")
        self._tasks: set[asyncio.Task[None]] = set()
        self._probe: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._begin(self._look())

    def carry(self) -> None:
        """Take the node's requests of the last tick."""
        for request in self._node.wants_authority():
            self._begin(self._answer(request))

    async def close(self) -> None:
        """The lease goes, so that a backup need not wait for it; what is open is dropped."""
        if self._probe is not None:
            self._probe.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(ANSWER):
                await self._run(release(self._keys))
        except (_Fault, ValueError, TimeoutError):
            pass  # it runs out by itself
        await self._http.close()

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._probe is not None:
            self._probe.cancel()
        self._probe = self._loop.call_later(PROBE, self.start)

    # -- requests

    async def _look(self) -> None:
        """Only for log and status."""
        await self._carry_out(read(self._keys))

    async def _answer(self, request: AuthorityRequest) -> None:
        answer, said = await self._procedure(request)
        self._node.authority_answered(
            request.request_id, answer.outcome, answer.record, self._clock(), said.sentence,
            answer.owner_gone,
        )  # fmt: skip
        self._tick_soon()

    async def _procedure(self, request: AuthorityRequest) -> tuple[EtcdAnswer, Coded]:
        if request.kind == "read" and not request.renews:
            return await self._carry_out(read(self._keys))
        if self._waiting >= MOST_WAITING:
            return EtcdAnswer("unknown", None), self._said
        self._waiting += 1
        try:
            async with self._leasing:  # there is one lease
                if request.kind == "read":
                    return await self._carry_out(renew(self._keys))
                version = RecordVersion(*request.expected) if request.expected is not None else None
                return await self._carry_out(swap(self._keys, version, request.record or {}))
        finally:
            self._waiting -= 1

    async def _carry_out(self, procedure: Generator[Call, Json, EtcdAnswer]) -> tuple[EtcdAnswer, Coded]:
        """Nothing that etcd answers stops the node."""
        try:
            answer = await self._run(procedure)
            said = codes.ANSWERS.say(endpoint=self._host())
        except _Fault as fault:
            answer, said = EtcdAnswer("unknown", None), fault.said
        except Unreadable as error:
            answer = EtcdAnswer("unknown", None)
            said = codes.UNREADABLE.say(key=self._keys.record_key, fault=error)
        except Exception as error:  # whatever it is, the node must have an answer
            answer, said = EtcdAnswer("unknown", None), codes.FAULT.say(endpoint=self._host(), fault=error)
        self._said = said
        self._node.authority_stands(said.code == codes.ANSWERS.name, said)
        return answer, said

    async def _run(self, procedure: Generator[Call, Json, T]) -> T:
        """Raises _Fault."""
        try:
            call = next(procedure)
            while True:
                call = procedure.send(await self._call(call))
        except StopIteration as end:
            result: T = end.value
            return result

    # -- calls

    async def _call(self, call: Call) -> Json:
        """Ask the endpoint that answered last, then each of the others once. Raises _Fault."""
        faults: list[_Fault] = []
        for _ in self._etcd.endpoints:
            asked = self._endpoint
            try:
                return await self._call_logged_in(call)
            except _Fault as fault:
                if not fault.elsewhere:
                    raise
                faults.append(fault)
                if self._endpoint == asked:  # else another call has moved on meanwhile
                    self._endpoint = (asked + 1) % len(self._etcd.endpoints)
        if len({fault.said.code for fault in faults}) == 1 and faults[0].said.code != codes.UNREACHABLE.name:
            raise faults[0]
        told = codes.UNREACHABLE.say(faults="; ".join(fault.said.sentence for fault in faults))
        raise _Fault(told, elsewhere=True)

    async def _call_logged_in(self, call: Call) -> Json:
        try:
            if self._etcd.username and not self._token:
                await self._log_in()
            return await self._post(call)
        except _LoginNeeded:
            await self._log_in()
        try:
            return await self._post(call)
        except _LoginNeeded:
            self._token = ""
            said = codes.REFUSED.say(endpoint=self._host(), fault="it needs a user (ha.etcd.username)")
            raise _Fault(said, elsewhere=False) from None

    async def _log_in(self) -> None:
        """One that was refused is not tried again for LOGIN seconds: a password costs etcd CPU time."""
        self._token = ""
        if not self._etcd.username:
            return
        if self._loop.time() < self._login_at:
            raise _Fault(self._login_fault, elsewhere=False)
        body = {"name": self._etcd.username, "password": self._etcd.password}
        try:
            answer = await self._post(Call("/v3/auth/authenticate", body))
        except _LoginNeeded:
            answer = {}
        except _Fault as fault:
            if not fault.elsewhere:
                self._login_fault, self._login_at = fault.said, self._loop.time() + LOGIN
            raise
        self._token = str(answer.get("token", ""))

    async def _post(self, call: Call) -> Json:
        url = self._etcd.endpoints[self._endpoint]
        headers = {"Authorization": self._token} if self._token else {}
        secure: ssl.SSLContext | bool = self._etcd.tls if self._etcd.tls is not None else True
        try:
            async with self._http.post(
                url + call.path, json=call.body, headers=headers, ssl=secure, allow_redirects=False
            ) as response:
                raw = await _whole(response.content)
                status = response.status
        except TimeoutError:
            raise self._unreachable(f"no answer within {ANSWER:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(_cause(error)) from None
        return self._read(status, raw)

    def _read(self, status: int, raw: bytes) -> Json:
        """The object in an answer. Raises _Fault, or _LoginNeeded."""
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            fault = f"HTTP status {status}, and no JSON object"
            raise _Fault(codes.OTHER_VERSION.say(endpoint=self._host(), fault=fault), elsewhere=True)
        if status == 200 and "error" not in answer:
            return answer
        told = answer.get("message") or answer.get("error") or f"HTTP status {status}"
        fault = " ".join(str(told).split())[:200]
        told_code = answer.get("code")
        code = told_code if isinstance(told_code, int) else 0
        if code == UNAUTHENTICATED or (code == INVALID and any(word in fault for word in LOGIN_AGAIN)):
            raise _LoginNeeded
        if code == NOT_FOUND and "lease not found" in fault:
            return {LEASE_LOST: True}
        entry, elsewhere = FAULTS.get(code, (codes.FAULT, True))
        raise _Fault(entry.say(endpoint=self._host(), fault=fault), elsewhere=elsewhere)

    def _unreachable(self, cause: str) -> _Fault:
        return _Fault(codes.UNREACHABLE.say(faults=f"{self._host()}: {cause}"), elsewhere=True)

    def _host(self) -> str:
        """The endpoint, as sentences name it."""
        return self._etcd.endpoints[self._endpoint].partition("://")[2]


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """An answer, however many pieces it comes in, up to LONGEST."""
    raw = b""
    while len(raw) <= LONGEST and (piece := await content.read(LONGEST)):
        raw += piece
    return raw


def _cause(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientConnectorError) and (number := error.os_error.errno):
        return os.strerror(number).lower() if number > 0 else str(error.os_error.strerror).lower()
    return " ".join(str(error).split())[:200] or type(error).__name__

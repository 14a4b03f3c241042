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
import re
import ssl
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from ha.adapter.authority_port import Asker, AuthorityRequest
from ha.core.record.in_sync_record import RecordVersion
from ha.etcd import codes
from ha.etcd.register import (
    KEEP_ALIVE,
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
"""Seconds without a question that shows whether etcd takes writes, after which that is asked."""
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
        self._logging_in = asyncio.Lock()
        self._logins = 0
        self._login_at = 0.0
        self._login_fault: tuple[int, _Fault] | None = None
        """Of the last login: at which endpoint, and what."""
        self._closed = False
        self._asked = self._told = 0
        """Procedures, numbered as they begin: the latest, and that of which the status was told."""
        self._leasing = asyncio.Lock()
        self._waiting = 0
        self._trouble: Coded | None = None
        self._full: Coded | None = None
        """By the last answer to a write, etcd has no space. The renewals of a primary do not show it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._probe: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if not self._closed:
            self._begin(self._look())

    def carry(self) -> None:
        """Take the node's requests of the last tick; none any more after `close`."""
        if not self._closed:
            for request in self._node.wants_authority():
                self._begin(self._answer(request))

    async def close(self) -> None:
        """The lease goes, so that a backup need not wait for it; what is open is dropped."""
        if self._closed:
            return
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            async with asyncio.timeout(ANSWER):
                await self._run(release(self._keys))
        except (_Fault, ValueError, TimeoutError):
            pass  # it runs out by itself
        finally:
            await self._http.close()

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _probe_later(self) -> None:
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
            late = codes.UNREACHABLE.say(faults="etcd has not answered earlier requests")
            return EtcdAnswer("unknown", None), self._trouble or late
        self._waiting += 1
        try:
            async with self._leasing:  # there is one lease
                if request.kind == "read":
                    return await self._carry_out(renew(self._keys), writes=False)
                version = RecordVersion(*request.expected) if request.expected is not None else None
                return await self._carry_out(swap(self._keys, version, request.record or {}))
        finally:
            self._waiting -= 1

    async def _carry_out(
        self, procedure: Generator[Call, Json, EtcdAnswer], *, writes: bool = True
    ) -> tuple[EtcdAnswer, Coded]:
        """Nothing that etcd answers stops the node. An answer that comes after that of a later question does
        not change the status. `writes`: its success shows that etcd takes writes."""
        if writes:
            self._probe_later()
        self._asked += 1
        number = self._asked
        try:
            answer = await self._run(procedure)
            said = codes.ANSWERS.say(endpoint=self._host(self._endpoint))
        except _Fault as fault:
            answer, said = EtcdAnswer("unknown", None), fault.said
        except Unreadable as error:
            answer = EtcdAnswer("unknown", None)
            said = codes.UNREADABLE.say(key=self._keys.record_key, fault=error)
        except Exception as error:  # whatever it is, the node must have an answer
            answer = EtcdAnswer("unknown", None)
            said = codes.FAULT.say(endpoint=self._host(self._endpoint), fault=_line(error))
        if number > self._told:
            ok = said.code == codes.ANSWERS.name
            if said.code == codes.NO_SPACE.name:
                self._full = said
            elif ok and writes and answer.outcome == "done":
                self._full = None
            told = self._full if ok and self._full is not None else said
            self._told, self._trouble = number, None if told.code == codes.ANSWERS.name else told
            self._node.authority_stands(self._trouble is None, told)
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
        first, count = self._endpoint, len(self._etcd.endpoints)
        for at in ((first + step) % count for step in range(count)):
            try:
                return await self._call_logged_in(at, call)
            except _Fault as fault:
                if not fault.elsewhere:
                    raise
                faults.append(fault)
                if self._endpoint == at:  # else another call has moved on meanwhile
                    self._endpoint = (at + 1) % count
        if len({fault.said.code for fault in faults}) == 1 and faults[0].said.code != codes.UNREACHABLE.name:
            raise faults[0]
        told = dict.fromkeys(fault.said.sentence for fault in faults)
        raise _Fault(codes.UNREACHABLE.say(faults="; ".join(told)), elsewhere=True)

    async def _call_logged_in(self, at: int, call: Call) -> Json:
        """Raises _Fault."""
        token = await self._log_in(at, "")
        try:
            return await self._post(at, call, token)
        except _LoginNeeded:
            if not self._etcd.username:
                raise self._refused(at, "it needs a user (ha.etcd.username)") from None
        token = await self._log_in(at, token)
        try:
            return await self._post(at, call, token)
        except _LoginNeeded:
            raise self._refused(at, "it does not accept its own token") from None

    async def _log_in(self, at: int, stale: str) -> str:
        """A token other than `stale`; empty for an etcd without users. Raises _Fault.

        Calls side by side share one login at an endpoint, and its fault. A login that was refused is not
        tried again for LOGIN seconds: a password costs etcd CPU time.
        """
        if not self._etcd.username:
            return ""
        logins = self._logins
        async with self._logging_in:
            if self._token not in ("", stale):
                return self._token
            if self._login_fault is not None:
                where, last = self._login_fault
                if self._loop.time() < self._login_at or (where == at and self._logins > logins):
                    raise last
            try:
                self._token, self._login_fault = await self._new_token(at), None
            except _Fault as fault:
                self._token, self._login_fault = "", (at, fault)
                if not fault.elsewhere:
                    self._login_at = self._loop.time() + LOGIN
                raise
            finally:
                self._logins += 1
            return self._token

    async def _new_token(self, at: int) -> str:
        body = {"name": self._etcd.username, "password": self._etcd.password}
        try:
            token = (await self._post(at, Call("/v3/auth/authenticate", body), "")).get("token")
        except _LoginNeeded:
            token = None
        if not isinstance(token, str) or not token or not token.isprintable():
            raise self._refused(at, "it has given no token")
        return token

    async def _post(self, at: int, call: Call, token: str) -> Json:
        """Raises _Fault or _LoginNeeded."""
        headers = {"Authorization": token} if token else {}
        secure: ssl.SSLContext | bool = self._etcd.tls if self._etcd.tls is not None else True
        try:
            async with self._http.post(
                self._etcd.endpoints[at] + call.path, json=call.body, headers=headers, ssl=secure,
                allow_redirects=False,
            ) as response:  # fmt: skip
                raw = await _whole(response.content)
                status = response.status
        except TimeoutError:
            raise self._unreachable(at, f"no answer within {ANSWER:g} s") from None
        except aiohttp.ClientResponseError:
            raise self._other_version(at, "it does not answer in HTTP") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(at, _cause(error)) from None
        if call.path == KEEP_ALIVE:  # a stream, with one object a line
            raw = raw.strip().partition(b"\n")[0]
        return self._read(at, status, raw)

    def _read(self, at: int, status: int, raw: bytes) -> Json:
        """The object in an answer. Raises _Fault or _LoginNeeded.

        The gateway tells an error as `{"error": TEXT, "code": N}`, since etcd 3.6 as `{"message": TEXT,
        "code": N}`, and in a stream, whose status is 200, as `{"error": {"message": TEXT, "grpc_code": N}}`.
        """
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._other_version(at, f"HTTP status {status}, and no JSON object")
        if status == 200 and "error" not in answer:
            return answer
        told = answer["error"] if isinstance(answer.get("error"), dict) else answer
        fault = _line(told.get("message") or told.get("error") or f"HTTP status {status}")
        code = told.get("code", told.get("grpc_code"))
        if code == UNAUTHENTICATED or (code == INVALID and any(word in fault for word in LOGIN_AGAIN)):
            raise _LoginNeeded
        if code == NOT_FOUND and "lease not found" in fault:
            return {LEASE_LOST: True}
        entry, elsewhere = FAULTS.get(code if isinstance(code, int) else 0, (codes.FAULT, True))
        raise _Fault(entry.say(endpoint=self._host(at), fault=fault), elsewhere=elsewhere)

    def _unreachable(self, at: int, cause: str) -> _Fault:
        return _Fault(codes.UNREACHABLE.say(faults=f"{self._host(at)}: {cause}"), elsewhere=True)

    def _other_version(self, at: int, fault: str) -> _Fault:
        return _Fault(codes.OTHER_VERSION.say(endpoint=self._host(at), fault=fault), elsewhere=True)

    def _refused(self, at: int, fault: str) -> _Fault:
        return _Fault(codes.REFUSED.say(endpoint=self._host(at), fault=fault), elsewhere=False)

    def _host(self, at: int) -> str:
        """The endpoint, as sentences name it."""
        return self._etcd.endpoints[at].partition("://")[2]


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """An answer, however many pieces it comes in, up to LONGEST."""
    raw = b""
    while len(raw) <= LONGEST and (piece := await content.read(LONGEST)):
        raw += piece
    return raw


def _cause(error: Exception) -> str:
    """Without the endpoint, which the sentence names already."""
    source = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text, number = _line(source), getattr(source, "errno", None) or 0
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not trusted ({_line(why)})"
    if (found := re.search(r"\[SSL: (\w+)\]", text)) or isinstance(source, ssl.SSLError):
        return f"no TLS connection ({found[1].replace('_', ' ').lower() if found else text})"
    if number < 0:  # of the resolver
        return str(getattr(source, "strerror", text)).lower()
    if numbers := [number] if number else [int(each) for each in re.findall(r"\[Errno (\d+)\]", text)]:
        return ", ".join(dict.fromkeys(os.strerror(each).lower() for each in numbers))
    if isinstance(source, aiohttp.ServerDisconnectedError | ConnectionError):
        return "it closed the connection"
    return "its answer breaks off" if isinstance(error, aiohttp.ClientPayloadError) else text


def _line(told: object) -> str:
    """At most 200 characters, in one line."""
    return " ".join(str(told).split())[:200] or type(told).__name__

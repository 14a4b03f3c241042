"""Carries the node's requests to its witness, and the answers back.

Owner: the daemon. One connection, kept open, on the node's event loop: a primary that hangs renews nothing. A
request that is not answered in time is `unknown`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.amqp091.client import SPEAKS_TLS, ClientConnection, Closed, ExtensionReceived, Opened
from broker.amqp091.server.handshake import MANAGEMENT_CAPABILITY
from ha.adapter.authority_port import Asker, AuthorityOutcome, AuthorityRequest
from ha.core.wire.link import Method
from ha.witness import codes
from understudy.shared.codes import Coded
from understudy.shared.tls_faults import fault_of

ANSWER = 1.0
"""Seconds until a request is answered `unknown`."""
CONNECT = 2.0
"""Seconds for a connection and its login."""
REDIAL = (0.2, 2.0)
"""Seconds before the next attempt: the time doubles, with jitter, up to a quarter of the lease. A witness
that has started gives the owner one lease, in which it must be back."""
PROBE = 5.0
"""Seconds without a request after which the witness is asked all the same: status knows of trouble then."""
HEARTBEAT = 2
OUTCOMES = ("done", "conflict", "unknown")


@dataclass(slots=True, frozen=True)
class Where:
    """The witness, and how this node logs in there. `asker`: this process. `seconds`: of its lease."""

    host: str
    port: int
    name: str
    password: str
    asker: tuple[str, int]
    seconds: float
    tls: Callable[[], ssl.SSLContext | None]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class _Lost(Exception):
    """The connection is no more; `said` is the reason."""

    def __init__(self, said: Coded) -> None:
        self.said = said


@dataclass(slots=True)
class _Open:
    """A request on its way. `late`: answers it `unknown`."""

    body: dict[str, Any]
    late: asyncio.TimerHandle


class WitnessDriver:
    """`start` and `close` once; `carry` after each tick of the node."""

    def __init__(
        self, node: Asker, where: Where, clock: Callable[[], float], tick_soon: Callable[[], None]
    ) -> None:
        self._node = node
        self._where = where
        self._clock = clock
        self._tick_soon = tick_soon
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, _Open] = {}
        self._client: ClientConnection | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready = False
        self._trouble = codes.UNREACHABLE.say(address=where.address, cause="it has not answered yet")
        self._probes = 0
        self._probe: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._probe_later()

    def carry(self) -> None:
        """Take the node's requests of the last tick."""
        for request in self._node.wants_authority():
            if self._task is not None:
                self._ask(request.request_id, self._body(request))
                self._probe_later()

    async def close(self) -> None:
        """The lease goes, so that the other node need not wait for it; what is open is dropped."""
        task, self._task = self._task, None
        if self._probe is not None:
            self._probe.cancel()
        for open_one in self._open.values():
            open_one.late.cancel()
        self._open.clear()
        if self._ready:
            self._send({"id": 0, "kind": "release"} | self._common())
            if self._client is not None:
                self._client.close()
                self._flush()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- requests

    def _common(self) -> dict[str, Any]:
        return {"asker": list(self._where.asker), "seconds": self._where.seconds}

    def _body(self, request: AuthorityRequest) -> dict[str, Any]:
        if request.kind == "read":
            kind: dict[str, Any] = {"kind": "renew" if request.renews else "read"}
        else:
            kind = {"kind": "swap", "expected": request.expected, "record": request.record}
        return {"id": request.request_id} | kind | self._common()

    def _ask(self, number: int, body: dict[str, Any]) -> None:
        late = self._loop.call_later(ANSWER, self._late, number)
        self._open[number] = _Open(body, late)
        if self._ready:
            self._send(body)

    def _send(self, body: dict[str, Any]) -> None:
        if self._client is not None:
            self._client.send_extension(Method.WITNESS, json.dumps(body).encode())
            self._flush()

    def _flush(self) -> None:
        if self._client is not None and self._writer is not None and (output := self._client.take_output()):
            self._writer.write(b"".join(output))

    def _probe_later(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        self._probe = self._loop.call_later(PROBE, self._probe_now)

    def _probe_now(self) -> None:
        """Its number is that of no request of the node; only the state matters."""
        self._probes += 1
        self._ask(2**40 + self._probes, {"id": 2**40 + self._probes, "kind": "read"} | self._common())
        self._probe_later()

    # -- answers

    def _late(self, number: int) -> None:
        if self._ready:
            cause = f"no answer within {ANSWER:g} s"
            self._stands(codes.UNREACHABLE.say(address=self._where.address, cause=cause))
        self._answered(number, "unknown", None, self._trouble, owner_gone=False)

    def _heard(self, payload: bytes) -> None:
        """ValueError, KeyError, TypeError: not an answer of a witness."""
        told = json.loads(payload)
        outcome: AuthorityOutcome = told["outcome"]
        number, record = told["id"], told.get("record")
        if outcome not in OUTCOMES or not (record is None or isinstance(record, dict)):
            raise ValueError(f"not an answer: {told!r:.100}")
        address = self._where.address
        if outcome == "unknown":
            said = codes.CANNOT_ANSWER.say(address=address, cause=str(told.get("reason", ""))[:300])
        else:
            said = codes.ANSWERS.say(address=address)
        self._stands(said)
        if isinstance(number, int):
            self._answered(number, outcome, record, said, owner_gone=told.get("owner_gone") is True)

    def _answered(
        self, number: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, said: Coded, *,
        owner_gone: bool,
    ) -> None:  # fmt: skip
        found = self._open.pop(number, None)
        if found is None:
            return
        found.late.cancel()
        if number <= 2**40:
            self._node.authority_answered(number, outcome, record, self._clock(), said.sentence, owner_gone)
            self._tick_soon()

    def _stands(self, said: Coded) -> None:
        ok = said.code == codes.ANSWERS.name
        if not ok:
            self._trouble = said
        self._node.authority_stands(ok, said)

    # -- the connection

    async def _run(self) -> None:
        """Connect, hear, connect again."""
        pause, longest = REDIAL[0], min(REDIAL[1], self._where.seconds / 4)
        while True:
            began = self._loop.time()
            try:
                await self._live()
            except _Lost as lost:
                self._stands(lost.said)
            except Exception as error:  # whatever a broker there says, the node goes on
                cause = " ".join(str(error).split())[:200] or type(error).__name__
                self._stands(codes.UNREACHABLE.say(address=self._where.address, cause=cause))
            finally:
                self._ready, self._client = False, None
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            pause = REDIAL[0] if self._loop.time() - began > CONNECT else min(2 * pause, longest)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _live(self) -> None:
        """One connection. Raises _Lost at its end."""
        where = self._where
        try:
            async with asyncio.timeout(CONNECT):
                reader, self._writer = await asyncio.open_connection(
                    where.host, where.port, ssl=where.tls(), happy_eyeballs_delay=0.25
                )
        except TimeoutError:
            raise self._lost(f"no answer within {CONNECT:g} s") from None
        except ssl.SSLError as error:
            raise self._lost(f"no TLS connection ({fault_of(error)})") from None
        except OSError as error:
            raise self._lost(_cause(error)) from None
        client = self._client = ClientConnection(
            where.name, where.password, self._clock(), capabilities={MANAGEMENT_CAPABILITY: True},
            handshake_timeout=CONNECT, heartbeat=HEARTBEAT,
            client_properties={"connection_name": f"authority of {where.name}"},
        )  # fmt: skip
        while True:
            self._flush()
            due = client.next_deadline()
            wait = None if due is None else max(0.0, due - self._clock())
            try:
                async with asyncio.timeout(wait):
                    data = await reader.read(65536)
            except TimeoutError:
                client.timers(self._clock())
            except OSError as error:
                raise self._lost(_cause(error)) from None
            else:
                if not data:
                    client.eof(self._clock())
                else:
                    client.receive(data, self._clock())
            self._events(client)

    def _events(self, client: ClientConnection) -> None:
        for event in client.events():
            match event:
                case Opened():
                    self._ready = True
                    for each in list(self._open.values()):
                        self._send(each.body)
                case ExtensionReceived(method_id=Method.WITNESS_OK, payload=payload):
                    try:
                        self._heard(payload)
                    except (ValueError, KeyError, TypeError, RecursionError):
                        raise self._lost("it does not answer as a witness") from None
                case Closed(code=code, text=text, by_peer=by_peer):
                    if SPEAKS_TLS in text:
                        raise self._lost("it speaks TLS (amqps://HOST:PORT)")
                    if by_peer and code in (403, 530):
                        raise _Lost(
                            codes.REFUSED.say(address=self._where.address, cause=f"{code} {text}"[:200])
                        )
                    raise self._lost(text.removeprefix("FRAME_ERROR - ") or "it closed the connection")
                case _:
                    raise self._lost("it does not answer as a witness")

    def _lost(self, cause: str) -> _Lost:
        return _Lost(codes.UNREACHABLE.say(address=self._where.address, cause=cause[:200]))


def _cause(error: OSError) -> str:
    """Without the address, which the sentence names already."""
    known = error.errno is not None and error.errno > 0
    return (os.strerror(error.errno or 0) if known else error.strerror or type(error).__name__).lower()

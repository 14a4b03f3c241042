"""WitnessClient: carries this node's requests to the witness of its pair, and the answers back. Owner: Node.

Pure. One peering, kept open. A request that is not answered in time is `unknown`. The node asks in its tick,
so a primary that hangs renews nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from broker.amqp091.client import NO_BROKER, NOT_IN_TIME, SPEAKS_TLS
from ha.adapter.inbox import Arrived, AuthorityAnswered, DialFailed, DialOpen, Inbox, PeerLost
from ha.adapter.peering.peering import PeeringKind
from ha.adapter.witness import codes
from ha.core.deadlines import earliest
from ha.core.wire.link import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.adapter.authority_port import AuthorityDesk, AuthorityOutcome, AuthorityRequest
    from ha.adapter.peering.peerings import Peerings
    from ha.adapter.witness.place import WitnessPlace
    from understudy.shared.codes import Coded

ANSWER = 1.0
"""Seconds until a request is answered `unknown`."""
PROBE = 5.0
"""Seconds without a request after which the witness is asked all the same: status knows of trouble then."""
OUTCOMES = ("done", "conflict", "unknown")
LOGIN_REFUSED = "Login was refused"
"""Of a wrong name and of a wrong password alike."""
NO_PAIR, NO_OPERATOR = "extension method", "may not manage this broker"
"""To a user of another kind."""
NAME = "correct ha.witness_name here (one of ha.witness_for there)"
OWN_SETTINGS = f"login refused with 403; {NAME}, or ha.witness_password"
OR_TLS = "; from another machine it may also want TLS (amqps://HOST:PORT)"
FOR_AMQP = "ha.witness must be the address of a broker for AMQP"
_NO_BROKERS = {
    NO_BROKER: "a web server answers there",
    NOT_IN_TIME: "it takes connections and says nothing: it hangs, or is no broker",
    "the server sent": "what answers there does not speak AMQP 0-9-1",
    "the server speaks another": "what answers there does not speak AMQP 0-9-1",
}
"""By what the handshake came to."""
_NEVER_ASKED = 0
"""The number of a request whose answer concerns nobody: a release, or a probe."""


class WitnessClient:
    """`tick` takes what came, `carry` what the node asks; `release` at its end."""

    def __init__(
        self, place: WitnessPlace, asker: tuple[str, int], seconds: float, peerings: Peerings, answers: Inbox,
        desk: AuthorityDesk,
    ) -> None:  # fmt: skip
        """`asker`: this process; `seconds`: of its lease; `answers`: where the node takes them from."""
        self._place = place
        self._asker = {"asker": list(asker), "seconds": seconds}
        self._peerings = peerings
        self._inbox = Inbox()
        self._answers = answers
        self._desk = desk
        self._peer: int | None = None
        self._open: dict[int, tuple[dict[str, Any], float]] = {}
        """Requests on their way, and when each is answered `unknown`."""
        self._trouble = codes.UNREACHABLE.say(address=place.address, cause="it has not answered yet")
        self._probe_at: float | None = None
        self._probe_due: float | None = None
        peerings.add([(place.host, place.port)], place.login, self._inbox, PeeringKind.WITNESS)

    # -- ticks

    def tick(self, now: float) -> None:
        """Take what came, and give up what is late."""
        for item in self._inbox.take():
            match item:
                case DialOpen(peer=peer):
                    self._peer = peer
                    for body, _ in self._open.values():
                        self._send(body)
                case DialFailed():
                    self._stands(self._failure(item))
                case Arrived(peer=peer, method=method, payload=payload):
                    self._heard(peer, method, payload)
                case PeerLost(clean=clean, refusal=refusal):
                    self._peer = self._probe_due = None
                    unspoken = "it closed the connection" if clean else "the connection broke"
                    self._stands(self._refused(refusal) if refusal else self._unreached(unspoken))
        for number in [number for number, (_, until) in self._open.items() if now >= until]:
            self._late(number)
        if self._probe_due is not None and now >= self._probe_due:
            self._late(_NEVER_ASKED)
        if self._probe_at is None:
            self._probe_at = now + PROBE
        if now >= self._probe_at:
            self._probe_at = now + PROBE
            if self._peer is not None:  # else that is trouble enough
                self._probe_due = now + ANSWER
                self._send({"id": _NEVER_ASKED, "kind": "read"} | self._asker)

    def carry(self, requests: Sequence[AuthorityRequest], now: float) -> None:
        """What the node asks."""
        for request in requests:
            body = self._body(request)
            self._open[request.request_id] = body, now + ANSWER
            self._probe_at = now + PROBE
            self._send(body)

    def release(self) -> None:
        """The lease goes, so that the other node need not wait for it."""
        self._open.clear()
        self._send({"id": _NEVER_ASKED, "kind": "release"} | self._asker)

    def next_deadline(self) -> float | None:
        """Without that of the peering."""
        return earliest(self._probe_at, self._probe_due, *(until for _, until in self._open.values()))

    # -- requests

    def _body(self, request: AuthorityRequest) -> dict[str, Any]:
        if request.kind == "read":
            kind: dict[str, Any] = {"kind": "renew" if request.renews else "read"}
        else:
            kind = {"kind": "swap", "expected": request.expected, "record": request.record}
        return {"id": request.request_id} | kind | self._asker

    def _send(self, body: dict[str, Any]) -> None:
        client = self._peerings.sender(self._peer) if self._peer is not None else None
        if client is not None:
            client.send_extension(Method.WITNESS, json.dumps(body).encode())

    # -- answers

    def _late(self, number: int) -> None:
        if self._peer is not None:
            self._stands(self._unreached(f"no answer within {ANSWER:g} s"))
        self._answered(number, "unknown", None, self._trouble, owner_gone=False)

    def _heard(self, peer: int, method: int, payload: bytes) -> None:
        try:
            told = json.loads(payload)
            outcome: AuthorityOutcome = told["outcome"]
            number, record = told["id"], told.get("record")
            if method != Method.WITNESS_OK or outcome not in OUTCOMES:
                raise ValueError
            if not (record is None or isinstance(record, dict)):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            client = self._peerings.client(peer)
            if client is not None:
                client.close(501, "FRAME_ERROR - not an answer of a witness")
            self._peer = None
            self._stands(self._unreached("it does not answer as a witness"))
            return
        address = self._place.address
        if outcome == "unknown":
            said = codes.CANNOT_ANSWER.say(address=address, cause=str(told.get("reason", ""))[:300])
        else:
            said = codes.ANSWERS.say(address=address)
        self._stands(said)
        # A request that the witness could not read has no number in its answer.
        for answered in [number] if isinstance(number, int) else list(self._open):
            self._answered(answered, outcome, record, said, owner_gone=told.get("owner_gone") is True)

    def _answered(
        self, number: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, said: Coded, *,
        owner_gone: bool,
    ) -> None:  # fmt: skip
        if number == _NEVER_ASKED:
            self._probe_due = None
        if self._open.pop(number, None) is not None:
            answer = AuthorityAnswered(number, outcome, record, said.sentence, owner_gone=owner_gone)
            self._answers.put(answer)

    # -- how it stands

    def _failure(self, failed: DialFailed) -> Coded:
        if failed.refusal:
            return self._refused(failed.refusal)
        limit = self._place.login.limits.handshake_timeout
        cause = failed.unspoken or failed.unresolved or f"no answer within {limit:g} s"
        if (meant := next((said for text, said in _NO_BROKERS.items() if text in cause), "")) != "":
            cause = f"{meant}; {FOR_AMQP}"
        if SPEAKS_TLS in failed.distrust:
            cause = "it speaks TLS (amqps://HOST:PORT)"
        elif failed.distrust:
            cause = f"no TLS connection ({failed.distrust})"
        elif failed.nobody:
            cause = "connection refused"
        return self._unreached(cause)

    def _refused(self, cause: str) -> Coded:
        """What the broker there has said to the login, or to a request."""
        login, address = self._place.login, self._place.address
        if not cause.startswith(("403", "530")):
            return self._unreached(cause)
        if LOGIN_REFUSED in cause:
            cause = OWN_SETTINGS if login.tls else OWN_SETTINGS + OR_TLS
        elif NO_PAIR in cause or NO_OPERATOR in cause:
            cause = f"{login.username!r} is no pair there; {NAME}"
        return codes.REFUSED.say(address=address, cause=cause[:200])

    def _unreached(self, cause: str) -> Coded:
        return codes.UNREACHABLE.say(address=self._place.address, cause=cause[:200])

    def _stands(self, said: Coded) -> None:
        ok = said.code == codes.ANSWERS.name
        if not ok:
            self._trouble = said
        self._desk.stands(ok, said)

"""What the core decides. The node carries effects out strictly in order, each whole before the next.

Owner: HaBroker keeps the list; its parts append. Each docstring says what must be true before it may be
acted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ha.core.record.in_sync_record import InSyncRecord, RecordVersion
from understudy.shared.codes import Coded


@dataclass(slots=True, frozen=True)
class SendMethod:
    """One extension method to a peer. All effects before it must have been done (a save: durable)."""

    peer: int
    method: int
    payload: bytes


@dataclass(slots=True, frozen=True)
class SendStream:
    """Bytes of the link stream to a peer, to be cut into DATA methods. Same condition as SendMethod."""

    peer: int
    parts: list[bytes]


@dataclass(slots=True, frozen=True)
class ClosePeer:
    """Close that connection once its queued output is sent. Nothing may be sent to it afterwards."""

    peer: int
    code: int
    text: str


@dataclass(slots=True, frozen=True)
class ExpelPeer:
    """Close that connection, with 501, for what came from it: the log has its address, too."""

    peer: int
    text: str


@dataclass(slots=True, frozen=True)
class Redial:
    """Dial all peers that are not connected, now: somebody waits for their answer."""


@dataclass(slots=True, frozen=True)
class SaveRecord:
    """Write and fsync this node's copy of a record that the authority has. Effects after it must not happen
    before it is durable; a failure stops.
    """

    record: InSyncRecord
    incomplete: bool


@dataclass(slots=True, frozen=True)
class ReadRegister:
    """Ask the register what it holds. Nothing need be durable before; answered by `authority_answered`.
    `renews`: this node is the owner of the record, and keeps its lease there alive by this."""

    request_id: int
    renews: bool = False


@dataclass(slots=True, frozen=True)
class SwapRegister:
    """Ask the register to replace the record of version `expected` (None: it is empty) by this one. Until
    `authority_answered`, the asking part acts by the stricter of the two records."""

    request_id: int
    expected: RecordVersion | None
    record: InSyncRecord


@dataclass(slots=True, frozen=True)
class FenceOutput:
    """The leadership lease has expired: nothing that confirms or delivers may leave from now on, what
    was produced before in this very tick included. Carried out before any output of the tick is taken.
    """


@dataclass(slots=True, frozen=True)
class ResumeOutput:
    """The leadership lease is renewed: fenced output may leave, and messages are delivered again."""


@dataclass(slots=True, frozen=True)
class PauseInput:
    """A switchover has begun: read nothing more from clients, and deliver nothing new to them. Replies and
    confirms that are due go out. Ends with ResumeInput, or with StopServing."""


@dataclass(slots=True, frozen=True)
class ResumeInput:
    """It came to nothing: serve as before."""


@dataclass(slots=True, frozen=True)
class AdoptCluster:
    """Write and fsync the cluster this node belongs to."""

    cluster_id: str


@dataclass(slots=True, frozen=True)
class TakeNumber:
    """Write and fsync the number that goes into the epochs of this node."""

    number: int


@dataclass(slots=True, frozen=True)
class StartServing:
    """Begin to serve in `epoch`. The record that gives it to this node is committed and durable here (the
    SaveRecord before), and no earlier owner can still be confirming.
    """

    epoch: int


@dataclass(slots=True, frozen=True)
class StopServing:
    """From now on confirm, deliver and accept nothing; close clients with 320 and `reason`. Output that is
    fenced is dropped."""

    reason: str


@dataclass(slots=True, frozen=True)
class Answer:
    """Answer the operator's request `token`. Success is told only when all earlier effects are done."""

    token: int
    ok: bool
    reason: str
    code: str = ""
    """Of a refusal."""


def refused(token: int, said: Coded) -> Answer:
    return Answer(token, False, said.sentence, said.code)


@dataclass(slots=True, frozen=True)
class Log:
    """A decision that was made, for people."""

    said: Coded
    warns: bool = False
    """An operator may have to act on it."""


@dataclass(slots=True, frozen=True)
class Note:
    """One ledger record. Must be handed to the system before any confirm that rests on it."""

    kind: str
    fields: dict[str, Any]


@dataclass(slots=True, frozen=True)
class Announce:
    """Tell subscribed clients of a change of membership: `event` (joining, in-sync, lost, excluded, promoted,
    switchover, queue-reset) of the node `name`. Nothing waits for it."""

    event: str
    node_id: str
    name: str
    reason: str


@dataclass(slots=True, frozen=True)
class Publish:
    """Put a message between nodes onto this node's `amq.peer`, for whoever watches. `kind`: event, request or
    reply; `sender`: a node's name. Nothing waits for it."""

    kind: str
    key: str
    sender: str
    body: dict[str, Any]


Effect = (
    SendMethod | SendStream | ClosePeer | ExpelPeer | Redial | SaveRecord | ReadRegister | SwapRegister
    | FenceOutput | ResumeOutput | PauseInput | ResumeInput | AdoptCluster | TakeNumber | StartServing
    | StopServing
    | Answer | Log
    | Note | Announce | Publish
)  # fmt: skip

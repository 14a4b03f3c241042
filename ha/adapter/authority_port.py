"""The requests that a node has for an outside authority; a driver carries them there and back. Owner: Node.

A driver hands each request to the authority, and answers it once by `Node.authority_answered`: `done`,
`conflict` or `not yet` as the authority says, `unknown` if it does not answer in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ha.adapter import codes
from ha.core.effects import ReadRegister, SwapRegister
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AuthorityOutcome = Literal["done", "conflict", "not yet", "unknown"]
"""`done`: read, or replaced; `conflict`: it holds another version than expected; `not yet`: this
request has written nothing and will not, and the same may be asked for later; `unknown`: no answer, so that a
swap may have happened, may not have, and may yet."""


@dataclass(slots=True, frozen=True)
class AuthorityRequest:
    """`request_id` is never used twice in one process life."""

    request_id: int
    kind: Literal["read", "swap"]
    expected: tuple[int, int] | None = None
    """Of a swap: (epoch, revision) of the record that it replaces; None: the authority holds none."""
    record: dict[str, Any] | None = None
    """Of a swap: what it is to hold, as JSON."""
    renews: bool = False
    """Of a read: this node is the owner of the record, and keeps its lease there alive by it."""


class Asker(Protocol):
    """The node, as a driver sees it."""

    def wants_authority(self) -> Sequence[AuthorityRequest]: ...

    def authority_answered(
        self, request_id: int, outcome: AuthorityOutcome, record: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None: ...  # fmt: skip

    def authority_stands(self, ok: bool, said: Coded) -> None:
        """For status and log: whether the authority answers, and how that comes about."""


def request_of(effect: ReadRegister | SwapRegister) -> AuthorityRequest:
    """The request as drivers see it."""
    if isinstance(effect, ReadRegister):
        return AuthorityRequest(effect.request_id, "read", renews=effect.renews)
    version = effect.expected
    expected = (version.epoch, version.revision) if version is not None else None
    return AuthorityRequest(effect.request_id, "swap", expected, effect.record.as_json())


class AuthorityDesk:
    """The open requests, and the state of the authority as the driver sees it, which is for log and status
    only. `kind`: `ha.authority`."""

    def __init__(
        self, kind: str, log: Callable[[Coded], None], warn: Callable[[Coded], None], *, outside: bool
    ) -> None:  # fmt: skip
        """`outside`: there is one outside the pair to ask."""
        self._kind, self._log, self._warn = kind, log, warn
        self._requests: list[AuthorityRequest] = []
        self.trouble: Coded | None = None
        """Why it commits nothing; None if it does."""
        self._said = codes.AUTHORITY_NOT_ASKED.say() if outside else Coded("", "")
        if kind == "pair" and not outside:
            self._said = codes.PAIR_WITHOUT_WITNESS.say()

    def ask(self, request: AuthorityRequest) -> None:
        self._requests.append(request)

    def take(self) -> list[AuthorityRequest]:
        """The requests since the last call."""
        requests, self._requests = self._requests, []
        return requests

    def stands(self, ok: bool, said: Coded) -> None:
        trouble = None if ok else said
        if trouble != self.trouble and ok:
            self._log(said.about("the authority answers again"))
        elif trouble != self.trouble:
            self._warn(said.about("the authority"))
        self.trouble, self._said = trouble, said

    def status(self) -> dict[str, Any]:
        said = self._said
        return {
            "kind": self._kind, "ok": self.trouble is None, "code": said.code, "reason": said.sentence
        }  # fmt: skip

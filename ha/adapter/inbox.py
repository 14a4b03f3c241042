"""Inbox: what peers sent and did since the last tick, in order of arrival, for the core to take with the
tick's time.

Owner: Node. The broker's hooks (inbound connections) and peerings fill it; it is emptied at the start of
`end_tick`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ha.adapter.authority_port import AuthorityOutcome


@dataclass(slots=True, frozen=True)
class Arrived:
    """An extension method of a peer."""

    peer: int
    method: int
    payload: bytes


@dataclass(slots=True, frozen=True)
class FramesArrived:
    """Frames of plain AMQP of a peer: type, channel, and the whole frame."""

    peer: int
    frames: list[tuple[int, int, bytes]]


@dataclass(slots=True, frozen=True)
class DialOpen:
    """A dial is logged in."""

    peer: int
    address: str


@dataclass(slots=True, frozen=True)
class DialFailed:
    """The dial of that address did not get in. `refusal`: what the broker there said; "" if none answered."""

    address: str
    refusal: str = ""
    nobody: bool = False
    """The kernel there refused the connection: nobody listens."""
    distrust: str = ""
    """Why there is no TLS with whoever is there; empty: there is, or none was wanted, or nobody is."""
    unspoken: str = ""
    """What came of the handshake with whoever listens there, where that has no word of its own in it."""
    unresolved: str = ""
    """Why its name gives no address, so that nobody was dialled; empty: it gives one."""


@dataclass(slots=True, frozen=True)
class PeerCame:
    """A broker of the pair has connected to this one: it can be reached again, most likely."""


@dataclass(slots=True, frozen=True)
class PeerLost:
    """A connection that had spoken is gone. `refusal`: why, if the broker there closed it and said so."""

    peer: int
    clean: bool
    refusal: str = ""


@dataclass(slots=True, frozen=True)
class AuthorityAnswered:
    """The authority's answer to one request. `record`: what it holds, as JSON; None: nothing, or not said.
    `reason`: a sentence for people. `owner_gone`: the lease of the record's owner has run out.
    """

    request_id: int
    outcome: AuthorityOutcome
    record: dict[str, Any] | None
    reason: str = ""
    owner_gone: bool = False


Item = Arrived | FramesArrived | DialOpen | DialFailed | PeerCame | PeerLost | AuthorityAnswered


class Inbox:
    """A queue, and the counter that numbers peers and dials alike."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._peers = 0

    def put(self, item: Item) -> None:
        self._items.append(item)

    def take(self) -> list[Item]:
        items, self._items = self._items, []
        return items

    def new_peer(self) -> int:
        self._peers += 1
        return self._peers

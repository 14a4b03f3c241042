"""What entities of the nodes of a pair say to each other: `PEER_MESSAGE` of extension class 250. A codec."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ha.core.errors import LinkError
from ha.core.record.in_sync_record import count, label

LARGEST = 3072
"""Octets of one message: it fits the smallest frame, and into one of `amq.peer`."""
LONGEST_KEY = 255
"""Octets of a routing key (AMQP 0-9-1, short string)."""


def key_of(event: str, name: str) -> str:
    """The routing key of a node's event: `event.name`, without the end of a name that is too long for it."""
    return f"{event}.{name}".encode()[:LONGEST_KEY].decode("utf-8", "ignore")


@dataclass(slots=True, frozen=True)
class PeerMessage:
    """`key`: its routing key; `sender`: a node's name. `asks`: the number of a request that wants an answer;
    `answers`: the number of the request that this answers."""

    key: str
    sender: str
    cluster_id: str
    body: dict[str, Any] = field(default_factory=dict)
    asks: int | None = None
    answers: int | None = None

    @property
    def kind(self) -> str:
        return "request" if self.asks is not None else "reply" if self.answers is not None else "event"

    def encode(self) -> bytes:
        told: dict[str, Any] = {
            "key": self.key,
            "from": self.sender,
            "cluster": self.cluster_id,
            "body": self.body,
        }
        told |= {"asks": self.asks} if self.asks is not None else {}
        told |= {"answers": self.answers} if self.answers is not None else {}
        return json.dumps(told, separators=(",", ":")).encode()


def parse_peer_message(payload: bytes) -> PeerMessage:
    """LinkError if it is none."""
    if len(payload) > LARGEST:
        raise LinkError(f"a message of {len(payload)} octets between peers, and {LARGEST} are the most")
    try:
        told = json.loads(payload, parse_constant=_no_number)
        key, body = label(told["key"]), told["body"]
        if not 0 < len(key.encode()) <= LONGEST_KEY or not isinstance(body, dict):
            raise ValueError("no key, or no body")
        asks, answers = told.get("asks"), told.get("answers")
        return PeerMessage(
            key, label(told["from"]), label(told["cluster"]), body,
            count(asks) if asks is not None else None, count(answers) if answers is not None else None,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LinkError(f"a message between peers that cannot be read: {error!r}") from error


def _no_number(text: str) -> NoReturn:
    """Python's JSON has more numbers than JSON."""
    raise ValueError(f"{text} is not JSON")

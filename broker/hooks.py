"""All that the broker offers to those who watch it. The broker has never heard of high availability.

`Hooks` is the default: it changes nothing. A high-availability adapter subclasses it. Every call is made on
the broker's one thread, inside a tick, and must not block.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.model.history.records import ExchangeDeclare, QueueDeclare
from broker.model.values import Scope

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue


class Hold(enum.Enum):
    """Answer of `connection_opening`: do not decide yet; ask again later, up to the handshake limit."""

    HOLD = "hold"


@dataclass(slots=True, frozen=True)
class Refusal:
    """Answer of `connection_opening`: close the connection with this reply code and text."""

    code: int
    text: str


class Applicant(Protocol):
    """A connection that is to be let in, as the hooks see it."""

    user: str
    tags: frozenset[str]
    peer_address: str

    @property
    def certificate(self) -> bytes | None:
        """What it has shown of itself, in DER, of an authority that is trusted; None: nothing was asked."""

    def capability(self, name: str) -> bool:
        """Does it say that it has this capability?"""


class ExtensionPeer(Applicant, Protocol):
    """A connection that speaks the extension class 250."""

    def send_extension(self, channel: int, method_id: int, payload: bytes) -> None:
        """Queue one extension method frame; split by the caller so that it fits `extension_room`."""

    @property
    def extension_room(self) -> int:
        """Largest payload in bytes that fits one frame at the negotiated frame_max."""

    @property
    def unsent(self) -> int:
        """Bytes queued and not yet taken by the kernel, for back-pressure."""

    def close(self, code: int, text: str) -> None:
        """Close the connection with connection.close after what is already queued."""

    def expel(self, code: int, text: str) -> None:
        """The same for what it has sent: one line of the log has its address, and `text`."""


class LargeMessage(Protocol):
    """Somebody who wants the octets of a large message while it still comes."""

    def piece(self, octets: bytes | bytearray) -> None:
        """What comes next of it."""

    def whole(self, raw: bytes, at: int) -> None:
        """All has come, and is published now, if it is, as this very object `raw`, in which the pieces begin
        at `at`."""

    def dropped(self) -> None:
        """It is not published. Ignored after `whole`."""


class Sender(Protocol):
    """A connection from which a large message comes."""

    def congest(self, congested: bool) -> None:
        """True: read no more from it. False: go on."""


class Hooks:
    """What an observer may decide or see; this base is a broker on its own."""

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        """Which sinks see this queue. May stamp `declared.replicate`; one stamped UNSET is asked about again
        when the broker begins to serve. On its own: durable ones are stored."""
        return Scope.STORE if declared.durable and not declared.exclusive else Scope.NONE

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        """The same of an exchange."""
        return Scope.STORE if declared.durable else Scope.NONE

    def queue_created(self, queue: Queue) -> None:
        """After a queue came to be, declared or applied: the place to set its id source."""

    def queue_deleted(self, queue: Queue) -> None: ...

    def connection_opening(self, connection: Applicant, *, management: bool) -> Refusal | Hold | None:
        """At connection.open. `management`: the peer claims to speak management or link methods only."""
        return None

    def large_message(self, connection: Sender) -> LargeMessage | None:
        """A large message begins to come from there. None: nobody wants it before it is whole."""
        return None

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        """A method of class 250 arrived from an identity that may send it."""
        connection.close(540, "NOT_IMPLEMENTED - no extension is served here")

    def connection_lost(self, connection: ExtensionPeer, *, clean: bool) -> None:
        """A connection that has sent extension methods is gone."""

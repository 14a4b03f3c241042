"""The broker's whole interface for observers. The broker does not know about high availability.

`Hooks` is the default and changes nothing. The high-availability adapter subclasses it. The broker makes
every call on its one thread, inside a tick; a call must not block.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.model.history.records import ExchangeDeclare, QueueDeclare
from broker.model.values import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.queue.queue import Queue
    from broker.security.identity import Kind, What
    from broker.security.topic_permissions import Topical


class Hold(enum.Enum):
    """Answer of `connection_opening`: undecided; ask again later, up to the handshake limit."""

    HOLD = "hold"


@dataclass(slots=True, frozen=True)
class Refusal:
    """Answer of `connection_opening`: close the connection with this reply code and text."""

    code: int
    text: str


class Applicant(Protocol):
    """A connection at connection.open, as the hooks see it."""

    user: str
    tags: frozenset[str]
    peer_address: str

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate in DER, signed by a trusted authority. None: the listener asked for none."""

    def capability(self, name: str) -> bool:
        """Whether the peer claims this capability."""


class ExtensionPeer(Applicant, Protocol):
    """A connection that uses the extension class 250."""

    @property
    def vhost_name(self) -> str:
        """The virtual host that it opened."""

    def check_access(self, what: What, kind: Kind, name: str) -> None:
        """Raises AccessRefused if its user may not `configure`, `write` or `read` that queue or exchange."""

    def check_topic(self, what: Topical, exchange: str, key: str) -> None:
        """Raises AccessRefused if its user may not use this routing key at that exchange."""

    def send_extension(self, channel: int, method_id: int, payload: bytes) -> None:
        """Queue one extension method frame. The caller splits the payload to fit `extension_room`."""

    @property
    def extension_room(self) -> int:
        """Largest payload in bytes that fits one frame at the negotiated frame_max."""

    @property
    def unsent(self) -> int:
        """Bytes queued and not yet taken by the kernel, for back-pressure."""

    def close(self, code: int, text: str) -> None:
        """Close the connection with connection.close after the queued output."""

    def expel(self, code: int, text: str) -> None:
        """Like `close`, because of the peer's input. Logs one line with its address and `text`."""


class LargeMessage(Protocol):
    """An observer that wants the octets of a large message while it arrives."""

    def piece(self, octets: bytes | bytearray) -> None:
        """The next part of the message."""

    def whole(self, raw: bytes, at: int) -> None:
        """The message is complete. If it is published, then now and as this very object `raw`, in which the
        pieces begin at `at`."""

    def dropped(self) -> None:
        """The message is not published. Ignored after `whole`."""


class Sender(Protocol):
    """A connection that sends a large message."""

    def congest(self, congested: bool) -> None:
        """True: pause reading from it. False: resume."""


class Hooks:
    """What an observer may decide or see. This base class is a broker on its own."""

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        """Which sinks see this queue. May set `declared.replicate`; UNSET is asked again when the broker
        begins to serve. On its own, a broker stores durable queues."""
        return Scope.STORE if declared.durable and not declared.exclusive else Scope.NONE

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        """The same for an exchange."""
        return Scope.STORE if declared.durable else Scope.NONE

    def queue_created(self, queue: Queue) -> None:
        """A queue was declared or applied. Set its id source here."""

    def exchange_created(self, vhost: str, exchange: str) -> None:
        """An exchange was declared. Nothing was published to it yet."""

    def binding_told(self, vhost: str, exchange: str) -> Callable[[], bool] | None:
        """A client waits until other nodes know what the exchange is bound for. Whether they do, from now on;
        None: nobody else has to know."""
        return None

    def queue_deleted(self, queue: Queue) -> None: ...

    def connection_opening(self, connection: Applicant, *, management: bool) -> Refusal | Hold | None:
        """At connection.open. `management`: the peer claims to use management or link methods only."""
        return None

    def large_message(self, connection: Sender) -> LargeMessage | None:
        """A large message begins to arrive. None: no observer wants it before it is complete."""
        return None

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        """A method of class 250 arrived from an identity that may send it."""
        connection.close(540, "NOT_IMPLEMENTED - no extension is served here")

    def connection_lost(self, connection: ExtensionPeer, *, clean: bool) -> None:
        """A connection that has sent extension methods was closed."""

"""The handshake, from the protocol header to connection.open-ok: one state machine per connection.

Owner: `ServerConnection`, which passes it the methods of channel 0 until the connection is open. It decides
on identity and limits and asks the hooks whether to accept the connection. It sends through the connection.
"""

from __future__ import annotations

import enum
import platform
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker.amqp091.codec.frames import FRAME_MIN, PROTOCOL_HEADER
from broker.amqp091.codec.grammar import Method, encode_frame
from broker.amqp091.server.login import MECHANISMS, credentials
from broker.authorization import Access
from broker.errors import AmqpError, CommandInvalid, ConnectionForced, LoginRefused, NotAllowed
from broker.hooks import Hold, Refusal
from broker.security.access import Claim, refusal
from broker.security.certificate_user import EXTERNAL
from understudy.shared.text import short

if TYPE_CHECKING:
    from broker.amqp091.channel_state.host import Host
    from broker.security.tickets import Answer
    from broker.settings import BrokerSettings

PEER_CAPABILITY = "understudy.ha-peer"
"""Claimed by the link of a pair. Needs the tag `ha`, which allows nothing else but management."""
FOLLOWER_CAPABILITY = "understudy.ha-follower"
"""Besides the peer's: claimed by a broker that follows queues of another site."""
FEDERATION_CAPABILITY = "understudy.federation"
"""Besides the peer's: claimed by a federated broker, which takes from exchanges."""
MANAGEMENT_CAPABILITY = "understudy.management"
"""Claimed by operators' tools. Needs the tag `administrator` (or `ha`)."""

_ELSEWHERE = {
    FOLLOWER_CAPABILITY: "a broker of another site that follows queues",
    FEDERATION_CAPABILITY: "a federated broker",
}
_NOT_KNOWN_HERE = "login refused by a broker that does not serve, and may not know all users yet"
_ASK_AGAIN = 0.1
"""Seconds between two calls of the hooks for a connection that they hold."""


class HandshakeStep(enum.Enum):
    """What the connection waits for."""

    HEADER = "protocol header"
    START_OK = "connection.start-ok"
    CHECKING = "the check of its password"
    TUNE_OK = "connection.tune-ok"
    OPEN = "connection.open"
    HELD = "the hooks"
    DONE = "nothing: it is open"


_EXPECTED = {
    "connection.start-ok": HandshakeStep.START_OK,
    "connection.tune-ok": HandshakeStep.TUNE_OK,
    "connection.open": HandshakeStep.OPEN,
}


class Handshake:
    """The handshake of one connection. `deadline`: when it is given up, on the broker's clock."""

    __slots__ = ("_connection", "_name", "_vhost", "deadline", "step")
    __deletable__ = ("_connection",)

    def __init__(self, connection: Host, now: float) -> None:
        self._connection = connection
        self.step = HandshakeStep.HEADER
        self._name = self._vhost = ""
        self.deadline = now + connection.settings.handshake_timeout

    def release(self) -> None:
        """The handshake is over: drop the reference to the connection."""
        del self._connection

    def header(self, data: bytes) -> int:
        """Check the first bytes. Returns the octets consumed, 0 for not enough yet, -1 for refused (bad
        inputs 1, 2).

        Another protocol or version is answered with our header, and the socket is closed.
        """
        if data[:8] == PROTOCOL_HEADER:
            self.step = HandshakeStep.START_OK
            settings = self._connection.settings
            self._connection.send(_start(settings, self._mechanisms))
            return 8
        if PROTOCOL_HEADER.startswith(data):
            return 0
        if len(data) < 8 and data[:4] == PROTOCOL_HEADER[:4]:
            return 0
        self._connection.send(PROTOCOL_HEADER)
        return -1

    def method(self, method: Method, arguments: dict[str, Any], now: float) -> None:
        """Handle a method of channel 0. Raises the AMQP error that ends the connection."""
        if _EXPECTED.get(method.name) is not self.step:
            raise CommandInvalid(f"{method.name} while waiting for {self.step.value}")
        if self.step is HandshakeStep.START_OK:
            self._start_ok(arguments)
        elif self.step is HandshakeStep.TUNE_OK:
            self._tune_ok(arguments)
        else:
            self._open(arguments, now)

    def _start_ok(self, arguments: dict[str, Any]) -> None:
        connection = self._connection
        properties = arguments["client_properties"]
        connection.client_properties = properties
        claimed = properties.get("capabilities")
        connection.capabilities = claimed if isinstance(claimed, dict) else {}
        mechanism = arguments["mechanism"]
        if mechanism == EXTERNAL and connection.offers_external:
            self._name = connection.certified_user
            self.answered(connection.log_in_by_certificate(self._name))
            return
        self._name, password = credentials(mechanism, arguments["response"], self._mechanisms)
        self.step = HandshakeStep.CHECKING
        answer = connection.log_in(self._name, password, mechanism)
        if answer is not None:
            self.answered(answer)

    @property
    def _mechanisms(self) -> str:
        """Those that work here: EXTERNAL only with a client's certificate."""
        return f"{MECHANISMS} {EXTERNAL}" if self._connection.offers_external else MECHANISMS

    def answered(self, answer: Answer) -> None:
        """The login has an answer; the client's input has waited for it. Raises the AMQP error that ends the
        connection."""
        connection = self._connection
        self.step = HandshakeStep.TUNE_OK
        if isinstance(answer, AmqpError):
            self._refuse(answer)
            return
        connection.user, connection.tags = answer.name, answer.tags
        if answer.stored:
            connection.access = Access(connection.broker.directory, answer.name, connection.vhost.name)
        settings = connection.settings
        connection.send(
            encode_frame(
                0, "connection.tune", channel_max=settings.channel_max, frame_max=settings.frame_max,
                heartbeat=settings.heartbeat,
            )
        )  # fmt: skip

    def _refuse(self, why: AmqpError) -> None:
        connection = self._connection
        unchecked = not isinstance(why, LoginRefused)
        if isinstance(why, LoginRefused):
            cause = why.cause
            if not cause and self._claim() is Claim.PEER:
                cause = self._cause_of_a_peer()
            connection.log_refused(self._name, cause)
        if not connection.capability("authentication_failure_close"):
            connection.abandon("login refused, and the client cannot be told")
        elif unchecked:
            connection.close(why.code, why.reply_text)  # `Logins` has already logged it
        elif self._claim() is Claim.APPLICATION and not connection.broker.vhost.serving:
            # A client with a wrong password gives up, but the primary may know the user.
            raise ConnectionForced(_NOT_KNOWN_HERE, 10, 11)
        else:
            why.class_id, why.method_id, why.logged = 10, 11, True
            raise why

    def _tune_ok(self, arguments: dict[str, Any]) -> None:
        connection = self._connection
        settings = connection.settings
        frame_max, channel_max = arguments["frame_max"], arguments["channel_max"]
        if frame_max == 0 or frame_max > settings.frame_max:
            raise NotAllowed(f"negotiated frame_max = {frame_max} is higher than the maximum allowed value")
        if frame_max < FRAME_MIN:
            raise NotAllowed(f"negotiated frame_max = {frame_max} is lower than the minimum allowed value")
        if channel_max == 0 or channel_max > settings.channel_max:
            raise NotAllowed(
                f"negotiated channel_max = {channel_max} is higher than the maximum allowed value"
            )
        connection.tuned(frame_max, channel_max, arguments["heartbeat"])
        self.step = HandshakeStep.OPEN

    def _open(self, arguments: dict[str, Any], now: float) -> None:
        connection = self._connection
        self._vhost = arguments["virtual_host"]
        claim = self._claim()
        error = refusal(connection.user, connection.tags, claim, connection.peer.door)
        if error is not None:
            raise error
        connection.is_management = claim is not Claim.APPLICATION
        self.step = HandshakeStep.HELD
        self.ask(now)

    def _cause_of_a_peer(self) -> str:
        """Why a login of a broker is refused. Only a node of the pair has a login of `ha`."""
        for capability, who in _ELSEWHERE.items():
            if self._connection.capability(capability):
                return f"{who}: no such user, or a wrong password"
        return "a node of a pair; ha.username and ha.password have to be the same on all nodes"

    def _claim(self) -> Claim:
        if self._connection.capability(PEER_CAPABILITY):
            return Claim.PEER
        return Claim.OPERATOR if self._connection.capability(MANAGEMENT_CAPABILITY) else Claim.APPLICATION

    def ask(self, now: float) -> None:
        """Ask the hooks whether to accept the connection; raises if not. They may hold it, and are asked
        again later."""
        connection = self._connection
        answer = connection.broker.hooks.connection_opening(connection, management=connection.is_management)
        if isinstance(answer, Refusal):
            raise RefusedByHooks(answer)
        if isinstance(answer, Hold):
            connection.arm(min(now + _ASK_AGAIN, self.deadline))
            return
        self._enter()
        self.step = HandshakeStep.DONE
        connection.send(encode_frame(0, "connection.open-ok"))
        connection.opened(now)

    def _enter(self) -> None:
        """Enter the virtual host. Not earlier, because this node may not have known it. Raises if it does not
        exist or the user may not open it."""
        connection = self._connection
        vhost = connection.broker.vhosts.get(self._vhost)
        if vhost is None:
            raise NotAllowed(f"vhost {self._vhost[:80]!r} not found")
        if connection.access is not None:
            connection.access = Access(connection.broker.directory, connection.user, vhost.name)
            if not connection.is_management:
                connection.access.check_open()
        connection.broker.let_in(connection, vhost.name)
        connection.vhost = vhost

    def timer(self, now: float) -> None:
        """The limit has passed, or the hooks must be asked again. Raises the error that ends the
        connection."""
        if now < self.deadline:
            if self.step is HandshakeStep.HELD:
                self.ask(now)
            return
        if self.step is HandshakeStep.HELD:
            raise ConnectionForced("this broker did not begin to serve in time; try the next one", 10, 40)
        of_tls = "TLS, then the " if self.step is HandshakeStep.HEADER and self._connection.peer.tls else ""
        self._connection.abandon(f"handshake not finished in time, waiting for {of_tls}{self.step.value}")


class RefusedByHooks(AmqpError):
    """The hooks refused connection.open, with their own code and text."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text, 10, 40)
        self.code = refusal.code

    @property
    def reply_text(self) -> str:
        return short(self.text)


def foreign_protocol(data: bytes) -> str:
    """The log text for a peer that did not begin with our protocol header."""
    if data[:2] == b"\x16\x03":
        return "what it sent is TLS, which this listener does not speak, and no AMQP 0-9-1 protocol header"
    if data[:4] == b"AMQP" and data[5:8] == b"\1\0\0":
        return "what it sent is the header of AMQP 1.0, which this broker or listener does not speak"
    return "what it sent is no AMQP 0-9-1 protocol header"


@lru_cache(16)
def _start(settings: BrokerSettings, mechanisms: str) -> bytes:
    """Cached: the same for every client."""
    return encode_frame(
        0, "connection.start", version_major=0, version_minor=9, mechanisms=mechanisms, locales="en_US",
        server_properties=server_properties(settings),
    )  # fmt: skip


def server_properties(settings: BrokerSettings) -> dict[str, Any]:
    """The server properties in connection.start, with RabbitMQ's names of capabilities.

    Clients depend on `product` and `version`: kombu assumes that any product but RabbitMQ implements
    basic.qos as in the specification (`qos_semantics_matches_spec`).
    """
    return {
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "per_consumer_qos": True,
            "consumer_priorities": True,
            "direct_reply_to": True,
        },
        "cluster_name": settings.cluster_name or settings.name,
        "product": settings.product,
        "version": settings.product_version,
        "understudy_version": settings.version,
        "producer_numbers": True,
        "platform": f"Understudy {settings.version}, Python {platform.python_version()}",
        "copyright": "Licensed under the Apache License 2.0",
        "information": "Understudy, an AMQP broker with a hot standby that works as this product does",
    }

"""Manages a running node as an operator: one question, one answer, over AMQP's extension class 250.

Role: used by every command with an option `-b`, and by the demo. Blocking sockets, one thread. A node accepts
such a connection even while it refuses ordinary clients.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from typing import Any

from broker.amqp091.client import ClientConnection, ClientEvent, Closed, ExtensionReceived, Opened
from understudy import codes
from understudy.client_tls import tls_of
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded, CodedError
from understudy.shared.tls_faults import fault_of

MANAGE = 50
MANAGE_OK = 51
STATUSES = ("standalone", "joining", "catch-up", "ready", "recovering", "active")
SERVING = ("standalone", "recovering", "active")
_ENDINGS = (320, 541)
"""Reply codes of a node that stops or fails, whatever was asked. Other codes are refusals."""
_LOGIN_REFUSED = "403 ACCESS_REFUSED - Login was refused"
CAPABILITIES = {"understudy.management": True}


def could_serve(status: dict[str, Any]) -> bool:
    """Whether the node serves, or could at once. A ready node without a link may have to refuse, because its
    primary may still serve, and may have confirmed messages without it."""
    return status["status"] in SERVING or (status["status"] == "ready" and status["promotable"] is True)


class Unreachable(CodedError):
    """No answer: connection refused, unknown host, timeout, or not an Understudy node."""


class Unanswered(Unreachable):
    """The question was sent, and no answer came. The node may have done what was asked, or still do it."""


class TooLarge(Unreachable):
    """The question does not fit into one frame of the node. Nothing was asked."""


def ask(
    address: HostPort,
    command: str,
    args: dict[str, Any] | None = None,
    *,
    user: str = "guest",
    password: str = "guest",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Send `command` to the node at `address`. Returns its answer, which has `ok` and `reason`.

    Waits at most `timeout` seconds in total. Raises Unreachable, or Unanswered if the command may have been
    carried out.
    """
    deadline = time.monotonic() + timeout
    question = _Question(address, user, command, args or {})
    try:
        with socket.create_connection(address, timeout=min(timeout, 5.0)) as bare:
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with _secured(bare, address) as sock:
                client = ClientConnection(user, password, time.monotonic(), capabilities=CAPABILITIES)
                return _converse(sock, client, question, deadline)
    except TimeoutError:
        raise question.fault(f"{address} did not answer within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise question.fault(f"no TLS with {address}: {fault_of(error)}") from None
    except OSError as error:
        raise question.fault(f"cannot reach {address}: {error.strerror or error}") from None


class _Question:
    """A question to one node. `sent`: at least a part of it was given to the socket."""

    def __init__(self, address: HostPort, user: str, command: str, args: dict[str, Any]) -> None:
        self.sent = False
        self._address = address
        self._user = user
        self._command = command
        self._args = args
        self._answer = bytearray()

    def fault(self, cause: str) -> Unreachable:
        if self.sent:
            return Unanswered(codes.NODE_NO_ANSWER.say(cause=cause))
        return Unreachable(codes.NODE_UNREACHABLE.say(cause=cause))

    def take(self, client: ClientConnection, event: ClientEvent) -> dict[str, Any] | None:
        """The answer, once it is complete. Raises Unreachable."""
        match event:
            case Opened():
                self._send(client)
            case ExtensionReceived(method_id=method_id, payload=payload) if method_id == MANAGE_OK:
                self._answer += payload
                return _whole(self._answer)
            case Closed():
                if event.by_peer and event.code not in _ENDINGS:
                    why = f"{event.code} {event.text}"
                    if why.startswith(_LOGIN_REFUSED):
                        why = "wrong user name or password (403); the log of the node has the cause"
                    refusal = codes.NODE_REFUSED_CONNECTION
                    raise Unreachable(refusal.say(address=self._address, user=self._user, why=why))
                raise self.fault(_closed(self._address, event))
            case _:
                raise self.fault(f"{self._address} did not answer as an Understudy node")
        return None

    def _send(self, client: ClientConnection) -> None:
        text = json.dumps({"command": self._command, "args": self._args}).encode()
        room = client.extension_room
        if len(text) > room:
            raise TooLarge(codes.QUESTION_TOO_LARGE.say(octets=len(text), address=self._address, room=room))
        self.sent = True
        client.send_extension(MANAGE, text)


def _secured(bare: socket.socket, address: HostPort) -> socket.socket:
    """The socket with TLS, if the address asks for it. Raises OSError."""
    tls = tls_of(address)
    return bare if tls is None else tls.context().wrap_socket(bare, server_hostname=address.host)


def _converse(
    sock: socket.socket, client: ClientConnection, question: _Question, deadline: float
) -> dict[str, Any]:
    while True:
        for event in client.events():
            if (answer := question.take(client, event)) is not None:
                _say_goodbye(sock, client)
                return answer
        if output := client.take_output():
            sock.sendall(b"".join(output))
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError
        due = client.next_deadline()
        sock.settimeout(max(0.001, min(deadline, due if due is not None else deadline) - now))
        try:
            data = sock.recv(65536)
        except TimeoutError:
            client.timers(time.monotonic())
            continue
        if data:
            client.receive(data, time.monotonic())
        else:
            client.eof(time.monotonic())
            client.lost(time.monotonic())


def refusal_of(answer: dict[str, Any]) -> Coded:
    """Why the node refused."""
    reason, code = answer.get("reason"), answer.get("code")
    if not reason:
        return codes.NO_REASON.say()
    return Coded(code, str(reason)) if isinstance(code, str) else codes.NODE_REFUSES.say(reason=reason)


def _whole(answer: bytearray) -> dict[str, Any] | None:
    """The answer, once all of its frames have arrived. No part of a JSON object is itself a whole object."""
    if not answer.endswith(b"}"):
        return None
    try:
        found = json.loads(answer)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _closed(address: HostPort, event: Closed) -> str:
    if event.by_peer:
        return f"{address} closed the connection: {event.code} {event.text}"
    return f"{address} ended the connection: {event.text or 'is it an Understudy node?'}"


def _say_goodbye(sock: socket.socket, client: ClientConnection) -> None:
    """Close in order if possible. The answer has arrived, so errors of the connection no longer matter."""
    try:
        client.close()
        sock.sendall(b"".join(client.take_output()))
    except OSError:
        pass

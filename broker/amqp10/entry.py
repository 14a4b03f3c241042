"""The handshake of an AMQP 1.0 client: login, virtual host and permission to open.

Called by `Amqp10Connection`. The rules are those of the 0-9-1 handshake. A client that should try another
broker gets no answer to its open: its connection is closed. The fault is then `FORCED`, and the log has the
reason.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from proton import symbol

from broker.amqp091.server.login import parse_plain
from broker.amqp10.reply_codes import condition_of
from broker.amqp10.steps import Amqp10Step
from broker.authorization import Access
from broker.errors import AmqpError, LoginRefused, NotAllowed, SyntaxError_
from broker.hooks import Hold, Refusal
from broker.model.statistics import AMQP10
from broker.security.access import Claim, refusal
from understudy.shared.amqp10.conditions import FORCED, Fault
from understudy.shared.amqp10.sasl import AUTH, OK, outcome

if TYPE_CHECKING:
    from broker.amqp10.host import Amqp10Host
    from broker.security.tickets import Answer

_VHOST = "vhost:"
_TOLD = ("product", "version", "platform", "producer", "connection_name")
_NUMBERS = ("producer_id", "producer_epoch", "producer_next")
_NOT_KNOWN_HERE = "login refused by a broker that does not serve, and may not know all users yet"


def login(connection: Amqp10Host, response: bytes) -> None:
    """Handle a SASL PLAIN response, and send the outcome."""
    try:
        name, password = parse_plain(response)
    except SyntaxError_:
        _refuse(connection)
        return
    connection.claimed = name
    connection.step = Amqp10Step.CHECKING
    answer = connection.log_in(name, password)
    if answer is not None:
        answered(connection, answer)


def answered(connection: Amqp10Host, answer: Answer) -> None:
    """Handle the answer to a login. A client with a wrong password gives up. So a client whose password may
    be right, here later or elsewhere, is told to try again, but only after its open."""
    broker = connection.broker
    if isinstance(answer, LoginRefused):
        connection.log_refused(connection.claimed, answer.cause)
        if broker.vhost.serving:
            _refuse(connection)
            return
        connection.retry_reason = _NOT_KNOWN_HERE
    elif isinstance(answer, AmqpError):
        connection.retry_reason = answer.text
    else:
        connection.user, connection.tags = answer.name, answer.tags
        if answer.stored:
            connection.access = Access(broker.directory, answer.name, connection.vhost.name)
    connection.send(outcome(OK))
    connection.step = Amqp10Step.AMQP_HEADER


def _refuse(connection: Amqp10Host) -> None:
    connection.send(outcome(AUTH))
    connection.abandon("no user, and so no connection")


def opening(connection: Amqp10Host) -> None:
    """Handle the client's open. Raises the error that closes the connection."""
    if connection.retry_reason:
        raise Fault(FORCED, connection.retry_reason)
    error = refusal(connection.user, connection.tags, Claim.APPLICATION, connection.peer.door)
    if error is not None:
        raise error
    told = connection.engine.remote_properties
    if isinstance(told, dict):
        connection.client_properties = {
            str(key): value for key, value in told.items()
            if (str(key) in _TOLD and isinstance(value, str)) or str(key) in _NUMBERS
        }  # fmt: skip
    ask(connection, connection.now)


def ask(connection: Amqp10Host, now: float) -> None:
    """Ask the hooks whether to accept the connection; raises if not. They may hold it, and are asked again
    later."""
    answer = connection.broker.hooks.connection_opening(connection, management=False)
    if isinstance(answer, Refusal):
        raise Fault(condition_of(answer.code), answer.text)
    if isinstance(answer, Hold):
        connection.hold(now)
        return
    _enter(connection)
    settings, engine = connection.settings, connection.engine
    engine.properties = {
        symbol("product"): "Understudy",
        symbol("version"): settings.version,
        symbol("platform"): f"Python {platform.python_version()}",
        symbol("cluster_name"): settings.name,
        symbol("producer_numbers"): True,
    }
    engine.offered_capabilities = [symbol("ANONYMOUS-RELAY")]
    engine.open()
    connection.admitted(now)


def _enter(connection: Amqp10Host) -> None:
    """Enter the virtual host. Not earlier, because this node may not have known it. As in RabbitMQ, a
    hostname `vhost:NAME` in open selects the virtual host; any other hostname is a machine's."""
    hostname = connection.engine.remote_hostname or ""
    name = hostname.removeprefix(_VHOST) if hostname.startswith(_VHOST) else "/"
    vhost = connection.broker.vhosts.get(name)
    if vhost is None:
        raise NotAllowed(f"vhost {name[:80]!r} not found")
    if connection.access is not None:
        connection.access = Access(connection.broker.directory, connection.user, vhost.name)
        connection.access.check_open()
    connection.broker.let_in(connection, vhost.name)
    connection.vhost = vhost
    vhost.counts[AMQP10].begin(connection.counts)

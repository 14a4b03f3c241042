"""What a connection does when a time of its own has come: handshake, heartbeat, a close that nobody answered.

Called by `ServerConnection`, which keeps the one deadline that it asked the broker for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.amqp091.frames import HEARTBEAT_FRAME
from broker.amqp091.methods import State
from broker.errors import AmqpError
from broker.heartbeat import Verdict

if TYPE_CHECKING:
    from broker.amqp091.connection import ServerConnection


def deadline_came(connection: ServerConnection, now: float) -> None:
    """The next one is armed, if there is to be one."""
    if connection.state is State.OPENING:
        _opening(connection, now)
    elif connection.state is State.CLOSING:
        connection.finish()
    elif connection.state is State.RUNNING:
        _heartbeat(connection, now)


def _opening(connection: ServerConnection, now: float) -> None:
    try:
        connection.handshake.timer(now)
    except AmqpError as error:
        connection.close_for(error)
    if connection.state is State.OPENING:
        connection.arm(connection.handshake.deadline)


def _heartbeat(connection: ServerConnection, now: float) -> None:
    life = connection.life
    verdict = life.check(now, listening=not connection.paused_reading)
    if verdict is Verdict.DEAD:
        connection.abandon(f"no sign of life for {2 * life.interval} s")
        return
    if verdict is Verdict.SEND and not connection.clogged:
        connection.send(HEARTBEAT_FRAME)
    arm_heartbeat(connection)


def arm_heartbeat(connection: ServerConnection) -> None:
    """Be called when one is due, or the peer has been silent for too long."""
    deadline = connection.life.next_deadline()
    if deadline is not None:
        connection.arm(deadline)

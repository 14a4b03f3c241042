"""Carries out operators' operations, a share in each tick, and answers once a change is safe. Owner:
Questions.

An operation changes the model as a client's method does, so its changes are ordinary history. It waits while
clients wait: output is fenced, or a switchover pauses input. If the node stops serving before the answer, the
answer says that nobody knows yet whether the change holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.errors import AmqpError
from broker.model.values import Need
from ha.adapter import codes
from ha.adapter.management.operations import closing, messages, moving, objects
from ha.adapter.management.operations.arguments import Arguments, Fault
from ha.adapter.management.operations.outcome import WAIT, Operation, Outcome
from ha.adapter.management.serving import not_serving

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.steps import Steps
    from broker.model.values import Position
    from ha.core.role import OwnIdentity
    from understudy.shared.codes import Coded

OPERATIONS: dict[str, Operation] = {
    "declare-queue": objects.declare_queue,
    "find-queue": objects.find_queue,
    "delete-queue": objects.delete_queue,
    "purge": objects.purge,
    "declare-exchange": objects.declare_exchange,
    "delete-exchange": objects.delete_exchange,
    "bind": objects.bind,
    "unbind": objects.unbind,
    "get": messages.get,
    "publish": messages.publish,
    "move": moving.move,
    "close-connection": closing.close_connection,
}
MOST = 256
"""Operations at a time."""
Reply = Callable[[dict[str, Any]], None]


_CHANGES = frozenset(OPERATIONS) - {"get", "find-queue"}
"""Those that are logged. What `get` takes is in the ledger, if there is one."""
_NAMES = ("vhost", "name", "to", "to_vhost", "source", "destination", "exchange", "routing_key", "user")
"""Arguments that a line of the log has."""


class OperatedNode(Protocol):
    """The node, as operations use it."""

    broker: Broker
    me: OwnIdentity

    @property
    def log(self) -> Callable[[Coded], None]: ...
    def status(self) -> dict[str, Any]: ...


@dataclass(slots=True, eq=False)
class _Job:
    """An operation under way. `epoch`: in which it was asked for; `began`: it may have changed something."""

    work: Steps[Outcome]
    reply: Reply
    epoch: int
    told: Coded | None
    """The line of the log when it is done."""
    began: bool = False


class _Owed(NamedTuple):
    outcome: Outcome
    reply: Reply
    position: Position


class OperationDesk:
    """Call `tick` before the broker's end of a tick, and `end_tick` after it."""

    def __init__(self, node: OperatedNode) -> None:
        self._node = node
        self._jobs: list[_Job] = []
        self._owed: list[_Owed] = []
        self._busy = False
        """The last tick did some work, and there is more."""

    def ask(
        self, command: str, args: Mapping[str, Any], by: str | None, reply: Reply, source: str | None = None
    ) -> None:
        """Begin an operation by the user `by`; None: root. `source`: the address of an operator over AMQP,
        whose changes are logged here. HTTP has an audit log of its own."""
        broker = self._node.broker
        if (refusal := not_serving(broker.vhosts, self._node.status())) is not None:
            reply(refusal.answer())
        elif len(self._jobs) + len(self._owed) >= MOST:
            reply(codes.OPERATIONS_BUSY.say(most=MOST).answer())
        else:
            work = OPERATIONS[command](broker, by, Arguments(args))
            told = _told(command, args, by, source) if source is not None and command in _CHANGES else None
            self._jobs.append(_Job(work, reply, broker.history.epoch, told))
            self._busy = True

    def tick(self) -> None:
        """Work on the operations in turn, as long as a client's turn lasts."""
        self._busy = False
        if not self._jobs:
            return
        broker = self._node.broker
        self._drop_stale()
        if broker.output_fenced or broker.input_paused:
            return
        room, waiting = broker.settings.share, []
        jobs, self._jobs = self._jobs, []
        while jobs and room > 0:
            job = jobs.pop(0)
            steps = self._step(job)
            if steps is None:
                continue
            if steps == WAIT:
                waiting.append(job)
            else:
                room -= steps
                jobs.append(job)
        self._jobs = jobs + waiting
        self._busy = bool(jobs)

    def _step(self, job: _Job) -> int | None:
        """The steps of its next piece; None: it has ended."""
        job.began = True
        try:
            return next(job.work)
        except StopIteration as end:
            outcome: Outcome = end.value
            if job.told is not None:
                self._node.log(job.told)
            self._owed.append(_Owed(outcome, job.reply, self._node.broker.history.position))
        except Fault as fault:
            job.reply(codes.BAD_ARGUMENTS.say(fault=fault).answer())
        except AmqpError as error:
            said = codes.OPERATION_REFUSED.say(fault=f"{error.label} - {error.text}")
            job.reply(said.answer() | {"amqp": error.code})
        return None

    def _drop_stale(self) -> None:
        """Answer for operations that began before this node stopped serving."""
        broker, jobs, self._jobs = self._node.broker, self._jobs, []
        for job in jobs:
            if broker.vhosts.serving and job.epoch == broker.history.epoch:
                self._jobs.append(job)
                continue
            refusal = None if job.began else not_serving(broker.vhosts, self._node.status())
            job.reply(self._unsure() if refusal is None else refusal.answer())

    def _unsure(self) -> dict[str, Any]:
        return codes.CHANGE_UNSURE.say(node=self._node.me.name).answer() | {"unsure": True}

    def end_tick(self) -> None:
        """Answer for operations whose changes are safe."""
        if self._jobs and not self._node.broker.vhosts.serving:
            self._drop_stale()
        if not self._owed:
            return
        broker, waiting = self._node.broker, []
        for owed in self._owed:
            need, answer = owed.outcome
            if not broker.vhosts.serving or broker.history.epoch != owed.position.epoch:
                owed.reply(self._unsure())
            elif not broker.output_fenced and (
                need is Need.NONE or broker.completion.reached(owed.position, need)
            ):
                owed.reply({"ok": True, "reason": "", **answer})
            else:
                waiting.append(owed)
        self._owed = waiting

    def next_deadline(self) -> float | None:
        """When to end the next tick: at once, if there is work."""
        broker = self._node.broker
        return broker.now if self._busy and not (broker.output_fenced or broker.input_paused) else None


def _told(command: str, args: Mapping[str, Any], by: str | None, source: str) -> Coded:
    """Names come from clients: each is quoted in ASCII, and cut."""
    names = " ".join(f"{key}={str(args[key])[:100]!a}" for key in _NAMES if key in args)
    return codes.OPERATION_DONE.say(user=ascii(by), source=source, command=command, names=names)

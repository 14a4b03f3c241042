"""Questions: operators' requests over AMQP or HTTP, and the answers that are still due. Owner: Node."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ha.adapter import codes
from ha.adapter.management.command_arguments import fault_of
from ha.adapter.management.definitions_view import definitions_of
from ha.adapter.management.directory_changes import DirectoryChanges, DirectoryNode, directory_of
from ha.adapter.management.listing import listing_of
from ha.adapter.management.operations.desk import OPERATIONS, OperationDesk
from ha.adapter.management.serving import not_serving
from ha.adapter.management.status_view import READY, query_of
from ha.adapter.management.tracing import Tracing

if TYPE_CHECKING:
    from ha.adapter.federation.federation import Federation
    from ha.adapter.mirror.mirrors import QueueMirrors
    from ha.adapter.settings import HaSettings
    from ha.core.ha_broker import HaBroker

CONTROLLER = "controller.status"
"""The key of a request for the state of another node's controller."""
Reply = Callable[[dict[str, Any]], None]


class AskedNode(DirectoryNode, Protocol):
    """The node, as operators' requests use it. The methods are those of `Node`."""

    core: HaBroker
    federation: Federation
    mirrors: QueueMirrors
    settings: HaSettings
    now: float

    @property
    def random_bytes(self) -> Callable[[int], bytes]: ...
    def before_output(self, now: float) -> None: ...
    def last_words(self, now: float) -> None: ...
    def look_soon(self, now: float) -> None: ...
    def manage(self, command: str, args: dict[str, Any], reply: Reply, now: float) -> None: ...


class Questions:
    """`ask` carries a command out; `answer` gets the core's later answer."""

    def __init__(self, node: AskedNode) -> None:
        self._node = node
        self._owed: dict[int, Reply] = {}
        self._tokens = 0
        self._directory = DirectoryChanges(node)
        self._operations = OperationDesk(node)
        self._tracing = Tracing(node)

    def tick(self) -> None:
        """Before the broker ends its tick: work on operations."""
        self._operations.tick()

    def end_tick(self) -> None:
        """Answer requests that have become safe."""
        self._directory.end_tick()
        self._operations.end_tick()
        self._tracing.end_tick()

    def next_deadline(self) -> float | None:
        return self._operations.next_deadline()

    def ask(self, command: str, args: dict[str, Any], reply: Reply, now: float) -> None:
        """See `Node.manage`. With the argument `operator` it was asked through a door for people, not by
        the node's own resource manager. `by`: the user who asks, whose permissions hold; without it, root.
        """
        node = self._node
        managed = bool(args.pop("operator", False)) and node.settings.authority == "pacemaker"
        by, source = args.pop("by", None), args.pop("source_address", None)
        if command in OPERATIONS:
            self._operations.ask(command, args, by, reply, source)
            return
        match command:
            case "status" | "ready":
                status = node.status()
                ok = command == "status" or status["status"] in READY
                reply({"ok": ok, "reason": status["reason"], "status": status})
            case "ping" | "query" | "list" | "definitions" | "federation" | "federation-trace" | "directory":
                reply(self._listing(command, args))
            case "trace":
                reply(self._tracing.ask(args, by))
            case "define":
                self._directory.ask(args, reply, by, source)
            case "replicate" | "replicate-stop":
                node.mirrors.ask(command, args, reply, now)
            case "controller" if args.get("do") == "status" and node.core.automatic is not None:
                node.core.messages.request(CONTROLLER, partial(self._controllers, reply), now)
                node.look_soon(now)
            case "promote" | "demote" | "switchover" | "controller":
                if managed and not args.get("force_lossy", False):
                    reply(codes.PACEMAKER_DECIDES.say().answer() | {"status": node.status()})
                else:
                    self._change(command, args, reply, now)
            case _:
                reply(codes.UNKNOWN_COMMAND.say(command=command).answer())

    def _listing(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        """What there is: the answer to a command that changes nothing."""
        node, users = self._node, self._node.broker.settings.users
        if command == "ping":
            return {"ok": True, "reason": f"{node.me.name} is alive"}
        if command == "query":
            return self._query(args.get("from", 0))
        if command == "list":
            return listing_of(node, args)
        if command == "definitions":
            return definitions_of(node.vhosts, users, node.status(), args)
        if command == "federation":
            return {"ok": True, "reason": "", **node.federation.status()}
        if (refusal := not_serving(node.vhosts, node.status())) is not None:
            return refusal.answer()
        if command == "federation-trace":
            return node.federation.trace(args)
        return {"ok": True, "reason": "", **directory_of(node.vhosts.directory, users)}

    def _query(self, begin: object) -> dict[str, Any]:
        if type(begin) is not int or begin < 0:
            return codes.BAD_ARGUMENTS.say(fault="'from' must be the number of a queue, from 0").answer()
        status = self._node.status() | query_of(self._node.vhosts, begin)
        return {"ok": True, "reason": status["reason"], "status": status}

    def _controllers(self, reply: Reply, others: dict[str, dict[str, Any]]) -> None:
        """This node's state, with what the controllers of the others say of themselves."""
        status = self._node.status()
        status["controller"]["others"] = others
        reply({"ok": True, "reason": status["reason"], "status": status})

    def _change(self, command: str, args: dict[str, Any], reply: Reply, now: float) -> None:
        """A change of roles: the core answers, perhaps some ticks later."""
        node = self._node
        if command == "demote":
            node.before_output(now)  # what may not leave any more is to be dropped, not flushed
            node.last_words(now)
        self._tokens += 1
        self._owed[self._tokens] = reply
        match command:
            case "promote":
                force, fenced = bool(args.get("force_lossy")), args.get("fenced") or False
                cluster = node.random_bytes(16).hex()
                node.core.promote(self._tokens, cluster, now, force_lossy=force, fenced=fenced)
                node.look_soon(now)
            case "demote":
                node.core.demote(self._tokens, now)
                node.look_soon(now)
            case "controller":
                node.core.control(self._tokens, str(args["do"]), node.random_bytes(16).hex(), now)
                node.look_soon(now)
            case "switchover":
                node.core.switch_over(self._tokens, args.get("to"), now)

    def answer(self, token: int, ok: bool, reason: str, code: str) -> None:
        """The result of a promotion, demotion or switchover. `code`: of a refusal."""
        reply = self._owed.pop(token, None)
        if reply is not None:
            coded = {"code": code} if code else {}
            reply({"ok": ok, **coded, "reason": reason, "status": self._node.status()})

    def heard(
        self, payload: bytes, reply: Reply, now: float, by: str | None = None, source: str | None = None
    ) -> None:
        """An operator's question over AMQP. `by`, `source`: user and address of the connection."""
        try:
            question = json.loads(payload)
            command, args = str(question["command"]), dict(question.get("args") or {})
            args.pop("operator", None)  # that is said here, not by whoever asks
            fault = fault_of(command, args, vouches=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            reply(codes.NOT_A_QUESTION.say().answer())
            return
        if fault is not None:
            reply(codes.BAD_ARGUMENTS.say(fault=fault).answer())
            return
        args |= {"operator": True, "by": by, "source_address": source}
        self._node.manage(command, args, reply, now)

"""What a command of `ha.pacemaker.procedure` comes to on a virtual node: done, late, failed, not heard of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker.procedure import (
    EXISTS,
    NO_SUCH,
    AskQuorum,
    Command,
    CreateSet,
    QueryCib,
    RaiseAdminEpoch,
    ReplaceSet,
    Result,
)
from ha.pacemaker.standing import Votes
from tests.simulation.pacemaker.cib import MEMBER, Cib, held_of
from tests.simulation.pacemaker.cluster import Change, Cluster

HUNG = 0.02
"""Seconds between two looks whether a CIB daemon, or a host, goes on."""
NOT_CONNECTED = Result(102, error="Not connected")
TIMED_OUT = Result(None, error="no answer in time")


class Shell:
    """One node's. `limit`: seconds after which a command is not waited for any more."""

    def __init__(self, cluster: Cluster, name: str, rng: Random) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.plan = cluster.plan
        self.name = name
        self.rng = rng
        self.failing_until = 0.0
        """Until then each command fails with the chance `fails`, or is late by up to `late` seconds."""
        self.fails = self.late = 0.0

    def run(self, command: Command, answered: Callable[[Result], None]) -> None:
        """`answered` is called once."""
        waits = True

        def settle(result: Result) -> None:
            nonlocal waits
            if waits:
                waits = False
                limit.cancel()
                self._when_awake(partial(answered, result))

        limit = self.clock.after(self.plan.limit, lambda: settle(TIMED_OUT))
        late = self.plan.takes * (0.5 + self.rng.random())
        if self.clock.now < self.failing_until:
            late += self.late * self.rng.random()
            if self.rng.random() < self.fails:
                self.clock.after(late, lambda: settle(NOT_CONNECTED))
                return
        self.clock.after(late, partial(self._begin, command, settle))

    def _begin(self, command: Command, settle: Callable[[Result], None]) -> None:
        """Once the daemon that it is for takes connections."""
        node = self.cluster.nodes[self.name]
        if not node.on:
            settle(NOT_CONNECTED)
        elif node.frozen or (node.hung_until > self.clock.now and not isinstance(command, AskQuorum)):
            self.clock.after(HUNG, partial(self._begin, command, settle))
        else:
            self._do(command, settle)

    def _do(self, command: Command, settle: Callable[[Result], None]) -> None:
        cluster = self.cluster
        match command:
            case QueryCib(node=node):
                target = node or self.name
                if target not in cluster.ring(self.name).members:
                    settle(NOT_CONNECTED)
                    return
                cluster.query(self.name, target, lambda copy: settle(Result(0, copy.xml)))
            case CreateSet(xml=xml):
                cluster.write(self.name, _create(held_of(xml)), lambda code: settle(Result(code)))
            case ReplaceSet(expected=expected, xml=xml):
                change = _replace(_text(expected) or "", held_of(xml))
                cluster.write(self.name, change, lambda code: settle(Result(code)))
            case RaiseAdminEpoch():
                cluster.write(self.name, _raise(command), lambda code: settle(Result(code)))
            case AskQuorum():
                ids = frozenset(str(cluster.names.index(m) + 1) for m in cluster.ring(self.name).members)
                votes = Votes(
                    cluster.quorate(self.name), cluster.expected_votes, cluster.two_node, ids
                )  # fmt: skip
                settle(Result(0, votes=votes))

    def _when_awake(self, action: Callable[[], None]) -> None:
        """A frozen host does nothing."""
        if self.cluster.nodes[self.name].frozen:
            self.clock.after(HUNG, partial(self._when_awake, action))
        else:
            action()


def _create(held: tuple[tuple[str, str], ...]) -> Change:
    def change(copy: Cib) -> tuple[int, Cib]:
        return (EXISTS, copy) if copy.held is not None else (0, copy.with_set(held))

    return change


def _raise(command: RaiseAdminEpoch) -> Change:
    """The XPath of `ha.pacemaker.commands`."""
    here = (command.admin_epoch, command.epoch, _text(command.version))

    def change(copy: Cib) -> tuple[int, Cib]:
        if (copy.admin_epoch, copy.epoch, _held_version(copy)) != here or copy.state(command.node) != MEMBER:
            return NO_SUCH, copy
        return 0, copy.with_admin_epoch(command.admin_epoch + 1)

    return change


def _replace(old: str, held: tuple[tuple[str, str], ...]) -> Change:
    def change(copy: Cib) -> tuple[int, Cib]:
        return (0, copy.with_set(held)) if _held_version(copy) == old else (NO_SUCH, copy)

    return change


def _held_version(copy: Cib) -> str | None:
    return dict(copy.held).get("understudy-version") if copy.held is not None else None


def _text(version: RecordVersion | None) -> str | None:
    return f"{version.epoch}.{version.revision}" if version is not None else None

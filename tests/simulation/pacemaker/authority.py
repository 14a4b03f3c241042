"""The authority of a `pacemaker` plan: each node's helper, which runs the product's own procedures.

For the checkers it stands in for the register: `history` has each record that somebody was told is in force,
in the order in which they replaced each other. What was written and never believed by anybody, on the losing
side of a partition say, is not in it. That what is believed is one line is itself looked into here, since a
CIB is no register: two that replace the same record, or one that was in force when a later one already was,
are two authorities at once (8). The latter misleads nobody who has a later record on its own disk: a node
that was cut off again before it had joined the cluster stands with the CIB of before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker import codes, procedure
from ha.pacemaker.procedure import CibAnswer, Procedure, Register, Result
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import RecordOnDisk
from tests.simulation.harness.journal import Violation
from tests.simulation.pacemaker.cib import Cib
from tests.simulation.pacemaker.cluster import Cluster
from tests.simulation.pacemaker.commands import Shell

Record = dict[str, Any]
Answered = Callable[[AuthorityOutcome, Record | None, str], None]
TOO_LATE, ENDED = codes.HELPER_SILENT.say(), codes.HELPER_ENDED.say(how="killed")
HELPERS = (TOO_LATE, ENDED)
"""What is said of a request that its helper has not answered."""
NOTHING = ""
"""The text of no record."""


@dataclass(slots=True)
class Request:
    """One that a helper works at."""

    host: str
    helper: int
    asked_at: float
    of: AuthorityRequest
    answered: Answered
    open: bool = True


class PacemakerAuthority:
    """Owner: World. `ask` is called by the drivers (machines), from their own hosts."""

    def __init__(self, clock: Clock, cluster: Cluster, random: Callable[[str], Random]) -> None:
        self.clock = clock
        self.cluster = cluster
        self.plan = cluster.plan
        self.shells = {name: Shell(cluster, name, random(f"cibadmin/{name}")) for name in cluster.names}
        self.history: list[tuple[float, Record]] = []
        self.underway: dict[int, Record] = {}
        """Records that it was asked to hold and may yet, by the number of the question."""
        self.on_swap: Callable[[], None] = lambda: None
        self.kept: Callable[[str], RecordOnDisk | None] = lambda host: None
        """The record on the disk of a host."""
        self.binding: Callable[[], bool] = lambda: True
        """False while a promotion is forced: against what is in force where it cannot be read, too."""
        self.lossy_until = 0.0
        self.asked = self.unknown = 0
        self._helpers = dict.fromkeys(cluster.names, 0)
        self._open: list[Request] = []
        self._line: list[str] = [NOTHING]
        """The texts of what was in force, in order."""
        self._parents: dict[str, str] = {}
        """What each record, as text, has replaced on some copy."""
        cluster.on_write = self._written

    @property
    def record(self) -> Record | None:
        return self.history[-1][1] if self.history else None

    @property
    def slow_until(self) -> float:
        """Not calm: somebody is lost, has not joined, or does not answer."""
        return 0.0 if self.cluster.calm else self.clock.now + 1.0

    def could_answer(self, host: str) -> bool:
        """For the checkers, from outside: nobody whom `host` does not reach may run on, or there is a
        majority of three votes or more."""
        cluster = self.cluster
        if not cluster.listens(host):
            return False
        here = {n for n in cluster.names if cluster.there(n) and (n == host or cluster.rings.mutual(host, n))}
        if all(name in cluster.shot for name in cluster.names if name not in here):
            return True
        votes = len(here) + cluster.plan.qdevice
        return not cluster.two_node and 2 * votes > cluster.expected_votes

    def ask(self, host: str, request: AuthorityRequest, answered: Answered) -> None:
        """`answered` is called once, unless the host loses its power."""
        self.asked += 1
        asked = Request(host, self._helpers[host], self.clock.now, request, answered)
        self._open.append(asked)
        register = Register(host)
        if request.kind == "read":
            steps = procedure.read(register)
        else:
            expected = RecordVersion(*request.expected) if request.expected is not None else None
            self.underway[self.asked] = request.record or {}
            steps = procedure.swap(register, expected, request.record or {})
        self.clock.after(
            self.plan.patience, lambda: self._settle(asked, CibAnswer("unknown", None, TOO_LATE))
        )
        self._step(asked, steps, None)

    def kill_helper(self, host: str) -> None:
        """Its requests have no answer; the next ones go to a new one. What runs by then may still be done."""
        self._helpers[host] += 1
        for asked in [one for one in self._open if one.host == host]:
            self._settle(asked, CibAnswer("unknown", None, ENDED))

    def _step(self, asked: Request, steps: Procedure, results: list[Result] | None) -> None:
        """Its next commands, all at once; then the next step. A helper that is gone goes no further."""
        if asked.helper != self._helpers[asked.host]:
            return
        try:
            commands = next(steps) if results is None else steps.send(results)
        except StopIteration as end:
            self._claim(asked, end.value)
            self._settle(asked, end.value)
            return
        found: dict[int, Result] = {}

        def took(number: int, result: Result) -> None:
            found[number] = result
            if len(found) == len(commands):
                self._step(asked, steps, [found[n] for n in range(len(commands))])

        for number, command in enumerate(commands):
            self.shells[asked.host].run(command, lambda result, n=number: took(n, result))  # type: ignore[misc]

    def _settle(self, asked: Request, answer: CibAnswer) -> None:
        if not asked.open:
            return
        asked.open = False
        self._open.remove(asked)
        self.unknown += answer.outcome == "unknown"
        self.clock.detail(f"CIB: {asked.host}: {asked.of.kind}: {answer.outcome}: {answer.said.sentence}")
        asked.answered(answer.outcome, answer.record, answer.said.sentence)

    # -- what was in force

    def _knows_better(self, host: str, told: Record | None) -> bool:
        kept = self.kept(host)
        return kept is not None and (told is None or kept.version > (told["epoch"], told["revision"]))

    def _written(self, name: str, before: Cib, after: Cib) -> None:
        if after.held is None or before.held == after.held:
            return
        old, new = _text(before), _text(after)
        self._parents.setdefault(new, old)
        record: Record = json.loads(new)
        self.clock.note(f"cluster: the CIB of {name} has {_said(record)}")

    def _claim(self, asked: Request, answer: CibAnswer) -> None:
        """A procedure has said that this record is in force."""
        if answer.outcome in ("not yet", "unknown"):
            return
        text = NOTHING if answer.record is None else json.dumps(answer.record, sort_keys=True)
        if text == self._line[-1]:
            return
        if text in self._line:
            later = self.history[self._line.index(text)]
            late = later[0] < asked.asked_at and not self._knows_better(asked.host, answer.record)
            if late and self.binding():
                raise Violation(
                    8, f"{asked.host} is told at {self.clock.now:.3f} s that {_said(answer.record)} is in "
                    f"force, and {_said(later[1])} was before it asked",
                )  # fmt: skip
            return
        line = [text]
        while line[-1] not in self._line:
            if line[-1] not in self._parents:
                raise Violation(8, f"{asked.host} is told of {_said(answer.record)}, and no CIB ever had it")
            line.append(self._parents[line[-1]])
        if line[-1] != self._line[-1] and self.binding():
            raise Violation(
                8, f"{asked.host} is told that {_said(answer.record)} is in force, and so was "
                f"{_said(self.record)}: both have replaced the same record, or one its successor",
            )  # fmt: skip
        common = self._line.index(line[-1])
        del self._line[common + 1 :], self.history[common:]
        for one in reversed(line[:-1]):
            record = json.loads(one)
            self._line.append(one)
            self.history.append((self.clock.now, record))
            self.clock.note(f"cluster: in force: {_said(record)}")
        version = self.history[-1][1]["epoch"], self.history[-1][1]["revision"]
        self.underway = {
            n: r for n, r in self.underway.items() if (r["epoch"], r["revision"]) > version
        }  # fmt: skip
        self.on_swap()


def _text(copy: Cib) -> str:
    """The record of a copy, in one spelling."""
    held = dict(copy.held or ())
    return json.dumps(json.loads(held["understudy-record"]), sort_keys=True) if held else NOTHING


def _said(record: Record | None) -> str:
    if record is None:
        return "no record"
    names = record.get("names", {})
    others = ", ".join(sorted(names.get(node, node[:8]) for node, _ in record["in_sync"])) or "nobody"
    owner = names.get(record["owner"][0], record["owner"][0][:8])
    return f"epoch {record['epoch']} revision {record['revision']}: {owner}, in sync {others}"

"""CIBs for tests: documents as Pacemaker writes them, and a cluster of virtual copies that runs procedures.

The copies here are as plain as can be: a write goes to every copy of the writer's side, at once, or where a
test says that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from ha.core.record.in_sync_record import Incarnation, InSyncRecord, RecordVersion
from ha.pacemaker.cib import set_xml
from ha.pacemaker.procedure import (
    EXISTS,
    NO_SUCH,
    AskQuorum,
    CibAnswer,
    Command,
    CreateSet,
    Procedure,
    QueryCib,
    RaiseAdminEpoch,
    ReplaceSet,
    Result,
)
from ha.pacemaker.standing import Votes

SET = "understudy"
MEMBER = {"in_ccm": "true", "crmd": "online", "join": "member", "expected": "member"}
LOST = {"in_ccm": "false", "crmd": "offline", "join": "down", "expected": "member"}
DOWN = {"in_ccm": "false", "crmd": "offline", "join": "down", "expected": "down"}
STARTING = {"in_ccm": "true", "crmd": "online", "join": "down", "expected": "down"}
LEAVING = {"in_ccm": "true", "crmd": "online", "join": "member", "expected": "down"}
NEWER = {"true": "1763740000", "online": "1763740001", "false": "0", "offline": "0"}
"""The same, from Pacemaker 2.1.7 on."""


def record(epoch: int = 5, revision: int = 1, owner: str = "a", *in_sync: str) -> dict[str, Any]:
    who = frozenset(Incarnation(name * 8, 1) for name in in_sync)
    return InSyncRecord("c", epoch, revision, Incarnation(owner * 8, 1), who, {owner * 8: owner}).as_json()


def version_of(document: Mapping[str, Any]) -> RecordVersion:
    return RecordVersion(document["epoch"], document["revision"])


def set_of(document: Mapping[str, Any], set_id: str = SET) -> str:
    return set_xml(set_id, version_of(document), document)


def cib_xml(
    states: Mapping[str, Mapping[str, str] | None], sets: str = "", *, fencing: str | None = "true",
    admin_epoch: int = 0,
) -> str:  # fmt: skip
    """`states`: by name of node, the attributes of its node_state; None: it has none."""
    ids = {name: str(n) for n, name in enumerate(sorted(states), 1)}
    option = f'<nvpair id="o" name="stonith-enabled" value="{fencing}"/>' if fencing is not None else ""
    nodes = "".join(f'<node id="{ids[name]}" uname="{name}"/>' for name in sorted(states))
    found = "".join(
        f'<node_state id="{ids[name]}" uname="{name}" {" ".join(f"{k}={v!r}" for k, v in state.items())}/>'
        for name, state in states.items()
        if state is not None
    )
    return (
        f'<cib validate-with="pacemaker-3.9" admin_epoch="{admin_epoch}" epoch="7" num_updates="3">'
        f'<configuration><crm_config><cluster_property_set id="cib-bootstrap-options">{option}'
        f"</cluster_property_set>{sets}</crm_config><nodes>{nodes}</nodes><resources/><constraints/>"
        f"</configuration><status>{found}</status></cib>"
    )


@dataclass
class VirtualCibs:
    """Each node's own copy. `states`: how each sees all of them; `sets`: what each holds."""

    states: dict[str, dict[str, Mapping[str, str] | None]]
    sets: dict[str, str] = field(default_factory=dict)
    votes: dict[str, Votes | None] = field(default_factory=dict)
    admin_epochs: dict[str, int] = field(default_factory=dict)
    reaches: Callable[[str, str], bool] = lambda here, there: True
    """Whether a node's CIB daemon answers another node."""
    on_write: Callable[[str], None] = lambda here: None
    """Called after a write on that node."""
    on_raise: Callable[[str], None] = lambda here: None
    asked: list[Command] = field(default_factory=list)

    def run(self, here: str, procedure: Procedure) -> CibAnswer:
        try:
            commands = next(procedure)
            while True:
                commands = procedure.send([self.result(here, command) for command in commands])
        except StopIteration as end:
            answer = end.value
        assert isinstance(answer, CibAnswer)
        assert answer.said.sentence and "\n" not in answer.said.sentence
        return answer

    def result(self, here: str, command: Command) -> Result:
        self.asked.append(command)
        match command:
            case QueryCib(node):
                there = node or here
                if not self.reaches(here, there):
                    return Result(None, error="no answer in time")
                epoch = self.admin_epochs.get(there, 0)
                return Result(0, cib_xml(self.states[there], self.sets.get(there, ""), admin_epoch=epoch))
            case RaiseAdminEpoch(node, _, admin_epoch, _, version):
                held = f"{version.epoch}.{version.revision}" if version is not None else None
                alike = [
                    each for each in self.states
                    if self.reaches(here, each) and self.states[each].get(node) == MEMBER
                    and (self.admin_epochs.get(each, 0), self._version(each)) == (admin_epoch, held)
                ]  # fmt: skip
                self.admin_epochs |= dict.fromkeys(alike, admin_epoch + 1)
                self.on_raise(here)
                return Result(0) if here in alike else Result(NO_SUCH, error="no such device")
            case CreateSet(_, xml):
                if self.sets.get(here):
                    return Result(EXISTS, error="exists")
                return self._written(here, xml)
            case ReplaceSet(_, expected, xml):
                if self._version(here) != f"{expected.epoch}.{expected.revision}":
                    return Result(NO_SUCH, error="no such device")
                return self._written(here, xml)
            case AskQuorum():
                votes = self.votes.get(here)
                return Result(0, votes=votes) if votes else Result(1, error="no quorum information")

    def _version(self, here: str) -> str | None:
        if not self.sets.get(here):
            return None
        pairs = {p.get("name"): p.get("value") for p in ElementTree.fromstring(self.sets[here])}
        return pairs.get("understudy-version")

    def _written(self, here: str, xml: str) -> Result:
        for there in self.states:
            if self.reaches(here, there):
                self.sets[there] = xml
        self.on_write(here)
        return Result(0)


def whole(*names: str) -> VirtualCibs:
    """All of them members, nothing recorded."""
    return VirtualCibs({here: {**dict.fromkeys(names, MEMBER)} for here in names})

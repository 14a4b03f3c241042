"""What Pacemaker's scheduler would do with the shipped configuration: `crm_simulate` on a CIB in a file.

Owner: one test. Each `happens` is one transition, carried out in the file; it answers with what was done and
what waited for what. The agent's part, its promotion scores, is set by the test.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.deploy.cibs import NODES
from tests.deploy.tools import succeed

SCORE = "master-understudy"
"""The node attribute that `crm_attribute --promotion` writes."""
_LEFT_OUT = ("notify", "monitor")


@dataclass(slots=True)
class Transition:
    """Actions as "promote understudy on a" or "fence a", and the graph they were in."""

    done: list[str]
    summary: str
    waits: dict[str, set[str]] = field(default_factory=dict)
    """For each action of the graph, everything that has to succeed first."""
    delays: dict[str, str] = field(default_factory=dict)
    """For each node to be fenced, the lead that it gets."""

    def comes_after(self, later: str, earlier: str) -> bool:
        """Whether the cluster holds `later` until `earlier` has succeeded; both must be in the graph."""
        assert {later, earlier} <= set(self.waits), f"{later} or {earlier} is not in {sorted(self.waits)}"
        return earlier in self.waits[later]


class Simulated:
    """One cluster in a file."""

    def __init__(self, cib: Path, folder: Path) -> None:
        self.cib = folder / "cluster.xml"
        self._graph = folder / "graph.xml"
        self.cib.write_text(cib.read_text())

    def whole(self) -> Self:
        """Both nodes up, brokers started, `a` the primary with the address, `b` its ready backup."""
        self.happens("--node-up", "a", "--node-up", "b")
        self.scores(a=110, b=100)
        self.happens()
        self.scores(a=1000, b=500)
        assert self.happens().done == []
        return self

    def scores(self, **scores: int | str | None) -> None:
        """What the agents on these nodes last said; None: nothing. What has failed there stays counted."""
        tree = ET.parse(self.cib)
        for name, score in scores.items():
            state = tree.find(f"./status/node_state[@uname='{name}']")
            assert state is not None, f"{name} was never up"
            values = state.find("./transient_attributes/instance_attributes")
            if values is None:
                transient = ET.SubElement(state, "transient_attributes", id=NODES[name])
                values = ET.SubElement(transient, "instance_attributes", id=f"status-{name}")
            for old in values.findall(f"./nvpair[@name='{SCORE}']"):
                values.remove(old)
            if score is not None:
                ET.SubElement(values, "nvpair", id=f"score-{name}", name=SCORE, value=str(score))
        tree.write(self.cib)

    def configured(self, *command: str) -> None:
        """Run a tool of the cluster on the file."""
        succeed(*command, CIB_file=str(self.cib))

    def said(self, *command: str) -> str:
        """What a tool of the cluster says of the file."""
        return succeed(*command, CIB_file=str(self.cib))

    def fails(self, node: str, *, fenced: bool) -> None:
        """It falls silent; `fenced`: and what follows is carried out."""
        command = ["crm_simulate", "--xml-file", str(self.cib), "--node-fail", node]
        succeed(*command, "--save-input", str(self.cib))
        if fenced:
            self.happens()

    def happens(self, *options: str) -> Transition:
        """One transition after these events, as options of crm_simulate."""
        command = [
            "crm_simulate",
            "--xml-file",
            str(self.cib),
            "--simulate",
            "--save-graph",
            str(self._graph),
        ]
        said = succeed(*command, "--save-output", str(self.cib), *options)
        summary, _, executed = said.partition("Executing Cluster Transition:")
        executed = executed.partition("Revised Cluster Status:")[0]
        waits, delays = read_graph(self._graph)
        return Transition(list(_actions(executed)), summary, waits, delays)

    def role(self, node: str) -> str:
        """Promoted, Unpromoted or Stopped."""
        said = succeed("crm_resource", "--locate", "--resource", "understudy-clone", CIB_file=str(self.cib))
        found = re.search(rf"is running on: {node}\b *(Promoted|Master)?", said)
        if found is None:
            return "Stopped"
        return "Promoted" if found[1] else "Unpromoted"

    def place(self, resource: str) -> str | None:
        """The node on which it runs."""
        said = succeed("crm_resource", "--locate", "--resource", resource, CIB_file=str(self.cib))
        found = re.search(r"is running on: (\S+)", said)
        return found[1] if found else None


def _actions(executed: str) -> Iterator[str]:
    for line in executed.splitlines():
        if found := re.match(r"  \* Resource action: ([\w-]+)(?::\d+)? +(\w+)(?:=\d+)? on (\w+)", line):
            resource, action, node = found.groups()
            if action not in _LEFT_OUT and action != "cancel":
                yield f"{action} {resource} on {node}"
        elif found := re.match(r"  \* Fencing (\w+)", line):
            yield f"fence {found[1]}"


def read_graph(path: Path) -> tuple[dict[str, set[str]], dict[str, str]]:
    """What waits for what, closed over all steps; and the lead of each node that is to be fenced."""
    names: dict[str, str] = {}
    direct: dict[str, set[str]] = {}
    delays: dict[str, str] = {}
    for synapse in ET.parse(path).iter("synapse"):
        (action,) = synapse.iterfind("action_set/*")
        number, key, node = action.attrib["id"], action.attrib["operation_key"], action.get("on_node", "")
        names[number] = _name(action, key, node)
        if action.tag == "crm_event" and action.get("operation") == "stonith":
            meta = action.find("attributes")
            assert meta is not None
            delays[node] = meta.get("CRM_meta_priority_fencing_delay", "0")
        direct[number] = {each.attrib["id"] for each in synapse.iterfind("inputs/trigger/*")}
    closed = {number: _all_before(number, direct) for number in direct}
    return {names[number]: {names[each] for each in before} for number, before in closed.items()}, delays


def _name(action: ET.Element, key: str, node: str) -> str:
    if action.tag == "crm_event":
        return f"fence {node}" if action.get("operation") == "stonith" else f"{key} on {node}"
    found = re.fullmatch(r"([\w-]+?)(?::\d+)?_(start|stop|promote|demote)_0", key)
    if found is None:
        return f"{key} on {node}" if node else key
    return f"{found[2]} {found[1]}" + (f" on {node}" if node else "")


def _all_before(number: str, direct: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(direct[number])
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            left.extend(direct[each])
    return seen

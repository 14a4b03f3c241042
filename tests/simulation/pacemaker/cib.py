"""One copy of the CIB as a value: its version, how each node stands, and the set of attributes of the record.

As Pacemaker has it: a change of the configuration makes `epoch` greater and `num_updates` 0, one of the
status `num_updates`; what is on a disk has no status.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

Version = tuple[int, int, int]
"""admin_epoch, epoch, num_updates: of two copies the one with the higher of them is taken for both."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the DC wrote of a node: `in_ccm`, `crmd`, `join`, `expected`."""

    in_ccm: bool
    crmd: bool
    join: str
    expected: str

    @property
    def there(self) -> bool:
        """As far as is written."""
        return self.in_ccm or self.crmd


MEMBER = NodeState(True, True, "member", "member")
DOWN = NodeState(False, False, "down", "down")
"""Shut down, or fenced."""


def lost(before: NodeState | None) -> NodeState:
    """It has left, and nobody has fenced it."""
    return NodeState(False, False, "down", before.expected if before is not None else "")


def back(before: NodeState | None) -> NodeState:
    """Corosync has it again, and it has not joined yet."""
    return NodeState(True, False, "down", before.expected if before is not None else "")


@dataclass(frozen=True)
class Cib:
    """`held`: the nvpairs of the set, sorted; None for no set. `states`: by name, sorted."""

    nodes: tuple[str, ...]
    admin_epoch: int = 0
    epoch: int = 1
    num_updates: int = 0
    held: tuple[tuple[str, str], ...] | None = None
    states: tuple[tuple[str, NodeState], ...] = ()
    set_id: str = "understudy"

    @property
    def version(self) -> Version:
        return self.admin_epoch, self.epoch, self.num_updates

    def state(self, name: str) -> NodeState | None:
        return dict(self.states).get(name)

    def with_state(self, name: str, state: NodeState) -> Cib:
        states = dict(self.states)
        if states.get(name) == state:
            return self
        changed = tuple(sorted((states | {name: state}).items()))
        return replace(self, num_updates=self.num_updates + 1, states=changed)

    def with_set(self, held: tuple[tuple[str, str], ...]) -> Cib:
        return replace(self, epoch=self.epoch + 1, num_updates=0, held=held)

    def with_admin_epoch(self, admin_epoch: int) -> Cib:
        if admin_epoch == self.admin_epoch:
            return self
        return replace(self, admin_epoch=admin_epoch, num_updates=self.num_updates + 1)

    def edited(self) -> Cib:
        """Somebody has changed something else in the configuration."""
        return replace(self, epoch=self.epoch + 1, num_updates=0)

    def on_disk(self) -> Cib:
        return replace(self, num_updates=0, states=())

    @cached_property
    def xml(self) -> str:
        """As `cibadmin --query` prints it."""
        numbers = {name: n + 1 for n, name in enumerate(self.nodes)}
        nodes = "".join(f'<node id="{numbers[n]}" uname="{n}"/>' for n in self.nodes)
        states = "".join(
            f'<node_state id="{numbers[n]}" uname="{n}" in_ccm="{str(s.in_ccm).lower()}" '
            f'crmd="{"online" if s.crmd else "offline"}" join="{s.join}" {_expected(s)}/>'
            for n, s in self.states
        )
        return (
            f'<cib admin_epoch="{self.admin_epoch}" epoch="{self.epoch}" num_updates="{self.num_updates}">'
            f"<configuration><crm_config>{_set(self.set_id, self.held)}</crm_config>"
            f"<nodes>{nodes}</nodes></configuration><status>{states}</status></cib>"
        )


def first_cib(nodes: Iterable[str]) -> Cib:
    """Of a cluster whose nodes are all there, before anybody was promoted."""
    names = tuple(nodes)
    return Cib(names, states=tuple((name, MEMBER) for name in names))


def held_of(xml: str) -> tuple[tuple[str, str], ...]:
    """The nvpairs of a set, as a command brings it."""
    root = ElementTree.fromstring(xml)
    return tuple(sorted((p.get("name", ""), p.get("value", "")) for p in root.iter("nvpair")))


def _expected(state: NodeState) -> str:
    return f'expected="{state.expected}"' if state.expected else ""


def _set(set_id: str, held: tuple[tuple[str, str], ...] | None) -> str:
    if held is None:
        return ""
    pairs = "".join(
        f'<nvpair id="{set_id}-{name}" name={quoteattr(name)} value={quoteattr(value)}/>'
        for name, value in held
    )
    return f'<cluster_property_set id="{set_id}">{pairs}</cluster_property_set>'

"""The virtual cluster: each node's copy of the CIB, who is the DC, who has quorum, what disks keep.

A write is said in the writer's ring and done by each member on its own copy, in one order. When a ring forms,
its DC writes down who is there and who was lost; when they have joined, all take the copy with the highest
version. A copy reaches the disk some milliseconds late; a node that lost its power comes back with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Network
from tests.simulation.pacemaker.cib import DOWN, MEMBER, Cib, NodeState, back, first_cib, lost
from tests.simulation.pacemaker.plan import PacemakerPlan
from tests.simulation.pacemaker.rings import Ring, Rings

QNETD = "qnetd"
"""The host of the quorum device."""
COMPARED = 0.5
"""Seconds between two looks of a DC whether all copies are the same."""

Change = Callable[[Cib], tuple[int, Cib]]
"""What a write makes of a copy: the return code, and the copy after it."""


@dataclass(slots=True)
class ClusterNode:
    """The cluster's processes on one host."""

    copy: Cib
    disk: Cib
    on: bool = True
    life: int = 1
    frozen: bool = False
    ended: bool = False
    """Its processes were killed, and the host goes on."""
    seen_all: bool = True
    """`wait_for_all`: it has been in one ring with all others since it started."""
    hung_until: float = 0.0
    """Its CIB daemon answers nobody, and does nothing, until then."""
    behind: bool = False
    """It lost a change of the record with its power, and has not taken the copy of the others yet."""


class Cluster:
    """Owner: World. `changed` is to be called when hosts or ways have come or gone."""

    def __init__(
        self, clock: Clock, network: Network, plan: PacemakerPlan, rng: Random, names: list[str]
    ) -> None:
        self.clock = clock
        self.network = network
        self.plan = plan
        self.rng = rng
        self.names = sorted(names)
        first = first_cib(self.names)
        self.nodes = {name: ClusterNode(first, first.on_disk()) for name in self.names}
        self.rings = Rings(clock, rng, self.names, plan.token, self.there, self._reaches, self.listens)
        self.rings.formed = self._formed
        whole = self.rings.of[self.names[0]]
        self._dc: dict[Ring, str] = {whole: self.names[0]}
        self._joined: Ring = whole
        """The last ring whose members have all joined."""
        self._device: Ring = whole
        """The one that the quorum device votes for."""
        self.shot: set[str] = set()
        """Whose power the switch took, and who has not joined any other node since."""
        self.armed: list[Callable[[str], None]] = []
        """Called once each, with the writer, when it has written to the record's set and nobody else has."""
        self.on_write: Callable[[str, Cib, Cib], None] = lambda name, before, after: None
        """Told of each change of a copy."""

    # -- who is there

    def there(self, name: str) -> bool:
        node = self.nodes[name]
        return node.on and not node.frozen

    def listens(self, name: str) -> bool:
        """Its CIB daemon works."""
        return self.there(name) and self.nodes[name].hung_until <= self.clock.now

    def _reaches(self, source: str, target: str) -> bool:
        return not self.network.blocked(source, target)

    def ring(self, name: str) -> Ring:
        return self.rings.of[name]

    def current(self, ring: Ring) -> bool:
        return any(self.rings.of[m] is ring and self.nodes[m].on for m in ring.members)

    def dc(self, ring: Ring) -> str:
        return self._dc[ring]

    def coordinators(self) -> Iterator[tuple[str, Ring]]:
        """Each DC that can act, with its ring."""
        for name in self.names:
            ring = self.rings.of[name]
            if self.listens(name) and self._dc.get(ring) == name:
                yield name, ring

    @property
    def calm(self) -> bool:
        """All are in one ring, have joined, and answer."""
        ring = self._joined
        return len(ring.members) == len(self.names) and all(
            self.rings.of[name] is ring and self.listens(name) for name in self.names
        )

    # -- quorum

    @property
    def two_node(self) -> bool:
        return len(self.names) == 2 and not self.plan.qdevice

    @property
    def expected_votes(self) -> int:
        return len(self.names) + self.plan.qdevice

    def quorate(self, name: str) -> bool:
        """As votequorum says there: `two_node` and `wait_for_all` are as in the configuration shipped."""
        ring = self.rings.of[name]
        if not self.nodes[name].seen_all:
            return False
        return self.two_node or 2 * self.votes(ring) > self.expected_votes

    def votes(self, ring: Ring) -> int:
        return len(ring.members) + (self.plan.qdevice and ring is self._device and self._hears_device(ring))

    def _hears_device(self, ring: Ring) -> bool:
        return any(self._reaches(m, QNETD) and self._reaches(QNETD, m) for m in sorted(ring.members))

    # -- power, freezes, ends of the cluster's processes

    def changed(self) -> None:
        """Hosts or ways have come or gone."""
        for name, node in self.nodes.items():
            if name in self.network.down:
                node.ended = False
                if node.on:
                    self.stop(name)
            elif not node.on and not node.ended:
                self.start(name)
        self.rings.changed()

    def stop(self, name: str) -> None:
        """Its cluster processes are gone at once: with the power, or killed."""
        node = self.nodes[name]
        node.on, node.frozen, node.seen_all, node.hung_until = False, False, False, 0.0
        self._keep_one(name)
        node.behind = node.behind or node.copy.held != node.disk.held
        node.copy = node.disk
        self.rings.left(name)
        self._dc[self.rings.of[name]] = name

    def end(self, name: str) -> None:
        """Somebody kills them."""
        if self.nodes[name].on:
            self.stop(name)
            self.nodes[name].ended = True
            self.rings.changed()

    def start(self, name: str) -> None:
        node = self.nodes[name]
        if node.on or name in self.network.down:
            return
        node.on, node.ended, node.life = True, False, node.life + 1
        node.seen_all = len(self.names) == 1
        self.rings.began(name)

    def freeze(self, name: str, frozen: bool) -> None:
        node = self.nodes[name]
        if node.on and node.frozen != frozen:
            node.frozen = frozen
            self.rings.changed()

    def hang(self, name: str, until: float) -> None:
        """Its CIB daemon; corosync goes on."""
        self.nodes[name].hung_until = until

    def _keep_one(self, name: str) -> None:
        """Left out: that the power goes everywhere within the milliseconds that a copy takes to a disk."""
        node = self.nodes[name]
        mine = _config(node.copy)
        others = [n for other, n in self.nodes.items() if other != name]
        if mine > _config(node.disk) and not any(_config(n.copy if n.on else n.disk) >= mine for n in others):
            node.disk = node.copy.on_disk()

    # -- writes and queries

    def write(self, name: str, change: Change, answered: Callable[[int], None] = lambda code: None) -> None:
        """Said in the ring of `name`; `answered` when that node itself has done it."""
        life = self.nodes[name].life

        def hear(member: str) -> None:
            before = self.nodes[member].copy
            code, copy = change(before)
            self._put(member, copy)
            if member == name and self.nodes[name].life == life:
                if self.armed and copy.held != before.held:
                    self.armed.pop(0)(name)
                answered(code)

        self.rings.send(name, hear)

    def query(self, name: str, target: str, answered: Callable[[Cib], None]) -> None:
        """The copy of `target`, asked for at `name`: its own at once, another's by way of the ring."""
        if target == name:
            answered(self.nodes[name].copy)
            return
        life = self.nodes[name].life

        def ask(member: str) -> None:
            if member == target:
                copy = self.nodes[target].copy
                self.rings.send(target, lambda hearer: tell(hearer, copy))

        def tell(member: str, copy: Cib) -> None:
            if member == name and self.nodes[name].life == life:
                answered(copy)

        self.rings.send(name, ask)

    def set_state(self, name: str, of: str, state: NodeState) -> None:
        self.write(name, lambda copy: (0, copy.with_state(of, state)))

    def fenced(self, name: str, target: str) -> None:
        """`name` has it from the switch that `target` is down."""
        self.set_state(name, target, DOWN)

    def _put(self, name: str, copy: Cib) -> None:
        node = self.nodes[name]
        before, node.copy = node.copy, copy
        if copy is before:
            return
        if _config(copy) != _config(before) or copy.held != before.held:
            late = self.plan.write_out * self.rng.random()
            self.clock.after(late, partial(self._write_out, name, node.life))
        self.on_write(name, before, copy)

    def _write_out(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if node.on and node.life == life:
            node.disk = node.copy.on_disk()

    # -- what a DC does

    def _formed(self, ring: Ring, before: dict[str, Ring]) -> None:
        dcs = sorted({self._dc[old] for old in before.values()} & ring.members)
        self._dc[ring] = dcs[0] if dcs else min(ring.members)
        for name in ring.members:
            self.nodes[name].seen_all |= len(ring.members) == len(self.names)
        if ring.members & self._device.members and self._hears_device(ring):
            self._device = ring
        self.clock.note(f"cluster: {', '.join(sorted(ring.members))} form a ring, {self._dc[ring]} is its DC")
        elects = (0.02 if dcs else self.plan.election) * (0.5 + self.rng.random())
        self.clock.after(elects, partial(self._write_states, ring))
        self.clock.after(elects + self.plan.join * (0.5 + self.rng.random()), partial(self._join, ring))

    def _write_states(self, ring: Ring) -> None:
        """Who is in the ring, and who is not any more."""
        if not self.current(ring):
            return
        dc = self._dc[ring]
        copy = self.nodes[dc].copy
        for name in self.names:
            state = copy.state(name)
            if name in ring.members and (state is None or not state.in_ccm):
                self.set_state(dc, name, back(state))
            elif name not in ring.members and (self.nodes[dc].seen_all if state is None else state.there):
                self.set_state(dc, name, lost(state))

    def _join(self, ring: Ring) -> None:
        """All take the best copy, and are members then."""
        if not self.current(ring):
            return
        if not self.rings.caught_up(ring):
            self.clock.after(0.05, partial(self._join, ring))
            return
        self._equalize(ring)
        self._write_states(ring)
        for name in sorted(ring.members):
            self.set_state(self._dc[ring], name, MEMBER)
        self.clock.after(0.05, partial(self._compare, ring))

    def _compare(self, ring: Ring) -> None:
        if not self.current(ring):
            return
        if self.rings.caught_up(ring):
            copies = [self.nodes[m].copy for m in sorted(ring.members)]
            if any(copy != copies[0] for copy in copies):
                self._join(ring)
                return
            if any(copies[0].state(m) != MEMBER for m in sorted(ring.members)):
                self._join(ring)
                return
            self._joined = ring
            if len(ring.members) > 1:
                self.shot -= ring.members
                for name in ring.members:
                    self.nodes[name].behind = False
        self.clock.after(0.05 if self._joined is not ring else COMPARED, partial(self._compare, ring))

    def _equalize(self, ring: Ring) -> None:
        dc = self._dc[ring]
        copies = {m: self.nodes[m].copy for m in sorted(ring.members)}
        first = sorted(copies, key=lambda m: (m != dc, m))
        best = max((copies[m] for m in first), key=lambda copy: copy.version)
        if all(copy == best for copy in copies.values()):
            return
        giver = next(m for m in first if copies[m] is best)
        self.clock.note(f"cluster: {', '.join(sorted(ring.members))} take the CIB of {giver}: {best.version}")

        def adopt(name: str) -> None:
            if best.version >= self.nodes[name].copy.version:
                self._put(name, best)

        self.rings.send(dc, adopt)


def _config(copy: Cib) -> tuple[int, int]:
    return copy.admin_epoch, copy.epoch

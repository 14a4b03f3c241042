"""An operator who sets policies on a node that serves: in the node's own time, between two of its ticks.

A policy comes into history before the queue that it is for is declared there, and is replaced by one that
says the same in one batch. So whoever has the queue has a policy for it, and the rules of the queue are at
any time those of its user's plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from broker.model.history.records import EntryDelete, EntryPut
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Address

Change = EntryPut | EntryDelete


class Governor:
    """Of all machines."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = {machine.address: machine for machine in machines}

    def change(self, address: Address, changes: Sequence[Change], done: Callable[[bool], None]) -> None:
        """Put and delete policies there; `done(False)` if it does not serve, or takes nothing for now."""
        machine = self._machines[address]
        machine.hear(partial(_change, machine, changes, done))


def _change(machine: Machine, changes: Sequence[Change], done: Callable[[bool], None]) -> None:
    node = machine.running
    taken = node.vhost.serving and not node.broker.input_paused and not node.broker.output_fenced
    if taken:
        node.vhosts.change_directory(changes)
    done(taken)

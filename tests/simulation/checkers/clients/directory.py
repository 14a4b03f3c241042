"""What an operator was told of users is so on whoever serves next; a change of two is never half one (6)."""

from __future__ import annotations

from tests.simulation.clients.registrar import Registrar, number_of
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine


class Directory6:
    """6, for users and permissions: after an answer they are as it says on every node that comes to serve, a
    cold start included; of a change without an answer all is so, or nothing."""

    def __init__(self, registrar: Registrar) -> None:
        self.registrar = registrar
        self.checked = 0

    def look(self, machine: Machine, when: str) -> None:
        """It serves, and its copy is whole."""
        directory = machine.running.vhosts.directory
        for name, numbers in self.registrar.users.items():
            self.checked += 1
            found = number_of(directory, name)
            if found is None:
                raise Violation(6, f"{machine.name}, {when}, has half of a change of user {name}")
            if found not in numbers:
                raise Violation(
                    6, f"{machine.name}, {when}, has number {found} of user {name}, against the answer that "
                    f"its operator got for {sorted(numbers)}",
                )  # fmt: skip

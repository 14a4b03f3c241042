"""An operator who makes, changes and deletes users, one at a time, by the management method.

A user, its permissions and its limits are changed in one question and say the same number, so that half of a
change shows.
What an answer has said is so from then on; after a question without one, or with one that does not know,
either may be so: that user is left alone afterwards.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from broker.model.vhost.directory import Directory
from broker.security.topic_permissions import topic_name
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Network
from tests.simulation.harness.operator import SERVING, Question, Reply

TOPIC = "amq.topic"
ELSEWHERE = 0.1
"""Part of the questions that go to whoever it may be."""


class Registrar:
    """`users`: by name the numbers of which one it has, 0 for none; after an answer there is only one.

    `interval`: seconds between two questions, about; 0: it asks for nothing.
    """

    def __init__(
        self, clock: Clock, network: Network, rng: Random, interval: float, machines: list[Machine]
    ) -> None:
        self.clock, self.network, self.rng = clock, network, rng
        self.interval = interval
        self.machines = machines
        self.users: dict[str, frozenset[int]] = {}
        self.finishing = interval <= 0
        self._asking = False
        self._number = 0

    @property
    def finished(self) -> bool:
        return self.finishing and not self._asking

    def start(self) -> None:
        if not self.finishing:
            self.clock.after(self.interval * (0.5 + self.rng.random()), self._next)

    def _next(self) -> None:
        if self.finishing:
            return
        machine = self._whom()
        if machine is None:
            self.start()
            return
        sure = sorted(name for name, numbers in self.users.items() if len(numbers) == 1)
        if sure and self.rng.random() < 0.6:
            name = self.rng.choice(sure)
        else:
            name = f"u{len(self.users) + 1}"
        (now,) = self.users.get(name, frozenset((0,)))
        self._number += 1
        number = 0 if now and self.rng.random() < 0.4 else self._number
        self.users[name] = frozenset((now, number))
        self._asking = True
        Question(
            self.clock, self.network, machine, "define", partial(self._answered, name, now, number),
            asker="operator of users", args={"changes": changes_of(name, number)},
        )  # fmt: skip

    def _whom(self) -> Machine | None:
        running = [machine for machine in self.machines if machine.node is not None]
        serving = [machine for machine in running if machine.role() in SERVING]
        there = running if not serving or self.rng.random() < ELSEWHERE else serving
        return self.rng.choice(there) if there else None

    def _answered(self, name: str, before: int, number: int, reply: Reply | None) -> None:
        self._asking = False
        if reply is not None and reply.get("ok"):
            self.users[name] = frozenset((number,))
        elif reply is not None and not reply.get("unsure"):
            self.users[name] = frozenset((before,))
        self.start()


def changes_of(name: str, number: int) -> list[dict[str, Any]]:
    """Of the management command `define`; number 0: the user is to be no more."""
    user = {"kind": "user", "vhost": "", "name": name}
    if not number:
        return [{"action": "delete", **user}]
    expressions = {"configure": f"^{number}$", "read": "", "write": ""}
    topics = {"read": "", "write": f"^{number}$"}
    return [
        {"action": "put", **user, "value": {"password_hash": "", "tags": [str(number)]}},
        {"action": "put", "kind": "permission", "vhost": "/", "name": name, "value": expressions},
        {"action": "put", "kind": "topic-permission", "vhost": "/", "name": topic_name(name, TOPIC),
         "value": topics},
        {"action": "put", "kind": "user-limits", "vhost": "", "name": name,
         "value": {"max-channels": number}},
    ]  # fmt: skip


def number_of(directory: Directory, name: str) -> int | None:
    """Which one it is there; 0: there is no such user; None: it is half of one."""
    user, permission = directory.users.get(name), directory.permissions.get(("/", name))
    topics = directory.topic_permissions.get(("/", name), {}).get(TOPIC)
    limits = directory.user_limits.get(name)
    if user is None or permission is None or topics is None or limits is None:
        return 0 if user is permission is topics is limits else None
    (tag,) = user.tags
    same = permission.configure == topics.write == f"^{tag}$" and limits == {"max-channels": int(tag)}
    return int(tag) if same else None

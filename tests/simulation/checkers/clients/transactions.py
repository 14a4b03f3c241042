"""Transactions are all or nothing, and once commit-ok is out they are all (7).

Looked into when commit-ok leaves a node, on a node that was just promoted, at quiet points, and with each
message that a mover is delivered. What is not known of a transaction (its connection went before the answer)
is concluded from what the queues hold; two conclusions that exclude each other are a half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.simulation.checkers.clients.confirms import Confirms2and3and5
from tests.simulation.checkers.copies.stored import live_on_disk
from tests.simulation.clients.mover import Mover, Sent, State, Transaction
from tests.simulation.harness.inspection import held, key_of, vhost_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


class Transactions7:
    """7: when commit-ok leaves, every backup in the record has all that was published, and nothing of what
    was acked, on disk too where it must be so. From then on all of it is so on whoever serves, and what was
    acked is never delivered again. Nothing is seen of what was not committed; of what may have been, all or
    nothing; no message is taken by two transactions. What is decided at a quiet point stays so.

    Memory that was lost takes what is transient, or in a queue that is not durable: such a message may be
    gone, and says nothing; one that is there still does.
    """

    def __init__(self, movers: Mapping[str, Mover], journal: Journal, confirms: Confirms2and3and5) -> None:
        self.movers = movers
        self.journal = journal
        self.confirms = confirms
        self.checked = 0
        self.commits = 0
        self._ids: dict[str, tuple[int, int]] = {}
        """Epoch and sequence of messages, by their keys, that a first queue was seen to hold."""
        self.decided: dict[str, bool] = {}
        """Transactions in doubt, by their names: what a quiet point has shown."""
        for mover in movers.values():
            mover.on_input = self.delivered

    def answered(self, machine: Machine, connection: str) -> None:
        """A commit-ok leaves."""
        mover = self.movers.get(connection.split("#")[0])
        if mover is None or mover.session is None or mover.session.connection != connection:
            return
        current = mover.current
        if current is None or current.state is not State.COMMITTING:
            raise Violation(7, f"{machine.name} tells {mover.name} of a commit that it did not ask for")
        copies, died = self.confirms.copies(machine)
        if died is not None and current.sent_at > died and (current.published or current.gone):
            raise Violation(3, f"{current.name} is committed, and a dead backup is not excluded yet")
        for copy in copies:
            self._has(machine, copy, mover, current)
            if mover.plan.durable:
                self._has_on_disk(machine, copy, mover, current)
        for epoch, sequence, raw in held(machine, mover.source):
            self._ids.setdefault(key_of(raw), (epoch, sequence))
        current.answered = True
        self.commits += 1

    def _has(self, primary: Machine, copy: Machine, mover: Mover, current: Transaction) -> None:
        holdings = self.confirms.holdings[copy.name]
        said = f"{primary.name} commits {current.name}, and {copy.name}"
        for sent in current.published:
            for queue in sent.queues:
                if not holdings.in_memory(queue, sent.key):
                    raise Violation(7, f"{said} lacks {sent.key} in {queue}")
            if sent.persistent and mover.plan.durable and not holdings.disk.has(sent.key):
                raise Violation(7, f"{said} has {sent.key} not yet on disk, of {sent.queues[0]}")
        for key in current.thrown if mover.plan.dead_letters else ():
            if not holdings.in_memory(mover.target, key):
                raise Violation(7, f"{said} lacks the dead letter {key} in {mover.target}")
        if current.gone:
            left = {key_of(raw) for _, _, raw in held(copy, mover.source)} & set(current.gone)
            if left:
                raise Violation(7, f"{said} still holds {min(left)} in {mover.source}")

    def _has_on_disk(self, primary: Machine, copy: Machine, mover: Mover, current: Transaction) -> None:
        """The acks of it."""
        lasting = [key for key in current.gone if mover.sent[key][0].persistent and key in self._ids]
        if not lasting:
            return
        live = live_on_disk(copy, vhost_of(primary).queues[mover.source].uuid)
        back = [key for key in lasting if self._ids[key] in live]
        if back:
            raise Violation(
                7, f"{primary.name} commits {current.name}, and a restart of {copy.name} would bring back "
                f"{back[0]} in {mover.source}",
            )  # fmt: skip

    def delivered(self, mover: Mover, key: str, body: bytes) -> None:
        """Of its first queue; it has not noted it yet."""
        sent, published = mover.sent.get(key, (None, None))
        if sent is None or published is None or sent.body != body or mover.source not in sent.queues:
            raise Violation(7, f"{mover.source} delivers what nobody published into it: {body[:40]!r}")
        if published.state in (State.OPEN, State.UNDONE):
            raise Violation(7, f"{mover.source} delivers {key}, which was {published.state.value}")
        for taker in mover.takers.get(key, ()):
            if taker.answered:
                raise Violation(7, f"{mover.source} delivers {key} again, which {taker.name} has acked")
        current = mover.current
        given_back = current is not None and current.state is State.COMMITTING and key in current.back
        if key in mover.held.values() and not given_back:
            raise Violation(7, f"{mover.source} delivers {key} twice on one channel")

    def look(self, machine: Machine, *, quiet: bool = False) -> None:
        """At what a node holds that was just promoted, or at a quiet point."""
        for mover in self.movers.values():
            found = Contents(machine, mover, self.journal.memory_lost)
            for transaction in mover.transactions:
                found.begin(transaction, self.decided.get(transaction.name))
            found.conclude()
            self.checked += len(mover.transactions)
            if quiet:
                self.decided.update(found.in_doubt())


class Contents:
    """What one node holds of one mover's messages, and what follows for its transactions."""

    def __init__(self, machine: Machine, mover: Mover, memory_lost: float) -> None:
        self.machine = machine
        self.mover = mover
        self.memory_lost = memory_lost
        self.keys = {queue: self._keys(queue) for queue in (mover.source, mover.target)}
        self.verdicts: dict[str, tuple[bool, str]] = {}
        """By the transaction's name: whether it took place, and why that is known."""

    def _keys(self, queue: str) -> frozenset[str]:
        counted = Counter(key_of(raw) for _, _, raw in held(self.machine, queue))
        for key, many in sorted(counted.items()):
            if many > 1:
                raise Violation(7, f"{queue} of {self.machine.name} holds {key} {many} times")
            sent, _ = self.mover.sent.get(key, (None, None))
            dead = self.mover.plan.dead_letters and queue == self.mover.target
            if sent is None or (queue not in sent.queues and not dead):
                raise Violation(7, f"{queue} of {self.machine.name} holds {key}, not published into it")
        return frozenset(counted)

    def in_doubt(self) -> dict[str, bool]:
        doubt = {t.name for t in self.mover.transactions if t.state is State.DOUBT}
        return {name: took for name, (took, _) in self.verdicts.items() if name in doubt}

    def begin(self, transaction: Transaction, decided: bool | None) -> None:
        """What is known of it beforehand."""
        if transaction.answered:
            self._is(transaction, True, "commit-ok was out")
        elif transaction.state in (State.OPEN, State.UNDONE):
            self._is(transaction, False, f"it was {transaction.state.value}")
        elif decided is not None:
            self._is(transaction, decided, "a quiet point has shown so")

    def conclude(self) -> None:
        """Raises Violation where that does not agree."""
        for transaction in self.mover.transactions:
            for sent in transaction.published:
                for queue in sent.queues:
                    if sent.key in self.keys[queue]:
                        self._is(transaction, True, f"{queue} holds {sent.key}")
                    elif queue == self.mover.target and not self._lost(sent, transaction):
                        self._is(transaction, False, f"{queue} lacks {sent.key}")
            for key in transaction.gone:
                if key in self.keys[self.mover.source]:
                    self._is(transaction, False, f"{self.mover.source} holds {key}")
        before = -1
        while len(self.verdicts) != before:
            before = len(self.verdicts)
            for key, (sent, published) in self.mover.sent.items():
                if self.mover.source in sent.queues and key not in self.keys[self.mover.source]:
                    self._taken(key, sent, published)
                    if self.mover.plan.dead_letters:
                        self._dead(key, sent)

    def _taken(self, key: str, sent: Sent, published: Transaction) -> None:
        """The first queue does not hold it: who took it?"""
        takers = self.mover.takers.get(key, [])
        took = [taker for taker in takers if self.verdicts.get(taker.name, (False, ""))[0]]
        maybe = [taker for taker in takers if taker.name not in self.verdicts]
        lacks = f"{self.mover.source} lacks {key}"
        if len(took) > 1:
            self._violated(f"both {took[0].name} and {took[1].name} have taken {key}")
        if took:
            self._is(published, True, f"{took[0].name} has taken {key}")
        elif self._lost(sent, published):
            return
        elif not maybe:
            self._is(published, False, f"{lacks}, and nobody has taken it")
        elif len(maybe) == 1 and self.verdicts.get(published.name, (False, ""))[0]:
            self._is(maybe[0], True, lacks)

    def _dead(self, key: str, sent: Sent) -> None:
        """Is it in the second queue, as a dead letter of the first? Then it was thrown away."""
        throwers = [taker for taker in self.mover.takers.get(key, ()) if key in taker.thrown]
        if key not in self.keys[self.mover.target]:
            for thrower in throwers:
                if not self._lost(sent, thrower):
                    self._is(thrower, False, f"{self.mover.target} lacks the dead letter {key}")
            return
        maybe = [taker for taker in throwers if self.verdicts.get(taker.name, (True, ""))[0]]
        if not maybe:
            self._violated(f"{self.mover.target} holds {key}, which nobody has thrown away")
        elif len(maybe) == 1:
            self._is(maybe[0], True, f"{self.mover.target} holds the dead letter {key}")

    def _lost(self, sent: Sent, by: Transaction) -> bool:
        """May what that transaction did with it have gone with the memory of the nodes?"""
        lasting = sent.persistent and self.mover.plan.durable
        return not lasting and by.sent_at <= self.memory_lost

    def _is(self, transaction: Transaction, took: bool, why: str) -> None:
        before = self.verdicts.setdefault(transaction.name, (took, why))
        if before[0] is not took:
            self._violated(f"of {transaction.name}, {before[1]}, and {why}")

    def _violated(self, text: str) -> None:
        raise Violation(7, f"on {self.machine.name}, {text}")

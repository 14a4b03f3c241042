"""Declares the objects of an import plan on a running primary. Nothing is ever deleted.

Owner: `understudy definitions import` and POST /api/definitions. Blocking: one thread, one connection at a
time. Entries of the directory (virtual hosts, users, permissions, policies, federation) go first, by command.
Exchanges, queues and bindings follow as AMQP declarations, in batches without replies. One question after
each batch waits until the whole batch is as safe as a single declaration. If the broker refuses something,
the batch is repeated one object at a time, to name the refused ones. An import may be repeated: objects that
already have the wanted properties stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import amqp
from amqp import spec
from amqp.exceptions import AMQPError, ChannelError

from broker.amqp091.codec.fields import write_table
from broker.model.octets import as_octets
from understudy.client_tls import tls_of
from understudy.definitions.entries import PLURALS, Entry
from understudy.definitions.parse import BindingDefinition, ExchangeDefinition, QueueDefinition
from understudy.definitions.plan import ImportPlan, Item, key_of, kind_of, name_of
from understudy.management import TooLarge, Unreachable, ask
from understudy.shared.addresses import HostPort
from understudy.shared.text import shown

ENTRIES = tuple(PLURALS.values())
DECLARED = ("exchanges", "queues", "bindings")
KINDS = (*ENTRIES, *DECLARED)
BATCH = 200
_ENTRIES = 100
_QUESTION = 48 * 1024
"""Largest command with several entries, in octets."""
_FRAME = 8 + 4 + 2 + 1
"""Octets of a declaration without its short strings and its table: frame, method, ticket, flags."""
DEFINE = "define"
Declared = ExchangeDefinition | QueueDefinition | BindingDefinition
_SHOWN = 5
"""Number of refusals in `reason`; the list `refused` holds all of them."""
_CONNECT = 5.0


@dataclass(slots=True)
class ImportOutcome:
    """The result of an import. The counters count objects by kind."""

    new: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    """Entries of the directory that existed with other properties."""
    there: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """One line for each refused object, with the broker's reason."""
    why: str = ""
    """The reason if the import ended early; otherwise empty."""

    @property
    def done(self) -> int:
        return self.new.total() + self.changed.total() + self.there.total()

    @property
    def whole(self) -> bool:
        return not self.refused and not self.why


def expected(plan: ImportPlan) -> ImportOutcome:
    """The outcome of a dry run: what an import would do if nothing changed in the meantime."""
    outcome = ImportOutcome(refused=list(plan.differing))
    kinds = plan.counts()
    outcome.there = Counter(key[0] for key in plan.there)
    outcome.changed = Counter(key[0] for key in plan.changing)
    differing = Counter(f"{line.partition(' ')[0]}s" for line in plan.differing)
    outcome.new = kinds - outcome.there - outcome.changed - differing
    return outcome


def carry_out(
    plan: ImportPlan, address: HostPort, user: str, password: str, timeout: float,
    progress: Callable[[int], None] = lambda amount: None,
) -> ImportOutcome:  # fmt: skip
    """Carry out the plan. `timeout`: longest wait for one answer, in seconds. The outcome holds the refusals,
    and the reason if the import ended early."""
    outcome = ImportOutcome()
    entries = [item for item in plan.items if isinstance(item, Entry)]
    declared = [item for item in plan.items if not isinstance(item, Entry)]
    try:
        _Putting(plan, outcome, address, user, password, timeout).all(entries, progress)
    except Unreachable as error:
        outcome.why = error.said.sentence
    except _Stopped as error:
        outcome.why = str(error)
    for vhost in dict.fromkeys(item.vhost for item in declared):
        if not outcome.why:
            inside = [item for item in declared if item.vhost == vhost]
            _declare(inside, vhost, plan, outcome, address, user, password, timeout, progress)
    return outcome


def _declare(
    items: list[Declared], vhost: str, plan: ImportPlan, outcome: ImportOutcome, address: HostPort, user: str,
    password: str, timeout: float, progress: Callable[[int], None],
) -> None:  # fmt: skip
    """Declare objects of one virtual host."""
    try:
        tls = tls_of(address)
        with amqp.Connection(
            str(HostPort(*address)), user, password, virtual_host=vhost,
            ssl=False if tls is None else tls.for_amqp(address.host),
            connect_timeout=min(timeout, _CONNECT), read_timeout=timeout, write_timeout=timeout,
            client_properties={"product": "understudy definitions"},
        ) as connection:  # fmt: skip
            declaring = _Declaring(connection, plan, outcome)
            for at in range(0, len(items), BATCH):
                batch = items[at : at + BATCH]
                declaring.batch(batch)
                progress(len(batch))
    except (AMQPError, OSError, ValueError, AttributeError) as error:  # AttributeError: py-amqp, disconnected
        outcome.why = " ".join(str(error).split()) or type(error).__name__


class _Stopped(Exception):
    """The node does not serve, or no longer serves. `str()` is one line."""


class _Putting:
    """Entries of the directory, by the management command `define`."""

    def __init__(
        self,
        plan: ImportPlan,
        outcome: ImportOutcome,
        address: HostPort,
        user: str,
        password: str,
        timeout: float,
    ) -> None:
        self._plan = plan
        self._outcome = outcome
        self._login = (address, user, password, timeout)

    def all(self, entries: list[Entry], progress: Callable[[int], None]) -> None:
        """Put all entries in batches. Raises Unreachable and _Stopped."""
        for batch in _batches(entries):
            self._some(batch)
            progress(len(batch))

    def _some(self, batch: list[Entry]) -> None:
        """Put a batch with one command. A batch that does not fit a frame is halved. A batch with a refused
        entry is repeated one entry at a time."""
        try:
            if self._put(batch):
                for entry in batch:
                    _note(self._outcome, self._plan, entry)
                return
            why, parts = self._why, [[entry] for entry in batch]
        except TooLarge as error:
            middle = len(batch) // 2
            why, parts = f"{name_of(batch[0])}: {error.said.sentence}", [batch[:middle], batch[middle:]]
        if len(batch) == 1:
            self._outcome.refused.append(shown(why))
            return
        for part in parts:
            self._some(part)

    def _put(self, batch: list[Entry]) -> bool:
        """Put a batch. False: the broker refused it and changed nothing; `_why` is the reason."""
        address, user, password, timeout = self._login
        answer = ask(
            address, DEFINE, {"changes": [put_of(entry) for entry in batch]}, user=user, password=password,
            timeout=timeout,
        )  # fmt: skip
        self._why = str(answer.get("reason", ""))
        if not answer.get("ok") and not answer.get("refused"):
            raise _Stopped(self._why or "the node refused without a reason")
        return bool(answer.get("ok"))


def put_of(entry: Entry) -> dict[str, Any]:
    """The change that puts `entry`, for `DEFINE`."""
    return {
        "action": "put", "kind": entry.kind, "vhost": entry.vhost, "name": entry.name, "value": entry.value,
    }  # fmt: skip


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Batches whose command fits a frame of the usual size, if each single entry does."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        octets = len(json.dumps(put_of(entry)))
        if batch and (len(batch) >= _ENTRIES or size + octets > _QUESTION):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += octets
    if batch:
        yield batch


def _note(outcome: ImportOutcome, plan: ImportPlan, item: Item) -> None:
    key = key_of(item)
    counts = outcome.there if key in plan.there else outcome.changed if key in plan.changing else outcome.new
    counts[kind_of(item)] += 1


def _words(item: Declared) -> tuple[str, ...]:
    """The short strings of the declaration."""
    match item:
        case ExchangeDefinition():
            return item.name, item.type
        case QueueDefinition():
            return (item.name,)
        case _:
            return item.destination, item.source, item.routing_key


class _Declaring:
    """One import on one channel. py-amqp reopens the channel by itself when the broker has closed it."""

    def __init__(self, connection: amqp.Connection, plan: ImportPlan, outcome: ImportOutcome) -> None:
        self._channel: Any = connection.channel()
        self._frame_max = int(connection.frame_max)
        self._plan = plan
        self._outcome = outcome

    def batch(self, items: list[Declared]) -> None:
        items = [item for item in items if self._fits(item)]
        try:
            for item in items:
                self._send(item, nowait=True)
            # The reply comes after all declarations before it, when they are as safe as they have to be.
            self._channel.exchange_declare("amq.direct", "direct", passive=True)
        except ChannelError:
            for item in items:
                self._single(item)
        else:
            for item in items:
                _note(self._outcome, self._plan, item)

    def _fits(self, item: Declared) -> bool:
        """Does the declaration fit a frame? If not, it is refused here, because sending it would close the
        connection."""
        words = sum(1 + len(as_octets(word)) for word in _words(item))
        octets = _FRAME + words + len(write_table(item.arguments))
        if octets > self._frame_max:
            why = f"its declaration of {octets} octets exceeds the broker's frame size ({self._frame_max})"
            self._outcome.refused.append(f"{name_of(item)}: {why}")
        return octets <= self._frame_max

    def _single(self, item: Declared) -> None:
        try:
            self._send(item, nowait=False)
        except ChannelError as error:
            why = shown(f"{error.reply_code} {error.reply_text}")
            self._outcome.refused.append(f"{name_of(item)}: {why}")
        else:
            _note(self._outcome, self._plan, item)

    def _send(self, item: Declared, *, nowait: bool) -> None:
        """Declare or bind. The table is encoded here and sent as a long string (`S`), which is the same on
        the wire as a table (`F`). py-amqp would write octets as text, and large negative numbers in a form
        that is read as unsigned."""
        table = write_table(item.arguments)[4:]
        match item:
            case ExchangeDefinition():
                method, reply, form = spec.Exchange.Declare, spec.Exchange.DeclareOk, "BssbbbbbS"
                values: tuple[Any, ...] = (0, item.name, item.type, False, item.durable, item.auto_delete,
                                           item.internal, nowait, table)  # fmt: skip
            case QueueDefinition():
                method, reply, form = spec.Queue.Declare, spec.Queue.DeclareOk, "BsbbbbbS"
                values = (0, item.name, False, item.durable, False, item.auto_delete, nowait, table)
            case _:
                to_queue = item.destination_type == "queue"
                kind = spec.Queue if to_queue else spec.Exchange
                method, reply, form = kind.Bind, kind.BindOk, "BsssbS"
                values = (0, item.destination, item.source, as_octets(item.routing_key), nowait, table)
        self._channel.send_method(method, form, values, wait=None if nowait else reply)


def summary_of(plan: ImportPlan, outcome: ImportOutcome, *, dry_run: bool) -> dict[str, Any]:
    """The outcome as JSON, for the command line's output and for the answer over HTTP."""
    more = len(outcome.refused) - _SHOWN
    return {
        "ok": outcome.whole,
        "reason": outcome.why or "; ".join(outcome.refused[:_SHOWN]) + f"; and {more} more" * (more > 0),
        "dry_run": dry_run,
        "declared": {kind: outcome.new[kind] for kind in KINDS},
        "changed": {kind: outcome.changed[kind] for kind in ENTRIES},
        "there_already": {kind: outcome.there[kind] for kind in KINDS},
        "refused": outcome.refused,
        "not_here": [
            {"what": left.what, "names": list(left.names), "why": left.why, "matters": left.matters}
            for left in plan.left_out
        ],
    }

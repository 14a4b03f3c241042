"""Declares what a plan holds on a running primary, as any client would; nothing is ever deleted.

Owner: `understudy definitions import` and POST /api/definitions. Blocking, one connection, one thread.
Objects go in batches without a reply, each batch followed by one question that waits until all of it is as
safe as a declaration is; a batch in which the broker refuses something is done again one by one, to know
what. All of it may be done twice: what is there as it is to be stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import amqp
from amqp import spec
from amqp.exceptions import AMQPError, ChannelError

from broker.amqp091.fields import write_table
from understudy.client_tls import tls_of
from understudy.config_types import HostPort
from understudy.definitions import ExchangeDefinition, QueueDefinition
from understudy.definitions_json import shown
from understudy.definitions_plan import Item, Plan, key_of, kind_of, name_of

KINDS = ("exchanges", "queues", "bindings")
BATCH = 200
_SHOWN = 5
"""Refusals in a reason; all of them are in a list of their own."""
_CONNECT = 5.0


@dataclass(slots=True)
class Outcome:
    """What became of a plan: for each kind how many are new, and how many were there."""

    new: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """One line each, with the broker's words."""
    why: str = ""
    """What ended it early; empty if nothing did."""

    @property
    def whole(self) -> bool:
        return not self.refused and not self.why


def expected(plan: Plan) -> Outcome:
    """What would become of it, if nothing changed meanwhile: for a dry run."""
    outcome = Outcome(refused=list(plan.differing))
    kinds = plan.counts()
    outcome.there = Counter(key[0] for key in plan.there)
    differing = Counter(f"{line.partition(' ')[0]}s" for line in plan.differing)
    outcome.new = kinds - outcome.there - differing
    return outcome


def carry_out(
    plan: Plan, address: HostPort, user: str, password: str, timeout: float,
    progress: Callable[[int], None] = lambda amount: None,
) -> Outcome:  # fmt: skip
    """Declare it all. `timeout`: seconds that any answer may take. Refusals and what ends it are in the
    outcome."""
    outcome = Outcome()
    try:
        tls = tls_of(address)
        with amqp.Connection(
            str(HostPort(*address)), user, password, ssl=False if tls is None else tls.for_amqp(address.host),
            connect_timeout=min(timeout, _CONNECT), read_timeout=timeout, write_timeout=timeout,
            client_properties={"product": "understudy definitions"},
        ) as connection:  # fmt: skip
            declaring = _Declaring(connection, plan, outcome)
            for at in range(0, len(plan.items), BATCH):
                batch = plan.items[at : at + BATCH]
                declaring.batch(batch)
                progress(len(batch))
    except (AMQPError, OSError, ValueError, AttributeError) as error:  # the last: py-amqp, once disconnected
        outcome.why = " ".join(str(error).split()) or type(error).__name__
    return outcome


class _Declaring:
    """One import on one channel: py-amqp opens it again by itself when the broker has closed it."""

    def __init__(self, connection: amqp.Connection, plan: Plan, outcome: Outcome) -> None:
        self._channel: Any = connection.channel()
        self._plan = plan
        self._outcome = outcome

    def batch(self, items: list[Item]) -> None:
        try:
            for item in items:
                self._send(item, nowait=True)
            # Answered in the channel's order, and only when all before it is as safe as it is to be.
            self._channel.exchange_declare("amq.direct", "direct", passive=True)
        except ChannelError:
            for item in items:
                self._single(item)
        else:
            for item in items:
                self._note(item)

    def _single(self, item: Item) -> None:
        try:
            self._send(item, nowait=False)
        except ChannelError as error:
            why = shown(f"{error.reply_code} {error.reply_text}")
            self._outcome.refused.append(f"{name_of(item)}: {why}")
        else:
            self._note(item)

    def _note(self, item: Item) -> None:
        counts = self._outcome.there if key_of(item) in self._plan.there else self._outcome.new
        counts[kind_of(item)] += 1

    def _send(self, item: Item, *, nowait: bool) -> None:
        """Declare or bind. A table is written here, as octets with their length (`S`, the same on the wire as
        `F`): py-amqp writes octets as text, and large negative numbers in a form that is read as unsigned."""
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
                values = (0, item.destination, item.source, item.routing_key, nowait, table)
        self._channel.send_method(method, form, values, wait=None if nowait else reply)


def summary_of(plan: Plan, outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    """For programs: as the command line's JSON and as the answer over HTTP."""
    more = len(outcome.refused) - _SHOWN
    return {
        "ok": outcome.whole,
        "reason": outcome.why or "; ".join(outcome.refused[:_SHOWN]) + f"; and {more} more" * (more > 0),
        "dry_run": dry_run,
        "declared": {kind: outcome.new[kind] for kind in KINDS},
        "there_already": {kind: outcome.there[kind] for kind in KINDS},
        "refused": outcome.refused,
        "not_here": [
            {"what": left.what, "names": list(left.names), "why": left.why, "matters": left.matters}
            for left in plan.left_out
        ],
    }

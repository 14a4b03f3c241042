"""Mutants of the command table: a row that lies."""

from __future__ import annotations

from broker import commands as table
from broker.commands import Row
from tests.simulation.mutants.mutant import Mutant, Patch

Rows = dict[str, tuple[Row, ...]]


def _but_declarations(rows: Rows) -> Rows:
    return {heading: tuple(map(_told_less, some)) for heading, some in rows.items()}


def _told_less(row: Row) -> Row:
    return row._replace(records=()) if "queue.declare" in row.commands else row


MUTANTS = (
    Mutant(
        "name no record of a declaration",
        "The command table says that queue.declare leaves no record.",
        (6,),
        (Patch(table, "AMQP_0_9_1", _but_declarations),),
    ),
)

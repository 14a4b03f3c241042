"""The answer to the management command `list`: rows of one kind of object, for `understudy list`. Reads only.

The rows are those of the HTTP API (`views`). An answer is one piece; the next one starts at `more`. Objects
that come or go between two pieces may be left out, or told twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ha.adapter import codes
from ha.adapter.management.operations.arguments import Arguments, Fault
from ha.adapter.management.serving import not_serving
from ha.adapter.management.views.tables import TABLES
from ha.adapter.management.views.view import View, ViewedNode

PIECE, WHOLE = 500, 150
"""Rows in one answer: of some columns, and of all. They take a few milliseconds of the broker's thread."""
_MOST_COLUMNS = 100


def listing_of(node: ViewedNode, args: Mapping[str, Any]) -> dict[str, Any]:
    """`kind`; `from` (0); `vhost` (all), `columns` (all). Answers with `rows`, `columns` of this kind, and
    `more`: where the next piece begins; None: there is none."""
    if (refusal := not_serving(node.vhosts, node.status())) is not None:
        return refusal.answer()
    asked = Arguments(args)
    try:
        kind, begin = asked.choice("kind", tuple(TABLES)), asked.number("from", 0, 1 << 40, 0)
        vhost, columns = asked.name("vhost", ""), asked.words("columns", _MOST_COLUMNS)
        asked.end()
        table, piece = TABLES[kind], WHOLE if columns is None else PIECE
        view = View(node, node.now, node.vhosts.wall_ms)
        items = list(islice(table.items(view), begin, begin + piece))
        meant = [item for item in items if not vhost or table.vhost(item) == vhost]
        rows = [table.row(item, view, columns) for item in meant]
    except Fault as fault:
        return codes.BAD_ARGUMENTS.say(fault=fault).answer()
    more = begin + len(items) if len(items) == piece else None
    return {"ok": True, "reason": "", "rows": rows, "more": more}

"""Lists of objects as responses: filtered, sorted, cut into pages, in pieces that hold no client up.

The event loop gets its turn every few milliseconds, however long a list is. Objects that come or go meanwhile
may be told or not.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from broker.model.patterns import matches
from ha.adapter.management.views.queues import TOTALS
from ha.adapter.management.views.tables import AnyTable
from ha.adapter.management.views.view import Row, View
from understudy import codes
from understudy.http.answers import refusal
from understudy.http.api.query import ListQuery, at_path, list_query, pruned
from understudy.http.api.seen import Seen, view_of
from understudy.http.room import Call

_TURN = 0.004
"""Seconds of work until others get their turn."""
_LOOK = 32
"""Objects between two looks at the clock."""
_RUN = 2000
"""Objects that are sorted at once."""
_LARGE = 300
"""Rows of a response that is sent in pieces."""


compact = partial(json.dumps, separators=(",", ":"))
"""JSON without spaces, a tenth shorter."""


class Pace:
    """Gives the event loop its turn. Call `step` for each object."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._looks = 0

    async def step(self, weight: int = 1) -> None:
        self._looks += weight
        if self._looks >= _LOOK:
            self._looks = 0
            if self._clock() - self._since > _TURN:
                await asyncio.sleep(0)
                self._since = self._clock()


async def listing(
    call: Call, table: AnyTable, wanted: Callable[[Any], bool] | None = None, *,
    items: Callable[[View], Iterable[Any]] | None = None,
) -> web.StreamResponse:  # fmt: skip
    """The objects of a table that the user may see, and that are `wanted`. `items`: instead of all of the
    table. Raises Refused."""
    query, view, seen, pace = list_query(call.request.query), view_of(call), Seen(call), Pace()
    total, found = 0, []
    for item in (items or table.items)(view):
        await pace.step()
        if seen.has(table, item) and (wanted is None or wanted(item)):
            total += 1
            if _is_named(table, item, view, query):
                found.append(item)
    ordered = await _sorted(table, found, view, query, pace)
    if query.page is None:
        return await _send(call, _rows(table, ordered, view, query), len(found), pace)
    begin = (query.page - 1) * query.page_size
    if begin >= max(len(found), 1):
        said = codes.HTTP_PAGE.say(page=query.page, size=query.page_size, length=len(found))
        response = refusal(400, said, error="page_out_of_range")
        return response
    page = []
    for row in _rows(table, ordered[begin : begin + query.page_size], view, query):
        page.append(row)
        await pace.step(_LOOK)
    return web.json_response(dumps=compact, data={
        "filtered_count": len(found), "item_count": len(page), "items": page, "page": query.page,
        "page_count": -(-len(found) // query.page_size), "page_size": query.page_size,
        "total_count": total,
    })  # fmt: skip


def _is_named(table: AnyTable, item: Any, view: View, query: ListQuery) -> bool:
    if not query.name:
        return True
    name = str(table.row(item, view, ["name"]).get("name", ""))
    return matches(query.pattern, name) if query.pattern else query.name.lower() in name.lower()


async def _sorted(
    table: AnyTable, found: list[Any], view: View, query: ListQuery, pace: Pace
) -> Sequence[Any]:
    """In the order of the query; by default by virtual host and name."""
    path = query.sort
    keyed: list[tuple[Any, int, Any]] = []
    runs: list[list[tuple[Any, int, Any]]] = []
    for at, item in enumerate(found):
        number = table.number(item, path) if path else None
        if number is not None:
            key: Any = (1, number)
        else:
            key = _key(table.row(item, view, [path[0]] if path else ["vhost", "name"]), path)
        keyed.append((key, at, item))
        await pace.step()
        if len(keyed) == _RUN:
            runs.append(sorted(keyed, key=_order))
            keyed = []
            await pace.step(_LOOK)
    runs.append(sorted(keyed, key=_order))
    if len(runs) == 1:
        ordered = [item for _, _, item in runs[0]]
    else:
        ordered = []
        for _, _, item in heapq.merge(*runs, key=_order):
            ordered.append(item)
            await pace.step()
    if query.reverse:
        ordered.reverse()
    return ordered


def _order(keyed: tuple[Any, int, Any]) -> Any:
    return keyed[0], keyed[1]


def _key(row: Row, path: Sequence[str]) -> Any:
    """Values of different types have an order, too: none, numbers, texts, all others."""
    if not path:
        return str(row.get("vhost", "")), str(row.get("name", ""))
    value = at_path(row, path)
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, json.dumps(value, sort_keys=True, default=str))


def _rows(table: AnyTable, items: Iterable[Any], view: View, query: ListQuery) -> Iterator[Row]:
    columns: Sequence[str] | None = query.top_columns
    if query.plain:
        columns = [*table.plain, *(TOTALS if query.totals else ())]
    for item in items:
        row = table.row(item, view, columns)
        yield pruned(row, query.columns) if query.columns is not None else row


async def _send(call: Call, rows: Iterator[Row], count: int, pace: Pace) -> web.StreamResponse:
    """A list of any length, in pieces if it is long."""
    if count <= _LARGE:
        found = []
        for row in rows:
            found.append(row)
            await pace.step(4)
        return web.json_response(found, dumps=compact)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(call.request)
    if call.request.method == "HEAD":
        return response
    before, piece = "[", []
    for row in rows:
        piece.append(compact(row))
        await pace.step(2)
        if len(piece) == _LARGE:
            await response.write((before + ",".join(piece)).encode())
            before, piece = ",", []
    await response.write(((before + ",".join(piece)) if piece else "").encode() + b"]")
    await response.write_eof()
    return response


async def one(call: Call, table: AnyTable, item: Any) -> web.Response:
    """One object with all of its columns, or those that the query names. Raises Refused."""
    query = list_query({key: value for key, value in call.request.query.items() if key == "columns"})
    row = table.whole(item, view_of(call))
    return web.json_response(pruned(row, query.columns) if query.columns is not None else row)

"""Changes of queues and of their messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from aiohttp import web

from understudy.http.answers import bad
from understudy.http.api.changes.answered import created, operate
from understudy.http.api.changes.fields import Fields
from understudy.http.room import Call, Rights, Route

_QUEUE = "/api/queues/{vhost}/{name}"
_KEEP, _TAKE = "ack_requeue_true", "ack_requeue_false"
_ACTIONS = ("sync", "cancel_sync")
_MOVED_AT_ONCE = 100_000


def routes() -> Iterable[Route]:
    return (
        Route("PUT", _QUEUE, _declare),
        Route("DELETE", _QUEUE, _delete),
        Route("DELETE", f"{_QUEUE}/contents", _purge),
        Route("POST", f"{_QUEUE}/get", _get),
        Route("POST", f"{_QUEUE}/move", _move),
        Route("POST", f"{_QUEUE}/actions", _act),
        Route("POST", "/api/rebalance/queues", _rebalance, Rights.ADMINISTRATOR),
    )


async def _declare(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    answer = await operate(
        call, "declare-queue", vhost=call.part("vhost"), name=call.part("name"),
        durable=fields.truth("durable"), auto_delete=fields.truth("auto_delete"),
        arguments=fields.table("arguments"),
    )  # fmt: skip
    if answer["created"]:
        _note(call, "declare queue")
    return created(answer["created"])


async def _delete(call: Call) -> web.Response:
    query = Fields(call.request.query)
    await operate(
        call, "delete-queue", vhost=call.part("vhost"), name=call.part("name"),
        if_unused=query.truth("if-unused"), if_empty=query.truth("if-empty"),
    )  # fmt: skip
    _note(call, "delete queue")
    return web.Response(status=204)


async def _purge(call: Call) -> web.Response:
    answer = await operate(call, "purge", vhost=call.part("vhost"), name=call.part("name"))
    _note(call, "purge queue", messages=answer["messages"])
    return web.Response(status=204)


async def _get(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    old = _KEEP if fields.truth("requeue", True) else _TAKE
    mode = fields.text("ackmode", old)
    limit = {"truncate": fields.number("truncate", 0)} if fields.has("truncate") else {}
    answer = await operate(
        call, "get", vhost=call.part("vhost"), name=call.part("name"), count=fields.number("count", 1),
        ackmode=mode, encoding=fields.text("encoding", "auto"), **limit,
    )  # fmt: skip
    found = answer["messages"]
    if found and mode.endswith("_false"):
        _note(call, "get from queue", messages=len(found), mode=mode)
    text = await asyncio.to_thread(json.dumps, found)
    return web.Response(text=text, content_type="application/json")


async def _move(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    there = {"to_vhost": fields.text("to_vhost")} if fields.has("to_vhost") else {}
    answer = await operate(
        call, "move", vhost=call.part("vhost"), name=call.part("name"), to=fields.text("to"),
        count=fields.number("count", _MOVED_AT_ONCE), **there,
    )  # fmt: skip
    _note(call, "move messages", to=fields.text("to"), messages=answer["moved"], **there)
    return web.json_response({key: answer[key] for key in ("moved", "left", "full")})


async def _act(call: Call) -> web.Response:
    """Of classic mirrored queues. Here each backup follows by itself, so there is nothing to do."""
    if Fields(await call.body(named=False)).text("action") not in _ACTIONS:
        raise bad(f"action must be one of {', '.join(_ACTIONS)}")
    await operate(call, "find-queue", vhost=call.part("vhost"), name=call.part("name"))
    return web.Response(status=204)


async def _rebalance(call: Call) -> web.Response:
    """Of the leaders of queues in a cluster. Here one node serves all queues."""
    await call.body(named=False)
    return web.Response(status=204)


def _note(call: Call, what: str, **more: object) -> None:
    call.changed(what, vhost=call.part("vhost"), name=call.part("name"), **more)

"""Changes of exchanges and bindings, and messages published to an exchange."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import quote

from aiohttp import web

from understudy.http.answers import Refused
from understudy.http.api.changes.answered import created, operate
from understudy.http.api.changes.fields import Fields, whole
from understudy.http.room import Call, Route

_EXCHANGE = "/api/exchanges/{vhost}/{name}"
_BINDINGS = "/api/bindings/{vhost}/e/{source}"
_KINDS = {"q": "queue", "e": "exchange"}
_LARGEST = 16 * 1024 * 1024
"""Octets of the body of a request that publishes."""
_NUMBERS = ("delivery_mode", "priority", "timestamp")
_DEFAULT = "amq.default"
_BAD, _NOT_FOUND = 400, 404


def routes() -> Iterable[Route]:
    yield Route("PUT", _EXCHANGE, _declare)
    yield Route("DELETE", _EXCHANGE, _delete)
    yield Route("POST", f"{_EXCHANGE}/publish", _publish)
    for letter, kind in _KINDS.items():
        path = f"{_BINDINGS}/{letter}/{{destination}}"
        yield Route("POST", path, partial(_bind, kind))
        yield Route("DELETE", f"{path}/{{props}}", partial(_unbind, kind))


async def _declare(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    answer = await operate(
        call, "declare-exchange", **_place(call), type=fields.text("type", "direct"),
        durable=fields.truth("durable"), auto_delete=fields.truth("auto_delete"),
        internal=fields.truth("internal"), arguments=fields.table("arguments"),
    )  # fmt: skip
    if answer["created"]:
        call.changed("declare exchange", **_place(call))
    return created(answer["created"])


async def _delete(call: Call) -> web.Response:
    if_unused = Fields(call.request.query).truth("if-unused")
    await operate(call, "delete-exchange", **_place(call), if_unused=if_unused)
    call.changed("delete exchange", **_place(call))
    return web.Response(status=204)


async def _publish(call: Call) -> web.Response:
    fields = Fields(await call.body(_LARGEST, named=False))
    name = call.part("name")
    properties = {
        key: whole(key, value) if key in _NUMBERS else value
        for key, value in fields.table("properties").items()
    }
    try:
        answer = await _published(call, "" if name == _DEFAULT else name, fields, properties)
    except Refused as refused:
        if refused.status == _NOT_FOUND:  # RabbitMQ: it is the message that is wrong
            raise Refused(_BAD, refused.said) from None
        raise
    call.changed("publish", **_place(call), routed=answer["routed"])
    return web.json_response({key: answer[key] for key in ("routed", "rejected") if key in answer})


async def _published(call: Call, exchange: str, fields: Fields, properties: dict[str, Any]) -> dict[str, Any]:
    return await operate(
        call, "publish", vhost=call.part("vhost"), exchange=exchange,
        routing_key=fields.any("routing_key"), payload=fields.text("payload"),
        payload_encoding=fields.text("payload_encoding", "string"), properties=properties,
    )  # fmt: skip


async def _bind(kind: str, call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    answer = await operate(
        call, "bind", **_ends(call, kind), routing_key=fields.text("routing_key", ""),
        arguments=fields.table("arguments"),
    )  # fmt: skip
    if answer["created"]:
        call.changed("bind", **_ends(call, kind), key=answer["properties_key"])
    # Relative, as RabbitMQ's: Terraform's provider takes the key from behind the first slash.
    at = f"{quote(call.part('destination'), safe='')}/{quote(answer['properties_key'], safe='~')}"
    return web.Response(status=201, headers={"Location": at})


async def _unbind(kind: str, call: Call) -> web.Response:
    await operate(call, "unbind", **_ends(call, kind), properties_key=call.part("props"))
    call.changed("unbind", **_ends(call, kind), key=call.part("props"))
    return web.Response(status=204)


def _place(call: Call) -> dict[str, Any]:
    return {"vhost": call.part("vhost"), "name": call.part("name")}


def _ends(call: Call, kind: str) -> dict[str, Any]:
    return {
        "vhost": call.part("vhost"), "source": call.part("source"), "destination": call.part("destination"),
        "destination_type": kind,
    }  # fmt: skip

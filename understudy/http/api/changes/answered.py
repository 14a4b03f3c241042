"""Asks the node for a change, and turns its refusal into a response with RabbitMQ's status."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.model.vhost.directory import PERMISSION
from understudy import codes
from understudy.http.answers import Refused
from understudy.http.room import Call
from understudy.management import refusal_of
from understudy.shared.codes import Coded

_STATUSES = {403: 403, 404: 404, 506: 503, 530: 403}
"""By AMQP's reply code. All others are 400, as in RabbitMQ."""
_BAD = 400
_UNAVAILABLE = ("node-not-serving", "operations-busy", "change-unsure")
"""Codes of refusals that may be answered otherwise by another node, or later."""


async def operate(call: Call, command: str, **args: Any) -> dict[str, Any]:
    """The node's answer to an operation, as the user of the request. Raises Refused."""
    by = {} if call.room.local else {"by": call.visitor.name}
    answer = await call.ask(command, args | by)
    if not answer.get("ok"):
        raise _refused(answer)
    return answer


async def listing(call: Call, kind: str) -> list[dict[str, Any]]:
    """Entries of the directory, as definitions have them. Raises Refused."""
    found: list[dict[str, Any]] = (await operate(call, "directory"))[kind]
    return found


async def put(call: Call, kind: str, vhost: str, name: str, value: dict[str, Any]) -> web.Response:
    """Put an entry of the directory. 201 if it is new, else 204. Raises Refused, with 404 if there is no such
    virtual host; as in RabbitMQ, not for a permission."""
    try:
        answer = await operate(call, "define", changes=[_change("put", kind, vhost, name, value)])
    except Refused as refused:
        if refused.status == _BAD and vhost and kind != PERMISSION and not await _is_there(call, vhost):
            raise missing(f"vhost {vhost!a:.300}") from None
        raise
    if answer.get("changed"):
        call.changed(f"put {kind}", vhost=vhost, name=name)
    return created(bool(answer.get("created")))


async def _is_there(call: Call, vhost: str) -> bool:
    return vhost in [line["name"] for line in await listing(call, "vhosts")]


async def delete(call: Call, kind: str, vhost: str, name: str) -> web.Response:
    """Delete an entry of the directory. Raises Refused, with 404 if there is none."""
    answer = await operate(call, "define", changes=[_change("delete", kind, vhost, name)])
    if not answer.get("changed"):
        raise missing(f"{kind} {name!a:.300}")
    call.changed(f"delete {kind}", vhost=vhost, name=name)
    return web.Response(status=204)


def _change(
    action: str, kind: str, vhost: str, name: str, value: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"action": action, "kind": kind, "vhost": vhost, "name": name, "value": value or {}}


def created(new: bool) -> web.Response:
    return web.Response(status=201 if new else 204)


def missing(what: str) -> Refused:
    return Refused(404, codes.HTTP_NOT_FOUND.say(what=what))


def _refused(answer: dict[str, Any]) -> Refused:
    said, reply_code = refusal_of(answer), answer.get("amqp")
    if isinstance(reply_code, int):
        status = _STATUSES.get(reply_code, 400)
        return Refused(status, Coded(said.code, f"{reply_code} {said.sentence}"))
    return Refused(503 if said.code in _UNAVAILABLE else 400, said)

"""The HTTP resource /api/definitions of RabbitMQ's management: GET exports, POST imports, for administrators.

Owner: `HttpServer`, on the broker's event loop. Long work runs in pieces or on a thread. An import is an
ordinary client of this node, logged in as the user of the request.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import web

from understudy import codes
from understudy.definitions.apply import carry_out, expected, summary_of
from understudy.definitions.export import (
    COMMAND,
    Listing,
    ListingRefused,
    document_of,
    document_of_vhost,
    text_of,
)
from understudy.definitions.parse import answered, read_definitions
from understudy.definitions.plan import check_vhost, plan_of
from understudy.definitions.strict_json import DefinitionsError
from understudy.http.answers import Refused, bad, error_of, refusal
from understudy.http.room import Call, Room

LARGEST = 32 * 1024 * 1024
"""Largest posted file, in octets."""
_TIMEOUT = 30.0
"""Longest wait for an answer of the node's own listener, in seconds."""
_OPTIONS = ("quorum_as_classic", "strict", "dry_run")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "": True}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)


class DefinitionsApi:
    """An import may take as long as a whole file to arrive, which `room` limits."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._amqp = room.amqp

    async def get(self, call: Call) -> web.StreamResponse:
        """The whole document, or that of the virtual host of the path; `?download=NAME` makes a browser save
        it under that name."""
        request = call.request
        try:
            found = await self._listing()
        except ListingRefused as error:
            return refusal(503, error.said)
        vhost = request.match_info.get("vhost")
        if vhost is None:
            document = await asyncio.to_thread(document_of, found)
        else:
            of_it = await asyncio.to_thread(document_of_vhost, found, vhost)
            if of_it is None:
                raise Refused(404, codes.HTTP_NOT_FOUND.say(what=f"vhost {vhost!a:.300}"))
            document = of_it
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache"}
        )
        name = request.query.get("download", "")
        if _TOKEN.fullmatch(name):
            response.headers["Content-Disposition"] = f"attachment; filename={name}"
        await response.prepare(request)
        if request.method != "HEAD":
            for piece in text_of(document):
                await response.write(piece)
                await asyncio.sleep(0)
        await response.write_eof()
        return response

    async def post(self, call: Call) -> web.Response:
        """Import the posted file.

        200: everything is imported. 400: the file is wrong and nothing was changed, or the broker refused the
        objects in `refused`. 408: the file did not arrive in time. 503: this node does not serve, or stopped
        serving during the import.
        """
        call.check_type()
        request, visitor = call.request, call.visitor
        try:
            options = _options(request)
        except ValueError as error:
            raise bad(str(error)) from None
        if self._amqp is None:
            return refusal(503, codes.NO_AMQP_LISTENER.say())
        try:
            vhost = request.match_info.get("vhost", request.query.get("vhost"))
            file = await asyncio.to_thread(read_definitions, await self._body(request), vhost=vhost)
            there = await asyncio.to_thread(answered, dict(await self._listing()))
            if vhost is not None:
                check_vhost(vhost, file, there)
            plan = await asyncio.to_thread(
                plan_of, file, there, quorum_as_classic=options["quorum_as_classic"]
            )
        except DefinitionsError as error:
            return refusal(400, codes.DEFINITIONS_INVALID.say(fault=error))
        except ListingRefused as error:
            return refusal(503, error.said)
        except TimeoutError:
            return refusal(408, codes.HTTP_TIMEOUT.say())
        if options["strict"] and any(left.matters for left in plan.left_out):
            texts = "; ".join(left.text for left in plan.left_out if left.matters)
            return refusal(400, codes.DEFINITIONS_UNSUPPORTED.say(fault=f"not supported: {texts}"))
        dry = options["dry_run"]
        if dry:
            outcome = expected(plan)
        else:
            outcome = await asyncio.to_thread(
                carry_out, plan, self._amqp, visitor.name, visitor.password, _TIMEOUT
            )
        if not dry:
            call.changed("import definitions", refused=len(outcome.refused))
        status = 503 if outcome.why else 400 if outcome.refused else 200
        summary = summary_of(plan, outcome, dry_run=dry)
        return web.json_response(summary if status == 200 else error_of(status) | summary, status=status)

    async def _body(self, request: web.Request) -> bytes:
        """Raises TimeoutError and DefinitionsError."""
        async with asyncio.timeout(self._room.places.limits.upload):
            return await _body(request)

    async def _listing(self) -> dict[str, list[dict[str, Any]]]:
        """Raises ListingRefused."""
        listing = Listing()
        while not listing.take(await self._room.ask(COMMAND, listing.question())):
            await asyncio.sleep(0)
        return listing.found


def _options(request: web.Request) -> dict[str, bool]:
    """The options by name. Raises ValueError for an invalid one."""
    for name in (*_OPTIONS, "vhost"):
        if len(request.query.getall(name, ())) > 1:
            raise ValueError(f"{name} is given twice")
    options = {}
    for name in _OPTIONS:
        value = _TRUTHS.get(request.query.get(name, "false").lower())
        if value is None:
            raise ValueError(f"{name} must be true or false")
        options[name] = value
    return options


async def _body(request: web.Request) -> bytes:
    """Raises DefinitionsError if the body is too large or does not match its headers."""
    body = bytearray()
    try:
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > LARGEST:
                raise DefinitionsError(f"larger than {LARGEST} octets")
    except web.RequestPayloadError:
        raise DefinitionsError("the body does not match its headers") from None
    return bytes(body)

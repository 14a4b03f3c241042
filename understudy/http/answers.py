"""Responses of JSON. A refusal has RabbitMQ's `error` and `reason`, and this node's `ok` and `code`."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from understudy import codes
from understudy.shared.codes import Coded, CodedError

_ERRORS = {
    400: "bad_request", 401: "not_authorised", 403: "not_authorised", 404: "Object Not Found",
    405: "method_not_allowed", 408: "request_timeout", 409: "conflict", 413: "bad_request",
    415: "unsupported_media_type", 421: "misdirected_request", 429: "too_many_requests",
    503: "service_unavailable",
}  # fmt: skip
"""What RabbitMQ's management calls each refusal."""


class Refused(CodedError):
    """Ends a request with a refusal. Raised by handlers."""

    def __init__(self, status: int, said: Coded, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(said)
        self.status = status
        self.headers = headers

    def response(self) -> web.Response:
        return refusal(self.status, self.said, self.headers)


def refusal(
    status: int, said: Coded, headers: Mapping[str, str] | None = None, *, error: str = ""
) -> web.Response:
    """`error`: what RabbitMQ calls it, if not by its status."""
    named = {"error": error} if error else error_of(status)
    return web.json_response(said.answer() | named, status=status, headers=headers)


def error_of(status: int) -> dict[str, str]:
    """The field `error` of a refusal."""
    return {"error": _ERRORS.get(status, "internal_error")}


def bad(fault: str) -> Refused:
    """The request itself is wrong."""
    return Refused(400, codes.HTTP_BAD_ARGUMENTS.say(fault=fault))

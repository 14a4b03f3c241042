"""The files of the console: pages, scripts and styles in the package. No build makes them, and nothing is
fetched from elsewhere.

Role: reads all files once, so that a path is a key of a table and never a path of the disk. They are public:
they hold nothing of the node. Each response forbids inline scripts and styles, and anything of other sites.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

from understudy import codes
from understudy.http.answers import Refused
from understudy.http.room import Call

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_POLICY = "; ".join([
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
])  # fmt: skip
_INDEX = "index.html"


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class Files:
    """`index` answers `/`, `file` what is below `/console/`."""

    async def index(self, call: Call) -> web.Response:
        return _response(call, _all()[_INDEX])

    async def file(self, call: Call) -> web.Response:
        found = _all().get(call.part("path"))
        if found is None:
            raise Refused(404, codes.HTTP_NO_FILE.say())
        return _response(call, found)


def _response(call: Call, file: _File) -> web.Response:
    headers = {"ETag": file.tag, "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    if call.request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, content_type=file.kind, charset="utf-8", headers=headers)


@cache
def _all() -> dict[str, _File]:
    """By path below `static`."""
    found: dict[str, _File] = {}
    _gather(files("understudy.http.console").joinpath("static"), "", found)
    return found


def _gather(folder: Traversable, path: str, found: dict[str, _File]) -> None:
    for entry in folder.iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_dir():
            _gather(entry, f"{path}{entry.name}/", found)
        elif kind is not None:
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            found[path + entry.name] = _File(content, kind, tag)

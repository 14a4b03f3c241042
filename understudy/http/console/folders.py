"""What of this node's folders the console shows: reports, and the alarms of a watch.

Role: reads files on a thread, bounded, and never follows a name of a request out of its folder.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from aiohttp import web

from understudy import codes
from understudy.http.answers import Refused
from understudy.http.room import Call, NodeFolders

_MOST = 500
"""Reports in one answer."""
_LARGEST_RESULT = 16 * 1024 * 1024
"""Largest result that is read for its verdict, in octets."""
_TAIL = 256 * 1024
"""Octets of the end of the watch's journal that are read."""
_ALARMS = 200
_NAME = re.compile(r"[\w][\w .,()+@=-]*\.html")


class Folders:
    """Handlers. `folders` is None where there is no data directory."""

    def __init__(self, folders: NodeFolders | None) -> None:
        self._folders = folders

    async def reports(self, _call: Call) -> web.Response:
        """The newest first."""
        folder = self._there().reports
        found = await asyncio.to_thread(_reports, folder)
        return web.json_response({"folder": str(folder), "reports": found})

    async def report(self, call: Call) -> web.Response:
        """The file, to be saved: its styles are inline, which the console forbids."""
        name = call.part("name")
        if not _NAME.fullmatch(name):
            raise Refused(404, codes.HTTP_NO_FILE.say())
        try:
            content = await asyncio.to_thread((self._there().reports / name).read_bytes)
        except OSError:
            raise Refused(404, codes.HTTP_NO_FILE.say()) from None
        headers = {
            "Content-Disposition": f'attachment; filename="{name.encode("ascii", "replace").decode()}"'
        }
        return web.Response(body=content, content_type="text/html", charset="utf-8", headers=headers)

    async def watch(self, _call: Call) -> web.Response:
        """The newest alarms first."""
        return web.json_response(await asyncio.to_thread(_watch, self._there().watch))

    def _there(self) -> NodeFolders:
        if self._folders is None:
            raise Refused(404, codes.HTTP_NO_FILE.say())
        return self._folders


def _reports(folder: Path) -> list[dict[str, Any]]:
    found = []
    try:
        paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            continue
        line = {"name": path.name, "octets": about.st_size, "at_ms": about.st_mtime_ns // 1_000_000}
        found.append(line | {"verdict": _verdict(path.with_suffix(".json"))})
    found.sort(key=lambda line: (line["at_ms"], line["name"]), reverse=True)
    return found[:_MOST]


def _verdict(path: Path) -> str | None:
    """Of the result beside the report; None if there is none."""
    try:
        if path.stat().st_size > _LARGEST_RESULT:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    verdict = found.get("verdict") if isinstance(found, dict) else None
    return verdict if isinstance(verdict, str) else None


def _watch(checkpoint: Path) -> dict[str, Any]:
    states = checkpoint / "state"
    try:
        newest = max((path.stat().st_mtime_ns for path in states.glob("*.json")), default=0)
    except OSError:
        newest = 0
    lines, more = _last_lines(checkpoint / "alarms.jsonl")
    alarms = []
    for line in reversed(lines):
        try:
            alarm = json.loads(line)
        except ValueError:  # torn, or not whole yet
            continue
        if isinstance(alarm, dict):
            alarms.append({key: alarm.get(key) for key in ("n", "ts_us", "kind", "severity", "sentence")})
    return {
        "checkpoint": str(checkpoint), "is_there": checkpoint.is_dir(), "more": more or len(alarms) > _ALARMS,
        "last_batch_ms": newest // 1_000_000 or None, "alarms": alarms[:_ALARMS],
    }  # fmt: skip


def _last_lines(path: Path) -> tuple[list[bytes], bool]:
    """The last lines of a file, and whether there are earlier ones."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return [], False
    return (lines[1:], True) if size > _TAIL else (lines, False)

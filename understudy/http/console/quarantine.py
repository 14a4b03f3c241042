"""The quarantine of this node over HTTP: its queues, their messages, and republishing them.

Role: the command `understudy quarantine`, for the console. Files are read on a thread. A republish is an
ordinary client of the pair, logged in as the user of the request. It also works at a backup, where the
quarantine of a failover is: its messages go to the primary.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from aiohttp import web

from understudy import codes
from understudy.http.answers import Refused, bad, error_of
from understudy.http.room import Call, NodeFolders
from understudy.quarantine.as_json import message_json, summary_json
from understudy.quarantine.choice import published, unpublished
from understudy.quarantine.journal import NotesError
from understudy.quarantine.message import Message
from understudy.quarantine.reader import QuarantineFolder, Unreadable
from understudy.quarantine.republish import Republishing, RepublishOutcome, Way

_MOST = 200
"""Messages in one answer."""
_BODY = 64 * 1024
"""Characters of a body that are shown."""
_TIMEOUT = 30.0
"""Longest wait for a broker, and for the confirms of a batch, in seconds."""
_DAMAGE = 20
_LONGEST_NAME = 255


class QuarantineApi:
    """Handlers. `folders` is None where there is no data directory."""

    def __init__(self, folders: NodeFolders | None) -> None:
        self._folders = folders
        self._busy = asyncio.Lock()
        """One republish at a time."""

    async def queues(self, _call: Call) -> web.Response:
        return web.json_response(await asyncio.to_thread(_summary, self._there()))

    async def messages(self, call: Call) -> web.Response:
        """The first messages of one queue, by its UUID."""
        return web.json_response(await asyncio.to_thread(_messages, self._there(), call.part("queue")))

    async def republish(self, call: Call) -> web.Response:
        """409: nothing can be published now. 502 is not used: an early end is in `reason`."""
        folders = self._there()
        queue, to, in_doubt = _wanted(await call.body())
        if self._busy.locked():
            raise Refused(409, codes.HTTP_REPUBLISHING.say())
        async with self._busy:
            visitor = call.visitor
            way = Way(",".join(_brokers(call, folders)), visitor.name, visitor.password, _TIMEOUT, to=to)
            outcome = await asyncio.to_thread(_republish, folders, queue, way, in_doubt)
        call.changed("republish quarantine", queue=queue, republished=outcome.confirmed)
        answer: dict[str, Any] = {
            "republished": outcome.confirmed, "before": outcome.before, "in_doubt": outcome.in_doubt,
            "refused": outcome.refused, "reason": outcome.why,
        }  # fmt: skip
        if not outcome.why and not outcome.refused:
            return web.json_response(answer)
        answer["reason"] = outcome.why or "; ".join(
            f"{count} refused: {why}" for why, count in outcome.refused.items()
        )
        return web.json_response(error_of(409) | answer, status=409)

    def _there(self) -> NodeFolders:
        if self._folders is None:
            raise Refused(404, codes.HTTP_NO_FILE.say())
        return self._folders


def _wanted(body: dict[str, Any]) -> tuple[str, str | None, bool]:
    """The queue's UUID, the queue to publish to, and whether messages in doubt count. Raises Refused."""
    if others := sorted(body.keys() - {"queue", "to", "in_doubt"}):
        raise bad(f"{others[0]!a} is no argument")
    queue, to, in_doubt = body.get("queue"), body.get("to"), body.get("in_doubt", False)
    if not isinstance(queue, str):
        raise bad("'queue' must be the UUID of a queue in quarantine")
    if to is not None and not (isinstance(to, str) and 0 < len(to.encode(errors="replace")) <= _LONGEST_NAME):
        raise bad("'to' must be the name of a queue")
    if not isinstance(in_doubt, bool):
        raise bad("'in_doubt' must be true or false")
    return queue, to, in_doubt


def _brokers(call: Call, folders: NodeFolders) -> list[str]:
    """Where the node listens, or all addresses of the pair."""
    own = call.room.amqp
    if folders.brokers:
        return list(folders.brokers)
    if own is None:
        raise Refused(503, codes.NO_AMQP_LISTENER.say())
    return [str(own)]


def _open(folders: NodeFolders) -> QuarantineFolder:
    try:
        return QuarantineFolder(folders.data)
    except Unreadable as error:
        raise Refused(409, codes.QUARANTINE_UNREADABLE.say(fault=error)) from None


def _damage(folder: QuarantineFolder) -> list[str]:
    notes = [folder.notes_damage] if folder.notes_damage else []
    return [*notes, *map(str, folder.damage[:_DAMAGE])]


def _summary(folders: NodeFolders) -> dict[str, Any]:
    folder = _open(folders)
    try:
        queues = [summary_json(entry) for entry in folder.summary()]
    except Unreadable as error:
        raise Refused(409, codes.QUARANTINE_UNREADABLE.say(fault=error)) from None
    return {"folder": str(folder.path), "queues": queues, "damage": _damage(folder)}


def _messages(folders: NodeFolders, queue: str) -> dict[str, Any]:
    folder = _open(folders)
    try:
        summary = next((entry for entry in folder.summary() if entry.queue == queue), None)
        if summary is None:
            raise _none_such(folder, queue)
        found = list(islice(_of(folder, queue), _MOST + 1))
    except Unreadable as error:
        raise Refused(409, codes.QUARANTINE_UNREADABLE.say(fault=error)) from None
    return {
        "summary": summary_json(summary), "more": len(found) > _MOST, "damage": _damage(folder),
        "messages": [_shown(message, folder) for message in found[:_MOST]],
    }  # fmt: skip


def _of(folder: QuarantineFolder, queue: str) -> Any:
    return (message for message in folder.messages() if message.queue == queue)


def _shown(message: Message, folder: QuarantineFolder) -> dict[str, Any]:
    """As the command shows it, and the body cut."""
    found = message_json(message, folder)
    for key in ("body", "body_hex"):
        if found[key] is not None:
            found[key] = found[key][:_BODY]
    return found | {"bytes": len(message.body)}


def _none_such(folder: QuarantineFolder, queue: str) -> Refused:
    what = f"messages of queue {queue[:64]!a}"
    return Refused(404, codes.QUARANTINE_NONE.say(what=what, folder=folder.path))


def _republish(folders: NodeFolders, queue: str, way: Way, in_doubt: bool) -> RepublishOutcome:
    """Blocks: runs on a thread."""
    folder = _open(folders)
    if folder.notes is None:
        raise Refused(409, codes.QUARANTINE_UNREADABLE.say(fault=folder.notes_damage))
    try:
        chosen = sorted(_of(folder, queue), key=lambda message: (message.epoch, message.sequence))
        if not chosen:
            raise _none_such(folder, queue)
        with folder.notes.writing():
            todo, _ = unpublished(chosen, folder.notes, again=False, in_doubt=in_doubt)
            outcome = RepublishOutcome(len(todo), *published(chosen, folder.notes, again=False))
            Republishing(folder.notes, outcome, way, lambda: "").run(todo, lambda _count: None)
    except (NotesError, Unreadable) as error:
        raise Refused(409, codes.QUARANTINE_UNREADABLE.say(fault=error)) from None
    return outcome

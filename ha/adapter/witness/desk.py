"""WitnessDesk: answers the nodes of the pairs for which this node is the witness. Owner: Node.

Whatever this node's own role is. One file a pair in the data directory; a swap is answered once it is durable
there, as each save blocks until then. Records change seldom.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from broker.store.errors import StoreCorrupt, StoreUnusable
from broker.store.files import FileLayer
from broker.store.node_files import RecordFile
from ha.adapter import codes
from ha.adapter.witness.register import BadRequest, WitnessRegister, WitnessRequest, request_from_json
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import record_from_json
from understudy.shared.codes import Coded

LOOK = 0.25
"""Seconds between two looks at the clock while a pair asks: a longer pause means that this process stood
still."""
MEND = (
    "put back the newest file that this witness wrote; if there is none, and neither node of the pair "
    "serves, remove it, and promote the node that understudy status names"
)


class WitnessDesk:
    """`pairs`: the names in `ha.witness_for`."""

    def __init__(
        self, files: FileLayer, directory: str, pairs: Sequence[str], warn: Callable[[Coded], None],
        own: Callable[[], Collection[str]],
    ) -> None:  # fmt: skip
        """`own`: ids of this node and of the others of its own pair."""
        self._own = own
        self._sync = partial(files.sync_directory, directory)
        self._files = {name: RecordFile(files, directory, f"witness-{name}.json", MEND) for name in pairs}
        self._warn = warn
        self._registers: dict[str, WitnessRegister] = {}
        self._troubles: dict[str, str] = {}
        self._look_at: float | None = None
        self._looks_until = float("-inf")
        """Until then a lease may hold, whose owner asks as seldom as each third of it."""

    def start(self, now: float) -> None:
        """Read what is kept. A file that cannot be read stays as it is, and its pair gets no answers."""
        for name, file in self._files.items():
            try:
                body = file.load()
                if body is not None:
                    self._sync()  # what is told from now on outlives a loss of power
                record = record_from_json(body) if body is not None else None
            except (StoreUnusable, StoreCorrupt, LinkError, OSError) as error:
                self._trouble(name, str(error))
                continue
            self._registers[name] = WitnessRegister(record, now)

    def hear(self, pair: str, payload: bytes, now: float) -> dict[str, Any]:
        """The answer to one request of a node that logged in as that pair."""
        try:
            request = request_from_json(json.loads(payload))
        except (ValueError, RecursionError) as error:
            fault = str(error) if isinstance(error, BadRequest) else "no JSON"
            return {"id": None, "outcome": "unknown", **_said(codes.WITNESS_BAD_REQUEST.say(fault=fault))}
        if request.asker[0] in self._own():
            said = codes.WITNESS_OF_ITS_OWN_PAIR.say()
            return {"id": request.number, "outcome": "unknown", **_said(said)}
        register = self._registers.get(pair)
        if register is None:
            cause = self._troubles.get(pair, f"{pair!r} is not in ha.witness_for")
            return _failed(request, pair, cause)
        self._tick(now)
        self._looks_until = max(self._looks_until, now + request.seconds)
        if self._look_at is None:
            self._look_at = now + LOOK
        before = register.kept
        answer, changed = register.answer(request, now)
        if changed and register.record is not None:
            try:
                self._files[pair].save(register.record.as_json())
            except StoreUnusable as error:
                register.put_back(before)
                self._trouble(pair, str(error))
                return _failed(request, pair, str(error))
            self._troubles.pop(pair, None)
        return answer.as_json(request.number)

    def timers(self, now: float) -> None:
        if self._look_at is not None and now >= self._look_at:
            self._tick(now)
            self._look_at = now + LOOK if now < self._looks_until else None

    def next_deadline(self) -> float | None:
        return self._look_at

    def status(self) -> dict[str, Any]:
        """By pair: whose record is held, and `trouble`."""
        found: dict[str, Any] = {}
        for name in self._files:
            register = self._registers.get(name)
            record = register.record if register is not None else None
            found[name] = {
                "epoch": record.epoch if record is not None else None,
                "owner": record.owner_name if record is not None else None,
                "trouble": self._troubles.get(name),
            }
        return found

    def _tick(self, now: float) -> None:
        """Renewals that came while this process stood still wait in its sockets: leases last longer."""
        if self._look_at is not None and (late := now - self._look_at) > LOOK:
            for register in self._registers.values():
                register.stood_still(late)
            self._look_at = now + LOOK

    def _trouble(self, pair: str, cause: str) -> None:
        if self._troubles.get(pair) != cause:
            self._warn(codes.WITNESS_FILE_FAILED.say(pair=pair, cause=cause))
        self._troubles[pair] = cause


def _failed(request: WitnessRequest, pair: str, cause: str) -> dict[str, Any]:
    said = codes.WITNESS_FILE_FAILED.say(pair=pair, cause=cause)
    return {"id": request.number, "outcome": "unknown", **_said(said)}


def _said(said: Coded) -> dict[str, str]:
    return {"code": said.code, "reason": said.sentence}

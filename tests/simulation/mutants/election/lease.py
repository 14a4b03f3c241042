"""Mutants of the lease: a primary that goes on after its lease."""

from __future__ import annotations

from typing import Any

from broker.amqp091.server.connection import ServerConnection
from ha.core.backup.backup import Backup
from ha.core.election.promotion import Promotion
from ha.core.primary.remote_backup import RemoteBackup
from ha.core.record.lease import Lease
from tests.simulation.mutants.mutant import Mutant, Patch, always


def _good_for_ever(renewed: Any) -> Any:
    def broken(self: Lease, at: float) -> None:
        self.until = float("inf")

    return broken


def _from_its_arrival(echoed: Any) -> Any:
    return lambda self, sent_at, now: echoed(self, now, now)


def _own_time(heartbeat: Any) -> Any:
    def broken(self: Backup, payload: bytes, now: float) -> None:
        heartbeat(self, payload, now)
        self._echo = max(self._echo, now)

    return broken


MUTANTS = (
    Mutant(
        "hold the lease for ever",
        "A primary that was frozen goes on where it stopped, whoever was promoted since (SIGSTOP in Qpid).",
        (28, 8),
        (Patch(Lease, "renewed", _good_for_ever),),
        because="28 of one that was frozen or cut off from all, 8 where another has served by then.",
    ),
    Mutant(
        "date the lease from an arrival",
        "An acknowledgement that lay in a buffer while the primary stood still counts as news of now.",
        (28, 8),
        (Patch(RemoteBackup, "echoed", _from_its_arrival),),
        because="28 of one that was frozen or cut off from all, 8 where another has served by then.",
    ),
    Mutant(
        "say back one's own time",
        "A backup dates its acknowledgements by its own clock, and its primary takes that for a time of its "
        "own: nobody sees it as long as all run on one host.",
        (27,),
        (Patch(Backup, "heartbeat", _own_time),),
    ),
    Mutant(
        "fence deliveries and let confirms go",
        "After the lease nothing is delivered any more, but what was published before is confirmed.",
        (28,),
        (Patch(ServerConnection, "is_client", always(False)),),
    ),
    Mutant(
        "promote before the lease is over",
        "A new primary serves while the old one's lease still holds.",
        (8,),
        (Patch(Promotion, "_owner_is_over", lambda original: lambda self, attempt: True),),
    ),
)

"""The authority `pair` without a witness: each node has its own copy of the record, and promotes itself.

Safe against crashes, not against a network that is cut in two: then clients on both sides make two
primaries. They find each other later, and what the one with the lower epoch confirmed alone goes to its
quarantine. With a witness the rules are those of `LeasingRegister`. Owner: HaBroker.
"""

from __future__ import annotations

from ha.core import codes
from ha.core.election.manual import ManualAuthority
from ha.core.record.authority import Evidence, Verdict
from ha.core.record.in_sync_record import InSyncRecord


class PairAuthority(ManualAuthority):
    """See `Authority`."""

    AUTOMATIC = True

    def _in_sync(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        """A primary that is gone is followed, if it had not excluded this node when it was heard last."""
        verdict = super()._in_sync(e, newest)
        if verdict.granted or verdict.code != codes.PROMOTE_PRIMARY_MAY_SERVE.name:
            return verdict
        end = e.link_end
        if end is None or end.epoch != newest.epoch or not end.went_silent_in_sync(e.ack_timeout):
            return verdict
        if not e.silent:
            return verdict
        return Verdict(True, f"in the in-sync set when {newest.owner_name} was heard last", "unforced")

"""The `register` authority: the record is one document in a linearizable compare-and-set register.

All that is asked of it is to read, and to replace the document if its version (epoch, revision) is still the
one expected: a Pacemaker CIB, etcd or a pair controller can be one. It may be slow, cut off, or leave a
request unanswered; see RecordKeeper. Owner: HaBroker.

The rules of a promotion are those of `manual`, but that the record is known for certain: who is in it needs
no evidence of how its link ended, because the old owner cannot take it out of the record without this node's
swap failing, and stops confirming when its lease runs out.
"""

from __future__ import annotations

from dataclasses import replace

from ha.core import codes
from ha.core.effects import ReadRegister, SwapRegister
from ha.core.election.evidence import newest_known
from ha.core.election.manual import FORCE, IF_LOST, ManualAuthority, _no
from ha.core.election.most_complete import most_complete, why_more
from ha.core.record.authority import Evidence, Verdict
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion, is_behind


class RegisterAuthority(ManualAuthority):
    """See `Authority`. `Evidence.newest` is what the register held when the promotion asked it."""

    ARBITRATES = True

    def read(self, request_id: int, *, renews: bool = False) -> ReadRegister | None:
        return ReadRegister(request_id, renews)

    def swap(
        self, request_id: int, expected: RecordVersion | None, record: InSyncRecord
    ) -> SwapRegister | None:
        return SwapRegister(request_id, expected, record)

    def _others_forbid(self, e: Evidence) -> Verdict | None:
        verdict = super()._others_forbid(e)
        if verdict is None or verdict.code not in _SERVES:
            return verdict
        known = newest_known(e.record, e.answers)
        behind = known is not None and is_behind(e.newest, known) and most_complete(e, known) is not None
        return replace(verdict, final=behind)

    def _by_record(self, e: Evidence) -> Verdict:
        known = newest_known(e.record, e.answers)
        if known is not None and is_behind(e.newest, known):
            return self._register_behind(e, known)
        return super()._by_record(e)

    def _register_behind(self, e: Evidence, known: InSyncRecord) -> Verdict:
        """It has lost the record, or a later one: nobody is promoted unforced. Of those that answer, the one
        that has the most may be forced, and no other."""
        best = most_complete(e, known)
        missing = sorted(known.node_ids - {e.me.node_id, *e.answers})
        names = ", ".join(known.names.get(i, i[:8]) for i in missing)
        if best is None:
            force = f"start {names} and ask again; {IF_LOST}"
            if not missing:
                force = f"promote this node with {FORCE}: no node that answers has more"
            return _no(codes.PROMOTE_REGISTER_BEHIND.say(), force)
        said = codes.PROMOTE_OTHER_HAS_MORE.say(other=best.name, has=why_more(e, best, known))
        if best.serving:  # and is fenced
            force = f"let {best.name} reach the authority, or end it and ask again"
        elif missing:
            force = f"start {names} and ask again; if that is lost for good, promote {best.name} with {FORCE}"
        else:
            force = f"promote {best.name} with {FORCE}"
        return replace(_no(said, force), final=True)

    def _in_sync(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        return Verdict(True, "the authority has this node in sync", "unforced")

    def _former_owner(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        return Verdict(True, "the authority still has this node as the last primary", "unforced")


_SERVES = (codes.PROMOTE_OTHER_SERVES.name, codes.PROMOTE_CATCHING_UP.name)


class LeasingRegister(RegisterAuthority):
    """A register that also keeps a lease of the record's owner, such as etcd: see `automatic.py`."""

    AUTOMATIC = True

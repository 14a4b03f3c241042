"""The `register` authority: the record is one document in a linearizable compare-and-set register.

All that is asked of it is to read, and to replace the document if its version (epoch, revision) is still the
one expected: a Pacemaker CIB, etcd or a pair controller can be one. It may be slow, cut off, or leave a
request unanswered; see RecordKeeper. Owner: HaBroker.

The rules of a promotion are those of `manual`, but that the record is known for certain: who is in it needs
no evidence of how its link ended, because the old owner cannot take it out of the record without this node's
swap failing, and stops confirming when its lease runs out.
"""

from __future__ import annotations

from ha.core import codes
from ha.core.effects import ReadRegister, SwapRegister
from ha.core.election.manual import PUT_BACK, ManualAuthority, _no
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

    def _judge(self, e: Evidence) -> Verdict:
        if is_behind(e.newest, e.record):
            return _no(codes.PROMOTE_REGISTER_BEHIND.say(), PUT_BACK)
        return super()._judge(e)

    def _in_sync(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        return Verdict(True, "the authority has this node in sync", "unforced")

    def _former_owner(self, e: Evidence, newest: InSyncRecord) -> Verdict:
        return Verdict(True, "the authority still has this node as the last primary", "unforced")


class LeasingRegister(RegisterAuthority):
    """A register that also keeps a lease of the record's owner, such as etcd: see `automatic.py`."""

    AUTOMATIC = True

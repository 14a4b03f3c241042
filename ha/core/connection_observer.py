"""ConnectionObserver: who may open a connection to this node, by what the node is doing.

Owner: the adapter's hooks. Ordinary clients are let in by a node that serves, refused with 320 by a backup
(so that they try the next address), and held by a joining node that knows no primary yet (OpenAMQ's
*pending*).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ha.core.membership import Status

CONNECTION_FORCED = 320


class AdmissionAnswer(enum.Enum):
    ADMIT = "admit"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(slots=True, frozen=True)
class Admission:
    answer: AdmissionAnswer
    text: str = ""


def decide(status: Status, *, peer: bool, primary: str | None, soon: bool = False) -> Admission:
    """`peer`: a connection that speaks link or management methods only. `primary`: name and address, if
    known. `soon`: this node is the primary, and may not serve at this moment.
    """
    if not peer and soon:
        return Admission(AdmissionAnswer.HOLD)
    if peer or status.serves:
        return Admission(AdmissionAnswer.ADMIT)
    if primary is not None:
        return Admission(
            AdmissionAnswer.REFUSE,
            f"CONNECTION_FORCED - this broker is a backup ({status.value}), the primary is {primary}",
        )
    if status is Status.JOINING:
        return Admission(AdmissionAnswer.HOLD)
    return Admission(
        AdmissionAnswer.REFUSE,
        f"CONNECTION_FORCED - this broker is a backup ({status.value}), no primary is known",
    )

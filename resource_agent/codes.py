"""The return codes and promotion scores of an OCF agent."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """Exit codes of the OCF Resource Agent API 1.1, and Pacemaker's two for a resource that runs, but not
    well."""

    SUCCESS = 0
    GENERIC = 1
    """Soft: the manager may try again, here or elsewhere."""
    ARGS = 2
    """Hard: the parameters are wrong on this node."""
    UNIMPLEMENTED = 3
    PERM = 4
    """Hard: something may not be read, written or done."""
    INSTALLED = 5
    """Hard: a program or a user is missing on this node."""
    CONFIGURED = 6
    """Fatal: the parameters are wrong on every node."""
    NOT_RUNNING = 7
    RUNNING_PROMOTED = 8
    FAILED_PROMOTED = 9
    DEGRADED = 190
    DEGRADED_PROMOTED = 191

    @property
    def fine(self) -> bool:
        """It needs no sentence."""
        return self in (Code.SUCCESS, Code.NOT_RUNNING, Code.RUNNING_PROMOTED)


class Score(enum.Enum):
    """How much this node wants to be promoted: the value of `crm_attribute`."""

    SERVING = "1000"
    """Serves, and can prove that it may."""
    IN_RECORD = "500"
    """This very process holds every confirmed message."""
    LEASE_EXPIRED = "400"
    """Serves nobody although it is primary: a backup in the record is better."""
    DOUBTFUL = "300"
    """In the record, but its authority does not answer: it could not be promoted, and is no better than a
    primary that waits for its lease."""
    FORMER_OWNER = "110"
    BEST_COPY = "100"
    """The best that is left after all nodes were down."""
    NEVER = "-INFINITY"
    NONE = ""
    """No score at all: it does not run, or nothing is known yet."""
    KEEP = "keep"
    """As it is."""

    def raises(self, other: Score) -> bool:
        """Does it make a promotion likelier than the other one?"""
        return _RISING.index(self) > _RISING.index(other)


_RISING = (
    Score.KEEP, Score.NEVER, Score.NONE, Score.BEST_COPY, Score.FORMER_OWNER, Score.DOUBTFUL,
    Score.LEASE_EXPIRED, Score.IN_RECORD, Score.SERVING,
)  # fmt: skip

"""The pair controller's table: who is to serve, by the roles of the nodes and what they see of each other.

Data and pure functions. After the state machines of "OpenAMQ Clustering" (3.4.4), with rows for what the
paper leaves open: see docs/explanation/divergence.md. The table says which node is *wanted*. The in-sync set
says which one *may*: a node without every confirmed message is never promoted, whatever the table says.

Each node has a state, and sees the other one in a state:

    PENDING   it has started, and follows nobody
    ACTIVE    it serves
    PASSIVE   it follows the other one, or has followed it
    ORDERED   as PASSIVE, because an operator wants it not to serve
    OFFLINE   of the other one only: its kernel says that it does not run, or it is silent for too long
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PairRole(enum.Enum):
    """`ha.role`. A tie goes to the primary; otherwise the two are alike."""

    PRIMARY = "primary"
    BACKUP = "backup"


class PairState(enum.Enum):
    PENDING = "pending"
    ACTIVE = "active"
    PASSIVE = "passive"
    ORDERED = "ordered"
    OFFLINE = "offline"


class Wanted(enum.Enum):
    """What a node is to do."""

    ACTIVE = "active"
    AFTER_A_TURN = "active after a turn"
    """If the other node, which goes first, has not begun by then: it may not, perhaps."""
    PASSIVE = "passive"
    AS_IT_IS = "as it is"


PENDING, ACTIVE, PASSIVE, ORDERED, OFFLINE = PairState
_PRIMARY, _BACKUP = PairRole
_BOTH = (_PRIMARY, _BACKUP)


@dataclass(slots=True, frozen=True)
class Row:
    """One rule. `clients`: it needs a client that tries to get in here. `source`: which rows of the paper's
    two machines (3.4.4) it is, or what it adds."""

    roles: tuple[PairRole, ...]
    states: tuple[PairState, ...]
    seen: tuple[PairState, ...]
    clients: bool
    then: Wanted
    source: str
    why: str
    """In a sentence of the log, after "takes over: "."""


TABLE: tuple[Row, ...] = (
    # -- the other one serves
    Row(_BOTH, (PENDING, PASSIVE, ORDERED), (ACTIVE,), False, Wanted.PASSIVE, "primary b, backup a", ""),
    # -- an order stands while the other node is there, and has none itself
    Row(_BOTH, (ORDERED,), (PENDING, PASSIVE), False, Wanted.PASSIVE, "added: orders", ""),
    Row((_PRIMARY,), (ORDERED,), (ORDERED,), False, Wanted.ACTIVE, "added: orders",
        "an operator has made both nodes passive"),
    Row((_BACKUP,), (ORDERED,), (ORDERED,), False, Wanted.AFTER_A_TURN, "added: orders",
        "an operator has made both nodes passive"),
    # -- the other one is there, and nobody serves
    Row(_BOTH, (PENDING, PASSIVE), (ORDERED,), False, Wanted.ACTIVE, "primary d, backup c",
        "an operator has made the other node passive"),
    Row(_BOTH, (PASSIVE,), (PENDING,), False, Wanted.ACTIVE, "added: restart",
        "the other node has started again"),
    Row((_PRIMARY,), (PENDING,), (PENDING, PASSIVE), False, Wanted.ACTIVE, "primary a", "nobody serves"),
    Row((_PRIMARY,), (PASSIVE,), (PASSIVE,), False, Wanted.ACTIVE, "primary d", "nobody serves"),
    Row((_BACKUP,), (PENDING,), (PENDING, PASSIVE), False, Wanted.AFTER_A_TURN, "added: turn",
        "nobody serves, and the other node may not"),
    Row((_BACKUP,), (PASSIVE,), (PASSIVE,), False, Wanted.AFTER_A_TURN, "added: turn",
        "nobody serves, and the other node may not"),
    # -- the other one is not there: only a client tells a dead node from a cut cable
    Row(_BOTH, (PENDING,), (OFFLINE,), True, Wanted.ACTIVE, "added: alone",
        "the other node is gone, and clients come here"),
    Row(_BOTH, (PASSIVE, ORDERED), (OFFLINE,), True, Wanted.ACTIVE, "primary c, backup b",
        "the other node is gone, and clients come here"),
)  # fmt: skip
"""At most one row fits. Where none does, everything stays as it is. Of two that serve, the one with the
lower epoch stops by the ordinary rules, whatever its role (primary b)."""


def row_for(role: PairRole, state: PairState, seen: PairState, *, clients: bool) -> Row | None:
    """The row that fits, or None."""
    for row in TABLE:
        if role in row.roles and state in row.states and seen in row.seen and (clients or not row.clients):
            return row
    return None

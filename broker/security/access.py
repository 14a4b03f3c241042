"""Which kinds of connection a user may open, and at which listener. Called by the handshake; values only.

There are three kinds: application, operator (management methods only) and peer (the link of a pair). The tag
`ha` is for peers: a user with it cannot publish or consume. A listener may accept only peers, or everything
but peers.
"""

from __future__ import annotations

import enum

from broker.errors import AmqpError, LoginRefused, NotAllowed
from broker.security.identity import ADMINISTRATOR, FEDERATION, HA, MIRROR, WITNESS


class Door(enum.Enum):
    """The kind of connections that a listener accepts."""

    ANY = "any"
    CLIENTS = "clients"
    """Applications and operators; the link has its own listener."""
    PEERS = "peers"
    """Only the link of a pair."""


class Claim(enum.Enum):
    """The kind of a connection, claimed by the capabilities of its start-ok."""

    APPLICATION = "an application"
    OPERATOR = "an operator"
    PEER = "a peer"


def refusal(user: str, tags: frozenset[str], claim: Claim, door: Door) -> AmqpError | None:
    """Why `user` may not open this connection here; None if it may. Checks the user before the listener."""
    if claim is Claim.PEER and not tags & {HA, MIRROR, FEDERATION}:
        return LoginRefused(f"user '{user}' may not be a peer of this broker")
    if claim is Claim.OPERATOR and not tags & {ADMINISTRATOR, HA, WITNESS}:
        return LoginRefused(f"user '{user}' may not manage this broker")
    if claim is Claim.APPLICATION and WITNESS in tags:
        return LoginRefused(f"user '{user}' is a pair with this broker as its witness, and no application")
    if claim is Claim.APPLICATION and HA in tags:
        return LoginRefused(f"user '{user}' is the pair's own, for its link, and no application's")
    if claim is Claim.PEER and door is Door.CLIENTS and FEDERATION not in tags:
        return NotAllowed(
            "this listener takes no link of a pair, which has a listener of its own (ha.listen)"
        )
    if claim is not Claim.PEER and door is Door.PEERS:
        return NotAllowed(
            f"this listener takes the link of a pair only, and not {claim.value} (see broker.listen)"
        )
    return None

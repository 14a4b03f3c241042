"""Notes federation links in the ledger: what joins the ledgers of several nodes. Owner: Federation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ha.adapter.federation.ports import FederationNode


def note_link(node: FederationNode, other: str, queue: bytes = b"") -> None:
    """A link is open. `other`: the node at its other end; `queue`: the link queue here that feeds it, if its
    messages go there; otherwise they come from there."""
    node.ledger.record(
        "link", queue=queue.hex() or None, name=other, peer=node.settings.federated.node,
        reason="gives" if queue else "takes",
    )  # fmt: skip

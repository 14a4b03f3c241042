"""The in-sync record in the node's files: the `manual` authority's memory. Called by Node, rarely; each
save blocks until it is durable.
"""

from __future__ import annotations

from broker.store.errors import StoreUnusable
from broker.store.node_files import NodeFiles
from ha.core.errors import LinkError
from ha.core.in_sync_record import InSyncRecord, record_from_json


def load_record(files: NodeFiles) -> tuple[InSyncRecord | None, bool]:
    """The newest record this node has seen, and whether its copy was being changed when it stopped."""
    body = files.record.load()
    if body is None:
        return None, False
    try:
        return record_from_json(body), bool(body.get("incomplete", False))
    except LinkError as error:
        raise StoreUnusable(
            f"{files.record.path} holds no in-sync record ({error}): move the data directory away and let "
            f"this node join as a new one"
        ) from error


def save_record(files: NodeFiles, record: InSyncRecord, incomplete: bool) -> None:
    """Durable on return."""
    files.record.save(record.as_json() | {"incomplete": incomplete})

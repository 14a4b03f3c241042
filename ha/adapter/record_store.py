"""The node's identity and the in-sync record in the node's files. The files are the memory of the `manual`
authority. Called by Node, rarely; each save blocks until it is durable."""

from __future__ import annotations

from collections.abc import Callable

from broker.settings import BrokerSettings
from broker.store.errors import OR_ANEW, StoreUnusable
from broker.store.node_files import NodeFiles
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import InSyncRecord, record_from_json
from ha.core.role import OwnIdentity


def who_this_is(
    files: NodeFiles, broker: BrokerSettings, random_bytes: Callable[[int], bytes]
) -> OwnIdentity:
    """The identity of this process, from the node's files."""
    known = files.identity
    life = random_bytes(16).hex()
    return OwnIdentity(known.node_id, broker.name, known.incarnation, known.number, broker.version, life)


def load_record(files: NodeFiles) -> tuple[InSyncRecord | None, bool]:
    """The newest record that this node has seen, and whether its copy was being changed when it stopped."""
    body = files.record.load()
    if body is None:
        return None, False
    try:
        record = record_from_json(body)
    except LinkError as error:
        raise StoreUnusable(f"{files.record.path} holds no in-sync record ({error}): {OR_ANEW}") from error
    mine = files.identity.cluster_id
    if mine is not None and record.cluster_id != mine:
        raise StoreUnusable(
            f"{files.record.path} is of cluster {record.cluster_id}, and this node belongs to {mine}: put "
            f"back the one that belongs here, or move the data directory away and let this node join as a "
            f"new one"
        )
    return record, bool(body.get("incomplete", False))


def save_record(files: NodeFiles, record: InSyncRecord, incomplete: bool) -> None:
    """Durable on return."""
    files.record.save(record.as_json() | {"incomplete": incomplete})

"""The state of a node that survives restarts: identity, number of starts, highest epoch seen.

Owner: the node. It calls this at startup and at rare events (a promotion, a new in-sync set), on the broker's
thread: each save blocks for two syncs. Every change is durable on return, so the caller may act on it at
once.

    <directory>/lock         held by the running process
    <directory>/node.json    identity, incarnation, epoch high-water
    <directory>/insync.json  this node's copy of the in-sync set
    <directory>/store/       the segments
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.store.errors import OR_ANEW, StoreCorrupt, StoreLocked, StoreMisuse, StoreUnusable
from broker.store.files import FileLayer, HeldLock
from understudy.shared.file_errors import of_file

FORMAT = 1
MOST = 2**63 - 1
"""Maximum of an epoch and of an incarnation."""
MOST_NODES = 65535
"""Maximum number of a node: 16 bits of an epoch."""

_WITHOUT_OWNER = (
    "if the folder is this node's own, remove the file: the next start writes it anew; else put the right "
    "folder back"
)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """`number` (1..65535) is part of each epoch of this node, so that authorities can make epochs without
    asking: it never changes once the node has made one."""

    node_id: str
    """32 hex digits."""
    name: str
    cluster_id: str | None
    incarnation: int
    """The number of the process life. Raised durably at each start before anything else; 0 before the first
    start."""
    number: int


class RecordFile:
    """One JSON object in one file, with a checksum, replaced atomically and durably. `remedy`: what to do if
    the file is damaged."""

    def __init__(self, files: FileLayer, directory: str, name: str, remedy: str = OR_ANEW) -> None:
        self._remedy = remedy
        self._files = files
        self._directory = directory
        self._name = name
        self.path = f"{directory}/{name}"

    def load(self) -> dict[str, Any] | None:
        """The object saved last; None if there never was one. Raises StoreCorrupt if it is not what was
        saved."""
        try:
            raw = self._files.read(self.path)
        except FileNotFoundError:
            self._refuse_a_link_to_nothing()
            return None
        except OSError as error:
            raise StoreUnusable(f"cannot read {self.path}: {error.strerror or error}") from error
        try:
            document = json.loads(raw)
            body, checksum, version = document["body"], document["checksum"], document["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreCorrupt(self.path, 0, "it is not a file of this program", self._remedy) from error
        if version != FORMAT:
            raise StoreUnusable(
                f"{self.path} has format {version}, and this version reads {FORMAT} only: run the version "
                f"that wrote it, or move the data directory away and let this node join as a new one; "
                f"nothing was changed"
            )
        if not isinstance(body, dict) or checksum != _checksum(body):
            raise StoreCorrupt(self.path, 0, "its checksum does not match", self._remedy)
        return body

    def _refuse_a_link_to_nothing(self) -> None:
        """Refuse a name without a file (a dangling link), which is not a node without state."""
        try:
            names = self._files.list(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnusable(f"cannot read {self._directory}: {error.strerror or error}") from error
        if self._name in names:
            raise StoreUnusable(f"{self.path} is a link to nothing: put back what it leads to; or, {OR_ANEW}")

    def save(self, body: Mapping[str, Any]) -> None:
        """Durable on return. Raises StoreUnusable on any error; the caller must then stop the node."""
        document = {"format": FORMAT, "checksum": _checksum(body), "body": body}
        fresh = f"{self.path}.new"
        try:
            self._discard(fresh)
            file = self._files.open_append(fresh)
            try:
                file.write(json.dumps(document, sort_keys=True).encode() + b"\n")
                file.sync()
            finally:
                file.close()
            self._files.replace(fresh, self.path)
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise StoreUnusable(f"cannot write {self.path}: {error.strerror or error}") from error

    def discard(self) -> None:
        """Remove the file; durable on return. Raises OSError if the disk fails."""
        try:
            self._files.unlink(self.path)
        except FileNotFoundError:
            return
        self._files.sync_directory(self._directory)

    def _discard(self, path: str) -> None:
        """Remove what a crash during an earlier save left behind."""
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            pass


class NodeFiles:
    """The data directory of one node, locked while this object lives."""

    def __init__(self, files: FileLayer, directory: str, lock: HeldLock) -> None:
        self.files = files
        self.directory = directory
        self.store_directory = f"{directory}/store"
        self.record = RecordFile(files, directory, "insync.json")
        """For the authority: its copy of the in-sync set. Only the authority reads the contents."""
        self._node = RecordFile(files, directory, "node.json")
        self._owner = RecordFile(files, self.store_directory, "owner.json", _WITHOUT_OWNER)
        self._lock = lock
        self._identity: NodeIdentity | None = None
        self._epoch = 0

    @classmethod
    def open(
        cls, files: FileLayer, directory: str, name: str, *,
        number: int | None = None, new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> NodeFiles:  # fmt: skip
        """Create or load the files, lock them, and begin a new incarnation durably.

        `number` replaces the stored one; by default a new node derives it from its id. Raises StoreLocked,
        StoreUnusable or StoreCorrupt, with nothing changed.
        """
        try:
            files.make_directory(directory)
            lock = files.lock(f"{directory}/lock", str(os.getpid()))
        except OSError as error:
            raise StoreUnusable(
                f"cannot use data directory {directory}: {of_file(error, directory)}"
            ) from error
        if isinstance(lock, str):
            raise StoreLocked(
                f"data directory {directory} is in use by process {lock}; each node needs its own"
            )
        node = cls(files, directory, lock)
        try:
            node._begin(name, number, new_id)
        except BaseException:
            lock.release()
            raise
        return node

    @property
    def identity(self) -> NodeIdentity:
        if self._identity is None:
            raise StoreMisuse("the node files were not opened")
        return self._identity

    @property
    def epoch(self) -> int:
        """The highest epoch that this node has seen or used in any incarnation; 0 if none."""
        return self._epoch

    def raise_epoch(self, epoch: int) -> None:
        """Durable on return. Call it before the first use of `epoch`. A lower epoch changes nothing."""
        if epoch > self._epoch:
            self._save(self.identity, epoch)

    def set_cluster(self, cluster_id: str) -> None:
        """Create or join a cluster; durable on return. Raises StoreMisuse if the node belongs to another."""
        if self.identity.cluster_id == cluster_id:
            return
        if self.identity.cluster_id is not None:
            raise StoreMisuse(f"this node belongs to cluster {self.identity.cluster_id}, not to {cluster_id}")
        self._save(replace(self.identity, cluster_id=cluster_id), self._epoch)

    def set_number(self, number: int) -> None:
        """Durable on return."""
        self._save(replace(self.identity, number=number), self._epoch)

    def close(self) -> None:
        """Release the lock, so that another process may use the directory."""
        self._lock.release()

    def _begin(self, name: str, number: int | None, new_id: Callable[[], str]) -> None:
        stored = self._node.load()
        if stored is None:
            self._refuse_orphans()
            node_id = new_id()
            number = number or 1 + zlib.crc32(node_id.encode()) % MOST_NODES
            self._save(NodeIdentity(node_id, name, None, 1, number), 0)
            self._own_store(node_id)
            return
        identity, epoch = self._identity_of(stored)
        self.record.load()  # an unreadable file must fail before anything is changed
        owner = self._owner.load()
        if owner is not None and owner.get("node_id") != identity.node_id:
            raise StoreUnusable(
                f"{self.store_directory} is the store of node {owner.get('node_id')}, and {self._node.path} "
                f"is of node {identity.node_id}: put back the one that belongs here, or move the directory "
                f"away and let this node join as a new one"
            )
        if owner is None and epoch:
            self._refuse_lost_store()
        fresh = replace(
            identity, name=name, incarnation=identity.incarnation + 1, number=number or identity.number
        )  # fmt: skip
        self._save(fresh, epoch)
        if owner is None:
            self._own_store(identity.node_id)

    def _identity_of(self, stored: dict[str, Any]) -> tuple[NodeIdentity, int]:
        """The identity and the epoch. Raises StoreCorrupt for values that no version writes, even if the
        checksum matches."""
        try:
            epoch = stored.pop("epoch")
            identity = NodeIdentity(**stored)
        except (KeyError, TypeError) as error:
            raise StoreCorrupt(self._node.path, 0, "a field is missing or unknown") from error
        fits = {
            "node_id": isinstance(identity.node_id, str) and identity.node_id != "",
            "name": isinstance(identity.name, str),
            "cluster_id": identity.cluster_id is None or isinstance(identity.cluster_id, str),
            "incarnation": _is_count(identity.incarnation, 0, MOST),
            "number": _is_count(identity.number, 1, MOST_NODES),
            "epoch": _is_count(epoch, 0, MOST),
        }
        if wrong := [name for name, right in fits.items() if not right]:
            raise StoreCorrupt(self._node.path, 0, f"{', '.join(wrong)} cannot be that")
        return identity, epoch

    def _refuse_orphans(self) -> None:
        """A directory with data but without identity has lost its epochs. A new start could repeat one."""
        names = self.files.list(self.directory)
        orphans = [n for n in ("insync.json", "store") if n in names]
        if orphans:
            raise StoreUnusable(
                f"{self.directory} holds {' and '.join(orphans)} but no node.json; restore it, or move the "
                f"directory away and let this node join as a new one"
            )

    def _refuse_lost_store(self) -> None:
        """A node that was in an epoch had a store. Without it, the node would claim that its empty state is
        complete."""
        there = self.files.list(self.store_directory) if "store" in self.files.list(self.directory) else ()
        if not any(name.endswith(".segment") for name in there):
            raise StoreUnusable(
                f"{self.store_directory} is gone or empty, and {self._node.path} is of a node that had one; "
                f"put it back (is its disk mounted?), or move the directory away and let this node join as a "
                f"new one"
            )

    def _own_store(self, node_id: str) -> None:
        """Record the owner of the store, so that a store moved into another node's directory is detected."""
        self.files.make_directory(self.store_directory)
        self._owner.save({"node_id": node_id})

    def _save(self, identity: NodeIdentity, epoch: int) -> None:
        self._node.save(asdict(identity) | {"epoch": epoch})
        self._identity, self._epoch = identity, epoch


def _is_count(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _checksum(body: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"

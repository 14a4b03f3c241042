"""The interface that every engine is put behind, and which of them can be had here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple, Protocol

from bench.store.pattern import Range, Run, Stored
from bench.store.run_index import RunIndex


class Damaged(Exception):
    """An adapter's own finding: what it read is not what it wrote. `str()` is a sentence."""


class Engine(Protocol):
    """One engine on one directory. Life: `recover()` to its end, then anything, then `close()`.

    Called by one thread only, as by the broker's sync thread. Errors are the engine's own exceptions.
    """

    index: RunIndex
    """Given to a fresh instance, it can read what the old one knew of, without having read it before."""

    def recover(self) -> Iterator[Stored]:
        """All runs with a message left; those of a queue and epoch in order."""

    def commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        """Durable on return."""

    def read(self, queue: bytes, epoch: int, first: int) -> bytes:
        """The raw bytes of the live run that begins at `first`."""

    def close(self) -> None: ...


class Kind(NamedTuple):
    """How to come by an engine."""

    title: str
    needs: str
    """The module that must be importable."""
    module: str


KINDS = {
    "lmdb": Kind("LMDB", "lmdb", "bench.store.lmdb_engine"),
    "rocksdb": Kind("RocksDB", "rocksdict", "bench.store.rocksdb_engine"),
    "sqlite": Kind("SQLite", "sqlite3", "bench.store.sqlite_engine"),
    "segments": Kind("plain segments", "broker", "bench.store.segments_engine"),
}


def missing(name: str) -> str | None:
    """A line that says what to install, or None if the engine is there."""
    if find_spec(KINDS[name].needs) is not None:
        return None
    return f"{KINDS[name].title} is left out: pip install '.[bench]' brings {KINDS[name].needs}"


def open_engine(name: str, directory: str, *, sync: bool = True, **more: bool) -> Engine:
    """`sync=False`: commits go to the kernel, no further; for comparison only. `more`: LMDB's `verify`."""
    factory: Callable[..., Engine] = import_module(KINDS[name].module).open_store
    return factory(directory, sync=sync, **more)

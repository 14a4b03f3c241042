"""Memories of processed messages: a file, or a table that the application's own transaction also writes.

A failover can lose the ack of a processed message. The message then comes again, flagged `redelivered` and
with the same replication id, and a consumer with `exactly_once` skips it if its memory has the id.

Role: used by the consumers of both kits, through `once`, and by applications without the kit, such as Celery
tasks. Owner: one consumer, on its thread. All consumers of a queue must share one memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from understudy.client.ledgers import ReplicationId
from understudy.client.numbering import NotExactlyOnce

KEEP = 1_000_000
"""Ids that are remembered of each queue."""
TABLE = "understudy_processed"
_COLUMNS = (
    "(queue CHAR(32) NOT NULL, epoch BIGINT NOT NULL, sequence BIGINT NOT NULL, processed_at BIGINT NOT NULL,"
    " PRIMARY KEY (queue, epoch, sequence), UNIQUE (queue, processed_at, epoch, sequence))"
)
"""The second key finds the oldest ids."""
_LOCKED = 30.0
"""Seconds to wait while another process writes to the file."""
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}"}


class Processed(Protocol):
    """What a consumer asks of its memory, on its thread, for one message at a time.

    The order is `has`, then the application's work, then `done` or `undo`. `flush` comes before acks leave.
    """

    def has(self, id_: ReplicationId) -> bool:
        """Whether the message is processed. Asked before it is handed out."""

    def done(self, id_: ReplicationId) -> bool:
        """Remember the message, with the application's work in the same transaction, if it has one.

        False: another consumer has processed it meanwhile, and the application's work is undone.
        """

    def undo(self) -> None:
        """The message in hand is not processed: undo the application's work, if it is in a transaction."""

    def flush(self) -> None:
        """Make sure that no power cut forgets what is done."""

    def close(self) -> None:
        """The consumer is closed."""

    def abandon(self) -> None:
        """Called in a forked child instead of `close`: all of this belongs to the parent."""


class _Ids:
    """Statements for one table, in the placeholders of one database module, which run in the transaction of
    the connection. `keep`: ids of each queue; those that were processed first are let go of."""

    def __init__(self, module: Any, connection: Any, table: str, keep: int) -> None:
        if not table.replace("_", "a").replace(".", "a").isalnum():
            raise ValueError(f"table: {table!r:.60} is not the name of a table")
        if keep < 1:
            raise ValueError("keep must be at least 1")
        mark = _MARKS.get(module.paramstyle)
        if mark is None:
            raise ValueError(f"placeholders in the style {module.paramstyle!r} are not supported")
        self.connection = connection
        self._table = table
        self._keep = keep
        self._every = max(1, keep // 10)
        self._left = 0
        """Ids until the next look for old ones."""
        self._at = 0
        marks = [mark.format(number) for number in range(1, 5)]
        one, two, three = marks[:3]
        self._has = f"SELECT 1 FROM {table} WHERE queue = {one} AND epoch = {two} AND sequence = {three}"
        self._add = f"INSERT INTO {table} (queue, epoch, sequence, processed_at) VALUES ({', '.join(marks)})"
        self._oldest = (
            f"SELECT processed_at FROM {table} WHERE queue = {one}"
            f" ORDER BY processed_at DESC LIMIT 1 OFFSET {keep}"
        )
        self._newest = (
            f"SELECT processed_at FROM {table} WHERE queue = {one} ORDER BY processed_at DESC LIMIT 1"
        )
        self._drop = f"DELETE FROM {table} WHERE queue = {one} AND processed_at <= {two}"

    def create(self) -> None:
        self._run(f"CREATE TABLE IF NOT EXISTS {self._table} {_COLUMNS}")

    def has(self, id_: ReplicationId) -> bool:
        return self._run(self._has, id_, first=True) is not None

    def add(self, id_: ReplicationId) -> None:
        """Raises the module's IntegrityError if the table has it."""
        if not self._at:
            self._go_past_newest(id_.queue)
        self._at = max(self._at + 1, time.time_ns() // 1000)
        self._run(self._add, (*id_, self._at))

    def due(self) -> bool:
        """Whether to look for old ids, now and then. To be asked once for each id."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._every
        return True

    def let_go(self, queue: str) -> None:
        """Delete the oldest ids of the queue beyond `keep`."""
        found = self._run(self._oldest, (queue,), first=True)
        if found is not None:
            self._run(self._drop, (queue, found[0]))
        self._go_past_newest(queue)

    def _go_past_newest(self, queue: str) -> None:
        """Ids that come now are the newest, also if the clock was ahead when others came."""
        found = self._run(self._newest, (queue,), first=True)
        if found is not None:
            self._at = max(self._at, found[0])

    def _run(self, statement: str, values: Any = (), *, first: bool = False) -> Any:
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement, tuple(values))
            return cursor.fetchone() if first else None
        finally:
            cursor.close()


class ProcessedFile:
    """Remembers ids in an SQLite file, which the consumers of a queue on one machine may share.

    `done` outlives the death of the process at once, and a power cut from `flush` on. The application's work
    is not part of it: if the process dies between the work and `done`, the message comes again.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = KEEP) -> None:
        """Raises NotExactlyOnce if the file cannot be used."""
        import sqlite3

        self.path = os.fspath(path)
        self._module = sqlite3
        self._unsynced = False
        with self._explained():
            self._connection = sqlite3.connect(
                self.path, timeout=_LOCKED, isolation_level=None, check_same_thread=False
            )
            try:
                self._ids = _Ids(sqlite3, self._connection, TABLE, keep)
                self._execute("PRAGMA journal_mode = WAL")
                self._execute("PRAGMA synchronous = NORMAL")
                self._ids.create()
                self._execute(
                    "CREATE TABLE IF NOT EXISTS understudy_synced (id INTEGER PRIMARY KEY, n INTEGER)"
                )
                self._execute("INSERT OR IGNORE INTO understudy_synced VALUES (1, 0)")
            except BaseException:
                self._connection.close()
                raise

    def has(self, id_: ReplicationId) -> bool:
        with self._explained():
            return self._ids.has(id_)

    def done(self, id_: ReplicationId) -> bool:
        with self._explained():
            try:
                self._ids.add(id_)
            except self._module.IntegrityError:
                return False
            self._unsynced = True
            if self._ids.due():
                self._ids.let_go(id_.queue)
        return True

    def undo(self) -> None:
        """The application's work is elsewhere."""

    def flush(self) -> None:
        """Commits are written at once, and synced here: SQLite syncs its log for this one, and all before."""
        if not self._unsynced:
            return
        with self._explained():
            self._execute("PRAGMA synchronous = FULL")
            try:
                self._execute("UPDATE understudy_synced SET n = n + 1")
            finally:
                self._execute("PRAGMA synchronous = NORMAL")
        self._unsynced = False

    def close(self) -> None:
        with self._explained():
            try:
                self.flush()
            finally:
                self._connection.close()

    def abandon(self) -> None:
        """SQLite forbids to use or close a connection in a child."""
        _abandoned.append(self._connection)

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement).close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._module.Error as error:
            raise NotExactlyOnce(
                f"{self.path!r}, which remembers processed messages, cannot be used: {error}: mend the file"
                " or its folder; without the file, messages that come again are handed out again"
            ) from error


_abandoned: list[Any] = []


class OwnTransaction:
    """Remembers ids in a table of the application's database, in the transaction of its work.

    `done` commits both. So the work of a message is in the database exactly once, whatever dies, and
    whichever consumer gets the message again. Between two messages the application leaves no transaction
    open.

    `module` is the DB-API 2.0 module (PEP 249), such as `sqlite3`, `psycopg` or `pymysql`, and `connection`
    is one of its connections, not in autocommit mode. The database must know LIMIT and OFFSET.
    """

    def __init__(self, module: Any, connection: Any, table: str = TABLE, keep: int = KEEP) -> None:
        if getattr(connection, "autocommit", False) is True or (
            module.__name__ == "sqlite3" and connection.isolation_level is None
        ):
            raise ValueError("the connection commits each statement by itself: turn autocommit off")
        self._module = module
        self._connection = connection
        self._ids = _Ids(module, connection, table, keep)

    def create(self) -> None:
        """Create the table unless it exists."""
        self._ids.create()
        self._connection.commit()

    def has(self, id_: ReplicationId) -> bool:
        return self._ids.has(id_)

    def done(self, id_: ReplicationId) -> bool:
        """Raises the module's errors, for example if the commit fails; then the work is undone."""
        try:
            self._ids.add(id_)
        except self._module.IntegrityError:
            self._connection.rollback()
            if not self._knows(id_):
                raise
            return False
        self._connection.commit()
        if self._ids.due():
            self._let_go(id_.queue)
        return True

    def undo(self) -> None:
        self._connection.rollback()

    def flush(self) -> None:
        """Each message is committed."""

    def close(self) -> None:
        """The connection is the application's."""

    def abandon(self) -> None:
        """The connection is the application's."""

    def _knows(self, id_: ReplicationId) -> bool:
        try:
            return self._ids.has(id_)
        finally:
            self._connection.rollback()

    def _let_go(self, queue: str) -> None:
        """In a transaction of its own. Another consumer may be about it, too: then the next time will do."""
        try:
            self._ids.let_go(queue)
            self._connection.commit()
        except self._module.Error:
            self._connection.rollback()

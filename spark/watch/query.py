"""Runs the watch: reads ledger rows as a Spark stream, and passes each batch to the judge, journal and sinks.

It uses `foreachBatch` with its own state instead of Spark's keyed state, for two reasons. First, a loss
depends on many keys at once: a producer's confirm, ids of several queues, records of all nodes, and which
writers have been heard since. Second, the state is a few kilobytes of ranges, which one process updates in
milliseconds. Keyed state needs a round trip between the JVM and a Python worker for each key and batch.
Spark's part is to read in parallel, to keep the offsets, and to repeat a batch exactly.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark.session import find_java, require_pyspark
from spark.watch.checkpoint import Checkpoint, CheckpointError
from spark.watch.frozen import freeze, thaw
from spark.watch.judge import Judge, Limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RETRIES, RETRY_PAUSE = 5, 2.0
"""Restarts of the query after failures of Spark without a batch in between, and the pause in seconds."""
TRIGGER = 1.0
"""Seconds between two checks for new records."""
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(
        (
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:ReservedCodeCacheSize=128m",
            "-XX:MinHeapFreeRatio=10",
            "-XX:MaxHeapFreeRatio=30",
        )
    ),
    "spark.cleaner.periodicGC.interval": "5min",
}


class Sink(Protocol):
    def emit(self, lines: list[dict[str, Any]]) -> None: ...


@dataclass(slots=True)
class Told:
    """What the watch reports after each batch."""

    batch: int
    judge: Judge
    state_bytes: int


class Watch:
    """One run of the watch. `stop` may be called from another thread or from a signal handler."""

    def __init__(
        self, folders: Iterable[Path], checkpoint: Checkpoint, limits: Limits, sinks: Iterable[Sink], *,
        once: bool = False, trigger: float = TRIGGER, told: Callable[[Told], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Raises CheckpointError if the checkpoint's state cannot be used."""
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._checkpoint = checkpoint
        self._limits = limits
        self._sinks = list(sinks)
        self._once = once
        self._trigger = min(trigger, 0.3) if once else trigger
        self._told = told
        self._stop = threading.Event()
        self._taking = threading.Lock()
        self._caught_up_at = 0
        self.losses = 0
        """Number of loss alarms that this run raised."""
        self.done = False
        """With `once`: everything was read and judged."""
        self.error: BaseException | None = None
        self._taken, self.judge = self._restore()

    def _restore(self) -> tuple[int, Judge]:
        found = self._checkpoint.newest()
        if found is None:
            return -1, Judge(self._limits)
        batch, saved = found
        try:
            judge = thaw(saved["judge"], self._limits)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the state of batch {batch} cannot be used: {error}") from error
        self._publish(saved["alarms"])
        return batch, judge

    def stop(self) -> None:
        self._stop.set()

    def run(self, ready: Callable[[], object] = lambda: None, session: SparkSession | None = None) -> None:
        """Run until `stop`, or with `once` until everything is read and judged. Raises the error that ended
        the stream.

        `ready` is called after Spark has started, because Spark installs its own signal handlers. A `session`
        passed in stays open.
        """
        own = session or open_session()
        try:
            ready()
            tries = 0
            while not self._stop.is_set():
                taken = self._taken
                failure = self._follow(own)
                if self._stop.is_set() and _is_spark(failure):
                    break  # stopped within a batch, which the next run repeats
                tries = tries + 1 if self._taken == taken else 1
                if failure is not None and (tries > RETRIES or not _is_spark(failure)):
                    raise failure
                if failure is not None and not self._stop.wait(RETRY_PAUSE):
                    self._taken, self.judge = self._restore()
        finally:
            if session is None:
                own.stop()

    def _follow(self, session: SparkSession) -> BaseException | None:
        """Run the query once, until `stop` or until it fails. Returns the failure, if any."""
        self.error = None
        ended: BaseException | None = None
        try:
            query = self._start(session)
            while not self._stop.wait(0.5) and query.isActive:
                pass
            ended = None if query.isActive else query.exception()
            query.stop()
        except Exception as error:
            ended = error
        with self._taking:  # wait for the last batch to end
            return self.error or ended

    def _start(self, session: SparkSession) -> StreamingQuery:
        from spark.watch.source import NAME, LedgerSource

        session.dataSource.register(LedgerSource)
        tick = self._trigger if self._once else self._limits.heartbeat
        rows = (
            session.readStream.format(NAME)
            .option("folders", json.dumps(self._folders))
            .option("tick", str(tick))
            .load()
        )
        return (
            rows.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint.stream))
            .trigger(processingTime=f"{round(self._trigger * 1000)} milliseconds")
            .start()
        )

    def _take(self, rows: DataFrame, batch: int) -> None:
        """Called by Spark for each batch, and again for a batch that Spark does not know to be done."""
        with self._taking:
            try:
                self._batch(rows, batch)
            except BaseException as error:
                self.error = error
                raise

    def _batch(self, rows: DataFrame, batch: int) -> None:
        if batch <= self._taken:
            return
        if batch != self._taken + 1:
            raise CheckpointError(
                f"checkpoint {self._checkpoint.folder} is not whole: batch {batch} follows {self._taken}"
            )
        alarms = self.judge.batch(rows.toArrow().to_pylist(), attended=not self._once)
        lines = [alarm.as_dict(self._checkpoint.watch) for alarm in alarms]
        size = self._checkpoint.save(batch, {"judge": freeze(self.judge), "alarms": lines})
        self._taken = batch
        self._publish(lines)
        self._told(Told(batch, self.judge, size))
        self._end_if_done()

    def _publish(self, lines: list[dict[str, Any]]) -> None:
        new = self._checkpoint.journal.append(lines)
        self.losses += sum(line["severity"] == "loss" for line in new)
        if new:
            for sink in self._sinks:
                sink.emit(new)

    def _end_if_done(self) -> None:
        """With `once`: stop when everything was read, and still was after the grace."""
        if not self._once or self.judge.behind:
            return
        now = self.judge.live.now
        self._caught_up_at = self._caught_up_at or now
        if now - self._caught_up_at > (self._limits.grace + 0.5) * 1e6:
            self.done = True
            self._stop.set()


def _is_spark(error: BaseException | None) -> bool:
    """Whether Spark failed, not this project's code; for example a worker died. Trying again may succeed."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def open_session() -> SparkSession:
    """Start Spark with two threads, 512 MB of memory and no UI. Raises SparkUnavailable."""
    require_pyspark()
    import pyspark
    from pyspark.sql import SparkSession

    from spark.session import SparkUnavailable, _QuietStart

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise SparkUnavailable(f"watch needs PySpark 4.2 or later, but {pyspark.__version__} is installed")
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    here = str(Path(__file__).resolve().parents[2])
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *others])  # workers must import this same code
    builder = SparkSession.builder.appName("understudy watch").master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    with _QuietStart():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session

"""The ledgers as a stream source for Spark (Python data source API, PySpark 4.2 or later).

Spark's own file source reads each file once, but ledgers grow. Here an offset is a number of bytes for each
file (`tail`), so Spark's checkpoint can repeat each batch byte for byte. An offset also has the time at which
it was made. So silence and other waits are judged the same way when a batch is repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from spark.watch import lines, tail

NAME = "ledgers"
MOST_BYTES = 16 * 1024 * 1024
"""Approximate number of bytes in one batch. A batch of this size takes a second or two."""
TOGETHER = 256 * 1024
"""New bytes that one task reads from several small files. A task costs more than a few hundred lines."""


class Stretches(InputPartition):
    def __init__(self, stretches: list[tail.Stretch], now: int, behind: int) -> None:
        self.stretches = stretches
        self.now, self.behind = now, behind
        """Time and bytes left; both 0 except in the first partition, which carries the `tick` row."""


class LedgerReader(DataSourceStreamReader):
    """Plans what to read, on the driver; `read` runs in workers. Options are strings: `folders` (JSON),
    `tick` (seconds).
    """

    def __init__(self, options: Any) -> None:
        self._folders: list[str] = json.loads(options["folders"])
        self._tick_us = int(float(options["tick"]) * 1e6)

    def initialOffset(self) -> dict[str, Any]:
        return tail.origin()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """The next offset; `start` itself if nothing has grown and no tick is due."""
        after = tail.look(self._folders, start, time.time_ns() // 1000, MOST_BYTES)
        moved = bool(tail.stretches(start, after))
        return after if moved or after["now"] - start["now"] >= self._tick_us else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start["now"] == end["now"]:
            return []
        groups: list[list[tail.Stretch]] = [[]]
        size = 0
        for stretch in tail.stretches(start, end):
            wanted = max(stretch.end - stretch.start, 0)
            if groups[-1] and size + wanted > TOGETHER:
                groups.append([])
                size = 0
            groups[-1].append(stretch)
            size += wanted
        return [
            Stretches(group, end["now"], end["behind"]) if not at else Stretches(group, 0, 0)
            for at, group in enumerate(groups)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretches)
        if partition.now:
            yield lines.to_arrow([{"kind": "tick", "ts_us": partition.now, "first": partition.behind}])
        for stretch in partition.stretches:
            yield from lines.read_stretch(stretch)


class LedgerSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return lines.DDL

    def streamReader(self, schema: object) -> LedgerReader:
        return LedgerReader(self.options)

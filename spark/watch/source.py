"""The ledgers as a stream source of Spark's (Python data source API, PySpark 4.2 or later).

Spark's own file source takes each file once; ledgers grow. Here an offset is a number of bytes for each file
(`tail`), so that Spark's checkpoint makes each batch repeatable, byte for byte. An offset also has the time
at which it was made: with it, silence and other waits are judged alike in a batch and in its repetition.
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
"""Bytes of one batch, about: what a batch takes, a second or two, is the most that catching up delays."""
TOGETHER = 256 * 1024
"""Files with fewer new bytes are read by one task: a task costs more than a few hundred lines."""


class Stretches(InputPartition):
    def __init__(self, stretches: list[tail.Stretch], now: int, behind: int) -> None:
        self.stretches = stretches
        self.now, self.behind = now, behind
        """0 and 0 but in the first partition, which tells the time."""


class LedgerReader(DataSourceStreamReader):
    """Driver: what to read. Workers: `read`. The options are strings: `folders` (JSON), `tick` (seconds)."""

    def __init__(self, options: Any) -> None:
        self._folders: list[str] = json.loads(options["folders"])
        self._tick_us = int(float(options["tick"]) * 1e6)

    def initialOffset(self) -> dict[str, Any]:
        return tail.origin()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """`start` as it is if nothing has grown and no tick is due."""
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

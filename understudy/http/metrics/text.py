"""The text of the metrics that have RabbitMQ's names, in small pieces. Pure generators.

Each piece is the work of microseconds, and may be empty, so that whoever writes them out can let clients go
first after any of them (`scrape`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from broker.model.statistics import PROTOCOLS
from understudy.http.metrics.exposition import head, labels_of, sample
from understudy.http.metrics.families import Column
from understudy.http.metrics.node_rows import Sample


class Row(Protocol):
    """An object of a group. It has the fields of the group's columns."""

    @property
    def labels(self) -> str: ...


class ClientRow(Row, Protocol):
    @property
    def protocol(self) -> str: ...


def samples_text(prefix: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Samples of one family must follow each other."""
    last = None
    for family, labels, value in samples:
        if family.name != last:
            last = family.name
            yield head(prefix, family)
        yield sample(prefix + family.name, labels, value)


def totals_text(prefix: str, columns: Sequence[Column], rows: Iterable[Row | None]) -> Iterator[str]:
    """One sample for each column: the sum over all rows."""
    read = attrgetter("labels", *(column.field for column in columns))
    sums: list[float] = [0] * len(columns)
    for row in rows:
        if row is not None:
            sums = [total + value for total, value in zip(sums, read(row)[1:], strict=True)]
        yield ""
    for column, total in zip(columns, sums, strict=True):
        yield head(prefix, column.family) + sample(prefix + column.family.name, "", total)


def protocols_text(prefix: str, columns: Sequence[Column], rows: Iterable[ClientRow | None]) -> Iterator[str]:
    """One sample for each column and protocol."""
    sums = {protocol: [0] * len(columns) for protocol in PROTOCOLS}
    read = attrgetter("protocol", *(column.field for column in columns))
    for row in rows:
        if row is not None:
            protocol, *values = read(row)
            sums[protocol] = [total + value for total, value in zip(sums[protocol], values, strict=True)]
        yield ""
    for at, column in enumerate(columns):
        yield head(prefix, column.family)
        for protocol, totals in sums.items():
            labels = labels_of({"protocol": protocol})
            yield sample(prefix + column.family.name, labels, totals[at])


def objects_text(prefix: str, columns: Sequence[Column], rows: Iterable[Row | None]) -> Iterator[str]:
    """A sample for each row and column."""
    found: list[Row] = []
    for row in rows:
        if row is not None:
            found.append(row)
        yield ""
    for column in columns:
        yield head(prefix, column.family)
        name, read = prefix + column.family.name, attrgetter("labels", column.field)
        for row in found:
            labels, value = read(row)
            if value is not None:
                yield sample(name, labels, value)

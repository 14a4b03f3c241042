"""Files -> records: finds ledgers below folders and reads them with an explicit schema.

The only module that touches ledger files. Foreign files are counted, never opened.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark import schema as names

SUFFIX = ".ledger.jsonl"


@dataclass(slots=True)
class Found:
    """What lies below the given folders: ledgers to read, other files, copies, and names Spark cannot see."""

    ledgers: list[Path] = field(default_factory=list)
    ignored: int = 0
    copies: list[Path] = field(default_factory=list)
    hidden: list[Path] = field(default_factory=list)
    empty: list[Path] = field(default_factory=list)
    """Ledgers without a single byte; they are among `ledgers` too."""


def find_ledgers(folders: Iterable[Path]) -> Found:
    """Search below each folder (a single file may be given too); a file reached twice counts once.

    A file equal byte for byte to another one is a copy, and is left out: it would make every delivery in it
    look like a duplicate. Names that begin with `.` or `_` are invisible to Spark and are reported as hidden.
    """
    found, seen = Found(), set[Path]()
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            real = path.resolve()
            if not real.is_file() or real in seen:
                continue
            seen.add(real)
            if not real.name.endswith(SUFFIX):
                found.ignored += 1
            elif real.name.startswith((".", "_")):
                found.hidden.append(real)
            else:
                found.ledgers.append(real)
    found.empty = [path for path in found.ledgers if not path.stat().st_size]
    found.copies = _copies(found.ledgers)
    found.ledgers = [path for path in found.ledgers if path not in set(found.copies)]
    return found


def _copies(paths: list[Path]) -> list[Path]:
    by_size: dict[int, list[Path]] = defaultdict(list)
    for path in paths:
        by_size[path.stat().st_size].append(path)
    copies = []
    for size, group in by_size.items():
        digests: set[bytes] = set()
        for path in group if size and len(group) > 1 else []:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").digest()
            if digest in digests:
                copies.append(path)
            digests.add(digest)
    return copies


def read_records(session: SparkSession, ledgers: Iterable[Path]) -> DataFrame:
    """RECORD_SCHEMA, a row for each line. A line that is no record has `_corrupt` and `_file` set."""
    paths = [re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path)) for path in ledgers]
    lines = session.read.json(
        paths, schema=names.RECORD_SCHEMA, mode="PERMISSIVE", columnNameOfCorruptRecord=names.CORRUPT,
        encoding="UTF-8",
    )  # fmt: skip
    file = F.when(F.col(names.CORRUPT).isNotNull() | F.col("wseq").isNull(), F.col("_metadata.file_path"))
    return lines.withColumn(names.FILE, file).select(*names.RECORD_SCHEMA.names)

"""Finds the ledger lines that show a finding.

The reconciling job names them by writer, incarnation and number (`evidence` of a finding). The lines are read
from the ledger files when the report is written. Only files of those writers are opened.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

Place = tuple[str, int, int]
"""Writer, incarnation, wseq."""

JSON_LINES = (".ledger.jsonl", ".ledger.jsonl.zst")
PARQUET = ".ledger.parquet"
LONGEST = 4096
"""Longest part of a line that is shown, in characters."""


def with_lines(answer: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """The same result, with `file` (a name) and `line` in each piece of evidence. `line` is None if it was
    not found."""
    wanted: dict[tuple[str, int], set[int]] = defaultdict(set)
    for finding in answer["findings"]:
        for piece in finding.get("evidence") or ():
            wanted[piece["writer"], piece["incarnation"]].add(piece["wseq"])
    lines = find_lines(wanted, folders) if wanted else {}

    def completed(piece: Mapping[str, Any]) -> dict[str, Any]:
        file, line = lines.get((piece["writer"], piece["incarnation"], piece["wseq"]), (None, None))
        return {**piece, "file": file or piece.get("file"), "line": line}

    findings = [
        {**finding, "evidence": [completed(piece) for piece in finding.get("evidence") or ()]}
        for finding in answer["findings"]
    ]
    return {**answer, "findings": findings}


def find_lines(
    wanted: Mapping[tuple[str, int], set[int]], folders: Sequence[Path]
) -> dict[Place, tuple[str, str]]:
    """File name and line of each wanted record. If a record occurs twice, the first file by path counts."""
    found: dict[Place, tuple[str, str]] = {}
    for path in _ledgers(folders):
        mine = {who: numbers for who, numbers in wanted.items() if _may_hold(path, *who)}
        for place, line in _matching(path, mine) if mine else ():
            found.setdefault(place, (path.name, line[:LONGEST]))
    return found


def _ledgers(folders: Iterable[Path]) -> list[Path]:
    below = {
        Path(os.path.realpath(path))
        for folder in folders
        for path in ([folder] if folder.is_file() else folder.rglob("*"))
    }
    return sorted(path for path in below if path.is_file() and path.name.endswith((*JSON_LINES, PARQUET)))


def _may_hold(path: Path, writer: str, incarnation: int) -> bool:
    """May the file hold records of this writer? Writers name their files after themselves. A file with
    another kind of name may hold records of any writer."""
    named = re.fullmatch(r"(.*)-(\d+)-\d+", path.name.split(".ledger.")[0])
    return named is None or (named[1], named[2]) == (quote(writer, safe="") or "_", str(incarnation))


def _matching(path: Path, wanted: Mapping[tuple[str, int], set[int]]) -> Iterator[tuple[Place, str]]:
    numbers = set().union(*wanted.values())
    try:
        rows = _rows(path, numbers) if path.name.endswith(PARQUET) else _lines(path, numbers)
        for record, line in rows:
            who = (str(record.get("writer")), int(record.get("incarnation", -1)))
            if record.get("wseq") in wanted.get(who, ()):
                yield (*who, record["wseq"]), line
    except (OSError, ValueError, EOFError):
        return  # the result names unreadable files in `missing`


def _lines(path: Path, numbers: set[int]) -> Iterator[tuple[dict[str, Any], str]]:
    number = re.compile(rb'"wseq":\s*(\d+)')
    with _opened(path) as file:
        for line in file:
            seen = number.search(line)
            if seen and int(seen[1]) in numbers:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record, line.decode("utf-8", "replace").rstrip("\r\n")


def _opened(path: Path) -> IO[bytes]:
    if path.name.endswith(".zst"):
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def _rows(path: Path, numbers: set[int]) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows of a compacted ledger, as JSON lines."""
    import pyarrow.parquet as pq

    for row in pq.read_table(path, filters=[("wseq", "in", sorted(numbers))]).to_pylist():
        record = {name: value for name, value in row.items() if value is not None}
        yield record, json.dumps(record, separators=(",", ":"), ensure_ascii=False)

"""An independent judge of ledgers: DuckDB, id by id. Shares no code and no method with the Spark job.

The job sweeps over ranges. The oracle expands every range into single ids and joins them. This is slow and
simple, and its errors would have other causes. The statements are in `oracle_read.sql` and
`oracle_judge.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

HERE = Path(__file__).parent
SHOWN = 200
"""Number of ranges that the job shows for one finding."""

Named = tuple[str, str | None, int | None, str | None, str | None, tuple[tuple[int, int], ...]]
"""Kind, queue, epoch, prod, note, ranges."""

MILD = frozenset({"duplicate-redelivered", "duplicate-in-doubt", "in-doubt", "number-forgotten"})
NEVER_SURE = frozenset({"unknown-producer", "reused"})
OF_ABSENCE = frozenset(
    {"lost", "unplaced", "unaccounted", "never-published", "unsent", "early", "copy-differs", "torn"}
)
"""Findings because something is absent from the ledgers: a gap in the ledgers may be the cause."""

ISLANDS = """
SELECT kind, queue, epoch, prod, note, min(num) AS first, max(num) AS last FROM (
  SELECT *, num - dense_rank() OVER (PARTITION BY kind, queue, epoch, prod, note ORDER BY num) AS island
  FROM found
) GROUP BY kind, queue, epoch, prod, note, island ORDER BY ALL
"""

GAPS = """
SELECT writer, inc, wseq + 1 AS first, next - 1 AS last FROM (
  SELECT writer, inc, wseq, lead(wseq) OVER (PARTITION BY process ORDER BY wseq) AS next FROM rec
) WHERE next > wseq + 1
UNION ALL SELECT writer, inc, 0, min(wseq) - 1 FROM rec GROUP BY writer, inc HAVING min(wseq) > 0
"""

ENDLESS = """
SELECT w.writer, w.inc, w.role FROM writers w
WHERE NOT w.sealed AND (w.role <> 'broker' OR NOT EXISTS (
  FROM writers n WHERE n.writer = w.writer AND n.inc > w.inc AND n.role = 'broker'
)
AND NOT EXISTS (
  FROM rec p WHERE p.kind = 'promote' AND p.peer = w.writer AND p.writer <> w.writer AND p.view > w.view
)
AND NOT EXISTS (
  SELECT arg_max(e.reason, e.wseq) AS word, arg_max(e.view, e.wseq) AS said FROM rec e
  WHERE e.kind = 'insync' AND e.peer = w.writer AND e.writer <> w.writer
  GROUP BY e.process HAVING word = 'excluded' AND said >= w.view
))
"""


@dataclass(frozen=True)
class Judgement:
    verdict: str
    findings: dict[str, set[Named]]
    """Findings by severity: violation, unknown, allowed."""
    gaps: set[tuple[str, int, int, int]]
    """Writer, incarnation, first and last missing record."""
    endless: set[tuple[str, int]]
    """Writer and incarnation of each ledger without an end that no other record explains."""
    torn: int
    """Number of invalid lines."""


def judge(folder: Path) -> Judgement:
    """Judge all ledgers below `folder`."""
    with duckdb.connect(config={"threads": 1}) as db:
        _read(db, folder)
        for name in ("oracle_read.sql", "oracle_judge.sql"):
            db.execute((HERE / name).read_text())
        gaps = {(w, i, a, b) for w, i, a, b in db.execute(GAPS).fetchall()}
        endless = db.execute(ENDLESS).fetchall()
        torn, excused = _torn(db, {(w, i) for w, i, *_ in gaps})
        rows = db.execute("SELECT writer, inc, role FROM writers").fetchall()
        roles = {(w, i): r for w, i, r in rows}
        broken = torn > excused or any(roles[w, i] != "producer" for w, i, *_ in gaps)
        broken |= any(role != "producer" for *_, role in endless)
        doubtful = any(roles[w, i] == "producer" for w, i, *_ in gaps) or any(
            r == "producer" for *_, r in endless
        )
        complete = bool(db.execute("FROM last_owner").fetchall())
        findings: dict[str, set[Named]] = {"violation": set(), "unknown": set(), "allowed": set()}
        for named in _named(db):
            findings[_weight(named, broken, doubtful, complete, db)].add(named)
        missing = bool(gaps or endless or torn > excused or findings["unknown"])
    verdict = "violated" if findings["violation"] else "not provable" if missing else "proven"
    return Judgement(verdict, findings, gaps, {(w, i) for w, i, _ in endless}, torn)


def _read(db: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Fill the table line(file, text). Of several forms of one ledger, the most compacted one counts."""
    db.execute("CREATE TABLE line (file VARCHAR, text VARCHAR)")
    stems: dict[Path, str] = {}
    for form in (".jsonl", ".jsonl.zst", ".parquet"):
        stems |= {
            path.with_name(path.name.removesuffix(form)): form for path in folder.rglob(f"*.ledger{form}")
        }
    for stem, form in sorted(stems.items()):
        path = f"{stem}{form}"
        if form == ".parquet":
            rows = "SELECT to_json(r) AS text FROM read_parquet(?) AS r"
        elif form == ".jsonl.zst":
            rows = "SELECT json AS text FROM read_json_objects(?, compression='zstd', format='nd')"
        else:
            rows = "SELECT unnest(string_split(content, chr(10))) AS text FROM read_text(?)"
        named = (
            f"INSERT INTO line SELECT '{stem.name}', text::VARCHAR FROM ({rows}) WHERE text::VARCHAR <> ''"
        )
        db.execute(named, [path])


def _named(db: duckdb.DuckDBPyConnection) -> list[Named]:
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for kind, queue, epoch, prod, note, first, last in db.execute(ISLANDS).fetchall():
        pieces = groups.setdefault((kind, queue, epoch, prod, note), [])
        if first is not None:
            pieces.append((first, last))
    return [(*key, tuple(sorted(pieces)[:SHOWN])) for key, pieces in groups.items()]


def _torn(db: duckdb.DuckDBPyConnection, gaps: set[tuple[str, int]]) -> tuple[int, int]:
    """The number of invalid lines, and how many of these end the ledger of a killed process."""
    rows = db.execute("SELECT file, count(*) FROM bad GROUP BY file").fetchall()
    killed = [
        (w, i) for w, i, sealed in db.execute("SELECT writer, inc, sealed FROM writers").fetchall()
        if not sealed and (w, i) not in gaps
    ]  # fmt: skip
    endless = {(w, i) for w, i, _ in db.execute(ENDLESS).fetchall()}
    crashed = [f"{w}-{i}-" for w, i in killed if (w, i) not in endless]
    excused = sum(1 for file, lines in rows if lines == 1 and any(file.startswith(c) for c in crashed))
    return sum(lines for _, lines in rows), excused


def _weight(named: Named, broken: bool, doubtful: bool, complete: bool, db: duckdb.DuckDBPyConnection) -> str:
    kind, _, epoch, _, note, _ = named
    if kind in MILD:
        return "allowed"
    absent = kind in OF_ABSENCE or (kind, note) == ("quarantine-differs", "missing")
    if kind in NEVER_SURE or (absent and broken):
        return "unknown"
    if kind in ("lost", "unaccounted") and not complete:
        return "unknown"
    if kind == "unsent" and doubtful:
        return "unknown"
    if kind == "never-published" and note == "beyond":
        killed = "SELECT 1 FROM owner JOIN writers USING (process) WHERE owner.view = ? AND NOT sealed"
        return "unknown" if db.execute(killed, [epoch]).fetchall() else "violation"
    return "violation"

"""Finds records that show a finding: writer, incarnation, wseq, kind and file; a few for its first range.

The transforms work on joined records. So this module reads the ledgers once more, and only if there are
findings. It reads them twice if it must find confirms through tags.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.ranges import size
from spark.reconcile.ledgers.federation import origin
from spark.schema import GREATEST

SHOWN = 8
"""Most records for one finding."""
EACH = 2
"""Most records of one kind and process for one finding."""
FINDINGS = 100
"""Most findings that get records."""

WANTED = "place long, key string, w_first long, w_last long, kind_of string, point string"
PUBLISHED = frozenset({"sent", "confirmed", "nacked", "returned"})

Finding = dict[str, Any]


def attach(findings: Sequence[Finding], records: Callable[[], DataFrame]) -> None:
    """Set `evidence` of each finding; empty if the finding is allowed, or no record shows it.

    `records` reads the ledgers again, with the file of each record.
    """
    for finding in findings:
        finding.setdefault("evidence", [])
    wanted = [
        row
        for place, finding in enumerate(findings)
        if finding["severity"] != "allowed" and finding["ranges"] and not finding["evidence"]
        for row in _wanted(place, finding)
    ][:FINDINGS]
    if not wanted:
        return
    rows = _look_up(records(), wanted)
    through = _published(rows)
    if through:
        rows += [row for row in _look_up(records(), through) if row["kind"] in PUBLISHED]
    by_place: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_place[row["place"]].append(row)
    for place, mine in by_place.items():
        findings[place]["evidence"] = _best(mine)


def _wanted(place: int, finding: Finding) -> list[tuple[Any, ...]]:
    first, last = finding["ranges"][0]
    point = finding["note"] if finding["kind"] == "copy-differs" else None
    came = origin(finding["prod"])
    if finding["queue"] and finding["epoch"] is not None:
        keys = [f"{finding['queue']}/{finding['epoch']}"]
    elif came is not None:
        keys = [finding["prod"], f"{came[0]}/{came[1]}"]
    else:
        keys = [finding["prod"]] if finding["prod"] else []
    return [(place, key, first, last, finding["kind"], point) for key in keys]


def _look_up(records: DataFrame, wanted: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The records that match `wanted`, a few of each kind and process for each place."""
    tags = F.when(F.col("kind").isin("enqueue", "backup_enqueue"), F.col("pfirst")).otherwise(F.col("first"))
    process = F.when(
        (F.col("kind") == "sent") & F.col("pfirst").isNotNull(),
        F.concat_ws("#", "writer", F.col("incarnation").cast("string")),
    )
    names = ((F.concat_ws("/", "queue", F.col("epoch").cast("string")), F.col("first")),
             (F.col("prod"), tags), (process, F.col("pfirst")))  # fmt: skip
    keys = F.array(*(
        F.struct(key.alias("key"), start.alias("a"), (start + size() - 1).alias("b")) for key, start in names
    ))  # fmt: skip
    sane = f"first <= last and first >= -{GREATEST} and last <= {GREATEST}"
    sane += f" and coalesce(pfirst, 0) between -{GREATEST} and {GREATEST}"
    known = records.where(f"writer is not null and kind is not null and {sane}")
    spread = known.select(
        "writer", "incarnation", "wseq", "kind", "ts_us", "name", "prod", "_file", "first", "last", "pfirst",
        F.inline(keys),
    ).where("key is not null and a is not null")  # fmt: skip
    asked = F.broadcast(records.sparkSession.createDataFrame(list(wanted), WANTED))
    met = spread.join(asked, "key").where("a <= w_last and b >= w_first")
    fit = met.where(
        "case when point is null then kind != 'quiesce' else kind = 'quiesce' and name = point end"
    )
    order = Window.partitionBy("place", "kind", "writer", "incarnation").orderBy("wseq")
    few = fit.withColumn("_rank", F.row_number().over(order)).where(F.col("_rank") <= EACH)
    return [row.asDict() for row in few.drop("_rank").collect()]


def _published(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Search terms for the publishes and confirms of ids, by the tags of their enqueues."""
    out = []
    for row in rows:
        if row["kind"] == "enqueue" and row["prod"] and row["pfirst"] is not None and "/" in row["key"]:
            if row["key"] == row["prod"]:
                continue
            shift = row["pfirst"] - row["first"]
            first, last = max(row["first"], row["w_first"]), min(row["last"], row["w_last"])
            out.append((row["place"], row["prod"], first + shift, last + shift, row["kind_of"], None))
    return out


def _best(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """At most SHOWN records, oldest first; each kind and process gets one before any gets a second."""
    unique = {(r["writer"], r["incarnation"], r["wseq"]): r for r in rows}
    seen: dict[tuple[Any, ...], int] = defaultdict(int)
    ranked = []
    for row in sorted(unique.values(), key=lambda r: (r["ts_us"], r["wseq"])):
        who = (row["kind"], row["writer"], row["incarnation"])
        ranked.append((seen[who], row["ts_us"], row["wseq"], row["writer"], row))
        seen[who] += 1
    chosen = [row for *_, row in sorted(ranked, key=lambda r: r[:4])[:SHOWN]]
    return [
        {
            "writer": row["writer"], "incarnation": row["incarnation"], "wseq": row["wseq"],
            "kind": row["kind"], "file": unquote((row["_file"] or "").rsplit("/", 1)[-1]) or None,
        }
        for row in sorted(chosen, key=lambda r: (r["ts_us"], r["wseq"]))
    ]  # fmt: skip

"""One measurement in a process of its own: `python -m bench.spark.measure spark|duckdb FOLDER`, prints JSON.

CPU is user and system time of the process and all below it, the JVM and the Python workers included; memory
the greatest sum of their proportional resident sizes, sampled twice a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark.tree import Peak, cpu_seconds

WARM_RUNS = 1


def measured(work: Callable[[], dict[str, Any]], before: float | None = None) -> dict[str, Any]:
    """CPU seconds (from `before` on, if given), seconds and greatest memory of `work`, with what it says."""
    cpu, begin = cpu_seconds() if before is None else before, time.monotonic()
    with Peak(0.5) as peak:
        said = work()
    spent = round(cpu_seconds() - cpu, 2)
    seconds, mib = round(time.monotonic() - begin, 1), round(peak.most / 2**20)
    return {"cpu_s": spent, "wall_s": seconds, "peak_mib": mib, **said}


def spark(folder: Path) -> dict[str, Any]:
    """Cold: from the start of this process, with the JVM's. Warm: the best of WARM_RUNS after it."""
    from spark.reconcile.input.read import find_ledgers
    from spark.reconcile.job import reconcile
    from spark.session import open_session

    session = open_session(small=True)

    def job() -> dict[str, Any]:
        answer = reconcile(session, find_ledgers([folder]), progress=_say)
        totals = answer["totals"]
        return {"verdict": answer["verdict"], "enqueued": totals["enqueued"], "lost": totals["lost"]}

    try:
        cold = measured(job, before=0.0)
        warm = [measured(job) for _ in range(WARM_RUNS)]
    finally:
        session.stop()
    records = sum(_rows(path) for path in folder.iterdir())
    return {"records": records, "cold": cold, "warm": min(warm, key=lambda run: run["cpu_s"])}


def _say(text: str) -> None:
    print(f"  {cpu_seconds():8.1f} CPU s  {text}", file=sys.stderr, flush=True)


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    if path.name.endswith(".parquet"):
        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def duckdb(folder: Path) -> dict[str, Any]:
    from bench.spark.duck import reconcile

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        return {"warm": measured(lambda: dict(reconcile(folder, Path(scratch))))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.spark.measure")
    parser.add_argument("engine", choices=("spark", "duckdb"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(json.dumps({"spark": spark, "duckdb": duckdb}[options.engine](options.folder)))


if __name__ == "__main__":
    main()

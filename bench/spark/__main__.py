"""`python -m bench.spark`: makes ledgers, reconciles them with Spark and sweeps them with DuckDB, in turns.

python -m bench.spark --ids 10M,100M,1000M --ratio       # results.json, growth.svg and the table in README.md
python -m bench.spark --ids 1M --only plain              # a glance; writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spark.generate import PER_ID, Pair, Shape, amount
from bench.spark.plot import svg

HERE = Path(__file__).resolve().parent
CASES = {
    "plain": (Shape(), "parquet", 1.0),
    "skewed": (Shape(skew=0.9), "parquet", 1.0),
    "per id": (PER_ID, "parquet", 0.02),
    "JSON lines": (Shape(), "jsonl", 0.1),
}
"""Shape, form, and how many of the ids that were asked for."""
GROWING = "plain"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def amounts(text: str) -> list[int]:
    """Some, with commas between them."""
    return [amount(each) for each in text.split(",")]


def measure(engine: str, folder: Path) -> dict[str, Any]:
    """In a process of its own. Its progress is shown; RuntimeError if it fails."""
    command = [sys.executable, "-m", "bench.spark.measure", engine, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent.parent, check=False)
    if done.returncode:
        raise RuntimeError(f"{engine} on {folder} ended with {done.returncode}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def run_case(name: str, ids: int, folder: Path, *, ratio: bool) -> dict[str, Any]:
    shape, form, _ = CASES[name]
    print(f"{name}: making {ids:,} ids", file=sys.stderr, flush=True)
    Pair(folder, ids, shape, seed=1, form=form).run()
    size = sum(path.stat().st_size for path in folder.iterdir())
    row: dict[str, Any] = {"case": name, "ids": ids, "mib": round(size / 2**20)}
    duck = [measure("duckdb", folder)] if ratio else []
    row["spark"] = measure("spark", folder)
    if ratio:
        duck.append(measure("duckdb", folder))
        row["duckdb"] = min((run["warm"] for run in duck), key=lambda run: run["cpu_s"])
        row["ratio"] = round(row["spark"]["warm"]["cpu_s"] / row["duckdb"]["cpu_s"], 2)
    print(json.dumps(row), flush=True)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    head = (
        "ledgers",
        "ids",
        "records",
        "MiB",
        "Spark warm, CPU s",
        "cold, CPU s",
        "MiB",
        "DuckDB, CPU s",
        "ratio",
    )
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for row in rows:
        spark, duck = row["spark"], row.get("duckdb")
        cells = (
            row["case"], f"{row['ids']:,}", f"{spark['records']:,}", f"{row['mib']:,}",
            f"{spark['warm']['cpu_s']:.1f}", f"{spark['cold']['cpu_s']:.1f}",
            f"{max(spark['cold']['peak_mib'], spark['warm']['peak_mib']):,}",
            f"{duck['cpu_s']:.1f}" if duck else "-", f"{row['ratio']:.2f}" if duck else "-",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def store(rows: list[dict[str, Any]]) -> None:
    """results.json, growth.svg, and the table between its marks in README.md."""
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "when": time.strftime("%Y-%m-%d"),
    }
    (HERE / "results.json").write_text(json.dumps({"machine": machine, "runs": rows}, indent=1) + "\n")
    grown = [row for row in rows if row["case"] == GROWING]
    series = {"Spark, warm": [(row["ids"], row["spark"]["warm"]["cpu_s"]) for row in grown]}
    if any("duckdb" in row for row in grown):
        series["DuckDB, sweeps only"] = [
            (row["ids"], row["duckdb"]["cpu_s"]) for row in grown if "duckdb" in row
        ]
    (HERE / "growth.svg").write_text(svg(series))
    readme = (HERE / "README.md").read_text()
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    (HERE / "README.md").write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.spark", description="What reconciling costs.")
    parser.add_argument(
        "--ids", type=amounts, default="10M,100M", help="sizes of the plain case; others take the middle one"
    )
    parser.add_argument("--only", choices=tuple(CASES), action="append", help="write no file")
    parser.add_argument("--ratio", action="store_true", help="DuckDB too, before and after")
    parser.add_argument("--folder", type=Path, help="where ledgers are made, and removed again")
    options = parser.parse_args()
    sizes: list[int] = options.ids
    cases = [(GROWING, size) for size in sizes] if GROWING in (options.only or CASES) else []
    for name in options.only or CASES:
        if name != GROWING:
            cases.append((name, int(sizes[len(sizes) // 2] * CASES[name][2])))
    rows = []
    for name, ids in cases:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="ledgers-") as scratch:
            folder = Path(scratch) / "ledgers"
            rows.append(run_case(name, ids, folder, ratio=options.ratio))
            shutil.rmtree(folder)
        if not options.only:
            store(rows)
    print(table(rows))


if __name__ == "__main__":
    main()

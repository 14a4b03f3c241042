"""`make soak-ledgers`: many histories with planted faults, each reconciled by Spark and by the oracle.

Every other history is then pruned, and what remains is reconciled again. Each process has its own Spark.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.spark.histories import processes, trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--first", type=int, help="first seed; by default random, and printed")
    parser.add_argument(
        "--messages", type=int, help="approximate number of messages; by default drawn from the seed"
    )
    parser.add_argument("--faults", help="comma separated, or none; by default drawn from the seed")
    parser.add_argument("--keep", type=Path, help="leave the ledgers in this folder")
    parser.add_argument("--without-spark", action="store_true", help="compare generator and oracle only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    faults = None if options.faults is None else [f for f in options.faults.split(",") if f in trial.FAULTS]
    first = random.SystemRandom().randrange(10**8) if options.first is None else options.first
    print(f"{options.histories} histories from seed {first} on", flush=True)
    planted: Counter[str] = Counter()
    failed = clean = 0
    begun = time.monotonic()
    with ProcessPoolExecutor(
        min(options.processes, options.histories), multiprocessing.get_context("spawn"),
        processes.begin, (not options.without_spark,),
    ) as pool:  # fmt: skip
        one = partial(processes.run, keep=options.keep, messages=options.messages, faults=faults)
        for done in pool.map(one, range(first, first + options.histories)):
            planted.update(done.planted)
            clean += not done.planted
            failed += bool(done.differences)
            took = time.monotonic() - begun
            if done.differences:
                print(f"\nDIFFERENT {done}", flush=True)
            else:
                print(
                    f"seed {done.seed}: {len(done.planted)} planted, all found by both, none false"
                    f" ({took:.0f} s)", flush=True,
                )  # fmt: skip
    print(f"{options.histories} histories, {clean} without a fault, {failed} different; planted in all:")
    print(", ".join(f"{name} {planted[name]}" for name in trial.FAULTS))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
